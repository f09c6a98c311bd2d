"""Where arrays live: the one file that knows about devices and hosts.

The same program runs under every placement; only the shardings differ, and how seeds share a device:

    single     one device, all seeds at once (vmap)
    in_turn    one device, one seed after the other (scan): for models whose seeds together leave caches or memory
    data       each batch is split over all devices, which all hold the parameters
    seeds      different seeds on different devices

JAX's pmap is today a wrapper over the same machinery, so there is no separate path for it.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import multihost

from experiments.harness.errors import ConfigError, UserError
from experiments.harness.experiment import PyTree
from experiments.harness.settings import choose

_AXIS = "devices"
_THREADS = "PJRT_NPROC"  # sets the number of XLA's threads on a CPU; default: that of cores
_JOIN_S = 300  # how long a process waits for the others to come
_PATIENCE_MS = 3_600_000  # how long processes wait for the slowest
_ALONG, _WHOLE = PartitionSpec(_AXIS), PartitionSpec()
# placement -> (uses every device, split of the seeds, split of the batch, whether a device takes its seeds in turn)
_PLACEMENTS = {
    "single": (False, _WHOLE, _WHOLE, False),
    "in_turn": (False, _WHOLE, _WHOLE, True),
    "data": (True, _WHOLE, _ALONG, False),
    "seeds": (True, _ALONG, _WHOLE, False),
}


@dataclasses.dataclass(frozen=True)
class Placement:
    """Shardings of one run.

    Attributes:
      state: of arrays with a leading seed axis.
      everywhere: of arrays that each device holds whole.
      batch: of arrays with a leading task axis.
      in_turn: whether a device takes its seeds one after the other.
    """

    state: NamedSharding
    everywhere: NamedSharding
    batch: NamedSharding
    in_turn: bool

    @property
    def shares_of_seeds(self) -> int:
        """Over how many devices the seeds are split."""
        return self.state.num_devices if self.state.spec == _ALONG else 1

    def constrain(self, batch):
        """The batch (leading axis: tasks) split as this placement says. For use inside jit."""
        if self.batch.spec == _WHOLE:
            return batch
        return jax.lax.with_sharding_constraint(batch, self.batch)

    def over_seeds(self, function: Callable[[PyTree, PyTree], PyTree]) -> Callable[[PyTree, PyTree], PyTree]:
        """`function` of one seed's tree and the data, mapped over a leading seed axis of the trees. For use inside jit.

        A single seed runs without that axis: XLA would carry it into every product, which on a CPU costs a third of a
        small model's step.
        """

        def run(trees, data):
            if jax.tree.leaves(trees)[0].shape[0] == 1:
                only = jax.tree.map(lambda leaf: leaf[0], trees)
                return jax.tree.map(lambda leaf: leaf[None], function(only, data))
            if self.in_turn:
                return jax.lax.map(lambda tree: function(tree, data), trees)
            return jax.vmap(function, (0, None))(trees, data)

        return run


def build_placement(name: str, *, seeds: int, batch_size: int, micro_batches: int = 1) -> Placement:
    """The placement `name` over the devices at hand. What is split is a batch, or each of its micro-batches.

    Raises:
      ConfigError: an unknown name, seeds or tasks not divisible by the number of devices, or several processes for a
        placement of one device.
    """
    spread, along_seeds, along_batch, in_turn = choose(_PLACEMENTS, name, "config.train.placement")
    if jax.process_count() > 1 and not spread:
        others = " or ".join(name for name, (spread, *_) in _PLACEMENTS.items() if spread)
        raise ConfigError(
            f"config.train.placement: {name!r} takes one device, {jax.process_count()} processes are here: "
            f"expected {others}"
        )
    devices = jax.devices() if spread else jax.local_devices()[:1]
    tasks = "batch_size" if micro_batches == 1 else "batch_size / micro_batches"
    for what, size, spec in (("seeds", seeds, along_seeds), (tasks, batch_size // micro_batches, along_batch)):
        if spec == _ALONG and size % len(devices):
            raise ConfigError(
                f"config.train.{what}: {size} is not divisible by the {len(devices)} devices of placement {name!r}"
            )
    mesh = Mesh(np.array(devices), (_AXIS,))
    return Placement(*(NamedSharding(mesh, spec) for spec in (along_seeds, _WHOLE, along_batch)), in_turn)


def initialize_hosts() -> None:
    """Joins a run of several processes, if this is one of them.

    That is where JAX_COORDINATOR_ADDRESS is set (with JAX_NUM_PROCESSES and JAX_PROCESS_ID), or in a step of a SLURM
    job with several tasks, which SLURM's own variables describe. Raises UserError where one of the three is missing or
    cannot be, a process does not come or JAX_PLATFORMS asks for a device that is not there, RuntimeError where JAX has
    no such platform.
    """
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if address:
        _join(f"JAX_COORDINATOR_ADDRESS={address}", *_process(address))
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:  # set by srun alone: not in a job's own script
        _join("the step of SLURM", cluster_detection_method="slurm")
    try:
        jax.devices()
    except AssertionError as error:  # JAX knows the platform, and its plug-in is not installed or found nothing
        platforms = os.environ.get("JAX_PLATFORMS", "")
        raise UserError(f"JAX_PLATFORMS={platforms}: JAX finds no such device here") from error


def _join(run: str, *arguments, **options) -> None:
    """Waits until all processes of a run are there, in a thread: JAX itself hears no signal and gives up by abort().

    Raises UserError where they do not come.
    """
    joined: concurrent.futures.Future = concurrent.futures.Future()

    def work() -> None:
        try:
            joined.set_result(jax.distributed.initialize(*arguments, initialization_timeout=2 * _JOIN_S, **options))
        except Exception as error:
            joined.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        joined.result(_JOIN_S)
    except TimeoutError as error:
        raise UserError(f"{run}: not all of its processes came within {_JOIN_S} s") from error


def _process(address: str) -> tuple[str, int, int]:
    """The coordinator's address, the number of processes, and the number of this one. Raises UserError."""
    if not re.fullmatch(r".+:\d+", address):
        raise UserError(f"JAX_COORDINATOR_ADDRESS: expected host:port, got {address!r}")
    texts = {name: os.environ.get(name, "") for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")}
    for name, text in texts.items():
        if not text.isdecimal():
            raise UserError(f"{name}: with JAX_COORDINATOR_ADDRESS expected a number, got {text!r}")
    processes, own = map(int, texts.values())
    if own >= processes:
        raise UserError(f"JAX_PROCESS_ID: expected less than JAX_NUM_PROCESSES={processes}, got {own}")
    return address, processes, own


def wait_for_all(moment: str) -> None:
    """Blocks each process of a multi-host run until all have reached the `moment`, which has a name of its own.

    Collectives on CPUs give up after 30 seconds, so that processes wait here before their first one, however long.
    """
    if jax.process_count() > 1:
        multihost.get_barrier_sync_fn()(key=moment, timeout_ms=_PATIENCE_MS)


def shares_of_cores(workers: int | None = None) -> list[set[int]]:
    """The cores of this process, divided among `workers` processes (None: one for each core).

    Raises:
      UserError: more workers than cores.
    """
    cores = _cores()
    workers = workers or len(cores)
    if workers > len(cores):
        raise UserError(f"{workers} workers are more than the cores of this process, {len(cores)}")
    return [set(cores[first::workers]) for first in range(workers)]


def as_many_threads() -> dict[str, str]:
    """The environment in which XLA has as many threads on a CPU as here, on whatever share of the cores.

    Sums are split among threads, so that the last bits of a result depend on their number.
    """
    return {_THREADS: os.environ.get(_THREADS, str(len(_cores())))}


def _cores() -> list[int]:
    """The cores of this process, also where the thread that asks has a share of them."""
    return (
        sorted(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count()))
    )


@contextlib.contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Binds this thread, and the processes that it starts, to some cores, where the system can do so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def on_host(array: jax.Array) -> np.ndarray:
    """The whole of an array that may be spread over hosts: all of them must ask for it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


def memory_bytes() -> int:
    """The memory of a device; on a CPU that of the machine."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] if "bytes_limit" in stats else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory() -> int:
    """Bytes that a program can still have: of the device, else of the machine, else all that `memory_bytes` finds."""
    stats = jax.devices()[0].memory_stats()
    if stats is not None:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    if not (linux := Path("/proc/meminfo")).exists():
        return memory_bytes()
    (free,) = re.findall(r"MemAvailable: *(\d+) kB", linux.read_text())
    return 1024 * int(free)


def device_peak() -> int | None:
    """The most bytes that the first device ever held in this process; None where it keeps no count, as on a CPU."""
    statistics = jax.local_devices()[0].memory_stats()
    return statistics and statistics.get("peak_bytes_in_use")


def on_cpu() -> bool:
    """Whether programs run on CPUs."""
    return jax.default_backend() == "cpu"


def is_writer() -> bool:
    """True in the one process that writes files."""
    return jax.process_index() == 0


def device_name(placement: str | None = None) -> str:
    """What a run of a placement computes on, such as '8 x cpu'; None: a measurement, which takes one device.

    Products of matrices in another precision than the device's own are named too.
    """
    count = jax.device_count() if placement in _PLACEMENTS and _PLACEMENTS[placement][0] else 1
    precision = jax.config.jax_default_matmul_precision
    return f"{count} x {jax.devices()[0].device_kind}" + (f", {precision} products" if precision else "")
