"""Jobs of a cluster: submitit's local one, and a SLURM where there is one (SLURM_CONF, squeue)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.harness.errors import UserError
from scripts.sweeps import cluster
from scripts.sweeps.processes import Broken, result_of
from tests.processes import ROOT

pytest.importorskip("submitit")
TINY = ("--config=configs/intention/scaling.py:model=mlp,dimension=2,size=2,preset=tiny",)
SPREAD = (*TINY, "--config.train.placement=data", "--config.train.batch_size=64")
needs_slurm = pytest.mark.skipif(
    shutil.which("squeue") is None or subprocess.run("squeue", capture_output=True).returncode != 0,
    reason="no SLURM answers here: set SLURM_CONF",
)


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> cluster.Cluster:
    return cluster.Cluster.of("local", tmp_path_factory.mktemp("jobs"))


def test_a_job_returns_what_its_run_wrote(local, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path, watched = tmp_path / "run", []
    content = local.run([*TINY, f"--workdir={path}"], path, lambda: watched.append(1))
    assert content == json.loads((path / "result.json").read_text()) and content["steps"] == 20 and watched


def test_what_a_watch_raises_cancels_the_job(local, tmp_path, monkeypatch, request):
    """Also where jobs ignore Ctrl-C, as do those of a sweep that a shell runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    monkeypatch.chdir(ROOT)
    submitted = []
    submit = local.executor.submit
    monkeypatch.setattr(local.executor, "submit", lambda job: submitted.append(submit(job)) or submitted[0])

    def pruned():
        raise RuntimeError("pruned")

    with pytest.raises(RuntimeError, match="pruned"):
        local.run([*TINY, f"--workdir={tmp_path / 'run'}"], tmp_path / "run", pruned)
    assert submitted[0]._process.wait(60) is not None and not (tmp_path / "run" / "result.json").exists()


def test_a_job_is_requeued_so_often_and_no_more_and_tells_how_its_run_ended(monkeypatch):
    job = cluster.Job(["--config=nothing.py"], requeues=2)
    assert job.checkpoint().function is job
    monkeypatch.setenv("SLURM_RESTART_COUNT", "3")
    assert job() == (Broken.exit_code, "the job was requeued more than 2 times")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    code, said = job()
    assert code == UserError.exit_code and "nothing.py" in said
    with pytest.raises(UserError, match="nothing.py"):
        result_of(code, said, Path("run"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("CLUSTER, PARAMETERS, REQUEUES = 'moon', dict(timeout_min=1), 0", "moon"),
        ("CLUSTER, PARAMETERS, REQUEUES = 'local', dict(timeout_min=1, local_partition='x'), 0", "partition"),
        ("CLUSTER, PARAMETERS, REQUEUES = 'local', dict(timeout_min='long'), 0", "timeout_min"),
        ("CLUSTER, PARAMETERS, REQUEUES = 'local', dict(), 0", "needs timeout_min"),
        ("CLUSTER = 'local'", "does not define PARAMETERS"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(text, message, tmp_path):
    (tmp_path / "cluster.py").write_text(text)
    with pytest.raises(UserError, match=message) as raised:
        cluster.Cluster.of(str(tmp_path / "cluster.py"), tmp_path / "jobs")
    assert len(str(raised.value).splitlines()) == 1


@needs_slurm
def test_two_tasks_of_slurm_are_one_run(tmp_path):
    """The same run in two tasks of a device each, and alone: the same losses."""
    environment = os.environ | {"XLA_FLAGS": os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")}
    command = [sys.executable, "-m", "experiments.run", *SPREAD]
    for name, begin in (("pair", ["srun", "--ntasks=2", "--overcommit"]), ("alone", [])):
        workdir = f"--workdir={tmp_path / name}"
        done = subprocess.run([*begin, *command, workdir], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("pair", "alone")]
    assert results[0]["device"].startswith("2 x ") and results[1]["device"].startswith("1 x ")
    curves = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("pair", "alone")
    ]
    np.testing.assert_allclose(*curves, rtol=1e-5)
