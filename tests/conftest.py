"""Eight virtual CPU devices, programs that are quick to compile, and a cache of them, set before JAX starts."""

import contextlib
import ctypes
import gc
import os
import pathlib
import tempfile

# Most programs of the tests run once or twice: plain code that compiles three times as fast is the better bargain.
FLAGS = (
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_experimental_ynn_fusion_type=",
    "--xla_disable_hlo_passes=hlo-verifier",  # XLA's check of itself after each of its passes
)
os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *FLAGS))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / "kvq_jax_test_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")  # to write the many small ones costs more
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads fight with those of the second test process

import jax  # noqa: E402
import pytest  # noqa: E402

gc.set_threshold(100_000)  # a process that keeps many traced programs spends a fifth of its time on looking at them


@pytest.fixture(autouse=True, scope="module")
def let_programs_go():
    """After a file: of thousands of living programs each new one takes longer to compile, and they take gigabytes.

    glibc keeps what is freed until it is asked for it.
    """
    yield
    jax.clear_caches()
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture
def x64():
    """Runs a test with float64 enabled, for comparison with float64 references."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def data_dir():
    """The folder of real data sets named by KVQ_JAX_DATA_DIR, or ../shared/data; skips where neither exists."""
    path = pathlib.Path(os.environ.get("KVQ_JAX_DATA_DIR", pathlib.Path(__file__).parents[2] / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real data at {path.name}: set KVQ_JAX_DATA_DIR to the folder of the original archives")
    return path


@pytest.fixture
def parity_dir():
    """The folder of published parameters, inputs and outputs named by KVQ_JAX_PARITY_DIR, or ../shared/parity.

    Skips where neither exists.
    """
    path = pathlib.Path(os.environ.get("KVQ_JAX_PARITY_DIR", pathlib.Path(__file__).parents[2] / "shared" / "parity"))
    if not path.is_dir():
        pytest.skip(f"no published tensors at {path.name}: set KVQ_JAX_PARITY_DIR to the folder of the parity fixtures")
    return path
