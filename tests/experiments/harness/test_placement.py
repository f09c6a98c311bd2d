"""The devices of a run, and the cores that processes share."""

import concurrent.futures
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.harness import checks
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.placement import (
    as_many_threads,
    build_placement,
    device_name,
    initialize_hosts,
    on_cores,
    shares_of_cores,
)


@pytest.mark.parametrize("name", ["single", "in_turn"])
def test_one_device_is_of_one_process(name, monkeypatch):
    assert build_placement(name, seeds=3, batch_size=2).shares_of_seeds == 1
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(
        ConfigError, match=f"placement: '{name}' takes one device, 2 processes .*: expected data or seeds"
    ):
        build_placement(name, seeds=3, batch_size=2)


def test_a_run_names_the_devices_that_it_uses(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    assert [device_name(name).split()[0] for name in ("single", "in_turn", "data", "seeds", None)] == list("11881")


def test_a_run_names_the_precision_of_its_products():
    assert device_name() == "1 x cpu"
    with jax.default_matmul_precision("bfloat16"):
        assert device_name() == "1 x cpu, bfloat16 products"


def test_a_platform_without_its_plug_in_is_bad_input(monkeypatch):
    """JAX_PLATFORMS=cuda where JAX came without CUDA: there an assertion of JAX fails."""

    def devices():
        raise AssertionError

    monkeypatch.setattr(jax, "devices", devices)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(UserError, match="JAX_PLATFORMS=cuda: JAX finds no such device here"):
        initialize_hosts()


def test_what_becomes_an_output_is_counted_once(monkeypatch):
    """Two numbers that are given away, and nothing else, are 4 MB."""
    program = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)
    compiled = program.lower(np.zeros((2, 500_000), np.float32)).compile()
    monkeypatch.setattr(checks, "memory_bytes", lambda: 5_000_000)
    checks.check_memory(compiled, "config.train: a step")
    monkeypatch.setattr(checks, "memory_bytes", lambda: 3_900_000)
    with pytest.raises(ConfigError, match="config.train: a step takes 0.0 GiB of memory"):
        checks.check_memory(compiled, "config.train: a step")


def test_every_core_goes_to_one_worker():
    (everything,) = shares_of_cores(1)
    for workers in range(1, len(everything) + 1):
        shares = shares_of_cores(workers)
        assert len(shares) == workers and set.union(*shares) == everything
        assert sum(map(len, shares)) == len(everything) and max(map(len, shares)) - min(map(len, shares)) <= 1
    assert shares_of_cores() == shares_of_cores(len(everything))
    with pytest.raises(UserError, match="cores"):
        shares_of_cores(len(everything) + 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot hold a process on some cores")
def test_a_process_stays_on_the_cores_of_its_thread():
    before = os.sched_getaffinity(0)
    share = shares_of_cores()[-1]
    with on_cores(share):
        command = [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"]
        assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == str(share)
    assert os.sched_getaffinity(0) == before


def test_a_process_whose_run_does_not_come_says_so_in_a_line():
    """Where nobody listens, and JAX would end the process by abort() after a while."""
    here = {"JAX_COORDINATOR_ADDRESS": "localhost:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    code = """
from experiments import run
from experiments.harness import placement
placement._JOIN_S = 1
raise SystemExit(run.main(["run", "--config=configs/intention/sine.py:model=attention,preset=tiny"]))"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | here, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr == "error: JAX_COORDINATOR_ADDRESS=localhost:1: not all of its processes came within 1 s\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot hold a process on some cores")
def test_a_thread_on_a_share_of_the_cores_asks_for_all_threads(monkeypatch):
    (everything,) = shares_of_cores(1)
    one_core = on_cores({max(everything)})
    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        monkeypatch.delenv("PJRT_NPROC", raising=False)
        assert worker.submit(one_core(as_many_threads)).result() == {"PJRT_NPROC": str(len(everything))}
        monkeypatch.setenv("PJRT_NPROC", "7")
        assert worker.submit(as_many_threads).result() == {"PJRT_NPROC": "7"}
