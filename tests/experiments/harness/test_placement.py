"""The cores that processes share."""

import os
import subprocess
import sys

import pytest

from experiments.harness.errors import UserError
from experiments.harness.placement import on_cores, shares_of_cores


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
