"""The cores that processes share."""

import concurrent.futures
import os
import subprocess
import sys

import pytest

from experiments.harness.errors import UserError
from experiments.harness.placement import as_many_threads, on_cores, shares_of_cores


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
