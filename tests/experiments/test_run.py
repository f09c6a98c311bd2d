"""The command line as a user meets it: finished, resumed, restarted and refused runs, each in a process of its own."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import kvq_jax
from experiments.harness.outcome import outcome as what_lasts
from experiments.harness.provenance import code_digest
from kvq_jax.models import Points
from tests import processes
from tests.processes import ROOT

TINY = "--config=configs/intention/sine.py:model=neural_process,preset=tiny"
FAST = ("--config.evaluation.counts=(1, 5)", "--config.evaluation.example_counts=(1, 5)")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "experiments.run", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return processes.run("experiments.run", *arguments)


def outcome(folder: Path) -> tuple:
    """What must not depend on how often a run was killed: metrics, losses and parameters, to the bit."""
    latest = ocp.CheckpointManager(folder / "checkpoints" / "latest")
    state = latest.restore(latest.latest_step(), args=ocp.args.Composite(state=ocp.args.StandardRestore()))["state"]
    flat = {str(path): np.asarray(leaf).tobytes() for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    return json.loads((folder / "result.json").read_text())["metrics"], (folder / "metrics.jsonl").read_text(), flat


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "finished"
    done = run(TINY, *FAST, "--workdir", str(folder))
    assert done.returncode == 0, done.stderr
    assert "MSE against number of observations" in done.stdout and str(folder / "figure.png") in done.stdout.replace(
        "\n", ""
    )
    return folder


def test_numbers_do_not_depend_on_the_environment(finished, tmp_path):
    """Nor does an encoding without a sign of plus or minus, or a folder that looks like markup, end a run."""
    folder = tmp_path / "a[/b]" / "run"
    other = dict(JAX_DEFAULT_PRNG_IMPL="rbg", JAX_THREEFRY_PARTITIONABLE="0", JAX_ENABLE_X64="1")
    line = command(TINY, *FAST, "--workdir", str(folder))
    env = os.environ | other | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(line, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"run folder {folder}" in done.stdout and "? " in done.stdout and (folder / "figure.png").exists()
    assert outcome(folder) == outcome(finished)


def test_a_run_leaves_what_it_promises(finished):
    result = json.loads((finished / "result.json").read_text())
    assert set(result["metrics"]) == {f"{phase}/mse@{n}" for phase in ("trained", "untrained") for n in (1, 5)}
    assert set(result["metrics"]["trained/mse@5"]) == {"mean", "sem", "median", "n", "seeds"}
    assert result["metrics"]["trained/mse@5"]["n"] == 20 and len(result["metrics"]["trained/mse@5"]["seeds"]) == 2
    # encoder 2-32-32-16, decoder 17-32-32-32-1
    assert result["parameter_count"] == (2 + 1) * 32 + 33 * 32 + 33 * 16 + 18 * 32 + 2 * 33 * 32 + 33
    assert result["config"]["model"]["name"] == "neural_process" and result["steps"] == 40 and result["seeds"] == [0, 1]
    assert result["versions"]["jax"] and result["device"] and result["wall_time_s"] > 0
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    assert ["validation_loss" in row for row in rows] == [False, True, False, True]
    assert json.loads((finished / "config.json").read_text()) == result["config"]


def test_a_result_tells_its_overrides_and_its_code(finished):
    result = json.loads((finished / "result.json").read_text())
    assert result["overrides"] == {"evaluation.counts": [1, 5], "evaluation.example_counts": [1, 5]}
    assert result["code"] == code_digest("regression") and result["config"]["experiment"] == "regression"


def test_show_prints_the_config_and_runs_nothing(finished, tmp_path):
    workdir = ("--workdir", str(tmp_path / "run"))
    done = run(TINY, *FAST, "--show", *workdir)
    assert done.returncode == 0, done.stderr
    result = json.loads((finished / "result.json").read_text())
    lines = done.stdout.splitlines()
    assert lines[-1] == f"hash: {result['config_hash']}" and "  counts: (1, 5)" in lines and "  steps: 40" in lines
    assert not (tmp_path / "run").exists()


def test_help_lists_every_knob_of_a_config(finished):
    done = run(TINY, *FAST, "--help")
    assert done.returncode == 0 and not done.stderr
    assert all(piece in done.stdout for piece in ("python -m experiments.run", "--restart: ", "Sine curves"))
    knobs = [line.split(" = ")[0].strip() for line in done.stdout.splitlines() if " = " in line]

    def keys(section, where=""):
        for key, value in section.items():
            yield from keys(value, f"{where}{key}.") if isinstance(value, dict) else [f"{where}{key}"]

    config = json.loads((finished / "config.json").read_text())
    assert set(keys(config)) <= set(knobs) and "  train.steps = 40" in done.stdout.splitlines()
    assert "unknown model 'atention'" in run(f"--config={SINE}:model=atention", "--help").stderr
    assert run("--help").returncode == 0


def test_weights_are_evaluated_in_place_of_a_training(finished, tmp_path):
    latest = ocp.CheckpointManager(finished / "checkpoints" / "latest")
    state = latest.restore(latest.latest_step(), args=ocp.args.Composite(state=ocp.args.StandardRestore()))["state"]
    first_seed = jax.tree.map(lambda leaf: leaf[0], state["params"])
    model, variables = kvq_jax.load(finished)
    chex.assert_trees_all_equal(variables["params"], first_seed)
    arguments = (TINY, *FAST, "--config.evaluation.untrained=False", "--workdir", str(tmp_path / "run"))
    done = run(*arguments, "--weights", str(finished))
    assert done.returncode == 0, done.stderr
    kept, ours = (json.loads((folder / "result.json").read_text()) for folder in (finished, tmp_path / "run"))
    assert ours["steps"] == 0 and ours["config"]["weights"] != kept["config_hash"]
    np.testing.assert_allclose(
        ours["metrics"]["trained/mse@5"]["mean"], kept["metrics"]["trained/mse@5"]["seeds"][0], rtol=1e-5
    )
    other = run(*arguments, "--restart", "--weights", str(finished), "--config.model.activate_final=True")
    assert "config.model.activate_final: True is asked for, the weights are of a model with False" in other.stderr
    first_seed["decoder"]["layer_0"]["kernel"] = first_seed["decoder"]["layer_0"]["kernel"][:, :3]
    kvq_jax.save(tmp_path / "weights", model, {"params": first_seed})
    assert "decoder/layer_0/kernel has shape" in run(*arguments, "--restart", f"--weights={tmp_path}/weights").stderr


def test_a_run_is_a_trained_model(finished):
    """What it predicts for the examples of the run is what the run kept of them; each seed has its own weights."""
    examples = np.load(finished / "examples.npz")
    assert examples["counts"].tolist() == [1, 5]
    context = Points(*(jnp.asarray(examples[f"context_{part}"][:, :5]) for part in "xy"))
    found = kvq_jax.load(finished).predict(context, jnp.asarray(examples["target_x"]))
    np.testing.assert_allclose(found, examples["trained/prediction"][:, 1], atol=1e-5)
    seeds = [
        kvq_jax.load(finished, seed).variables["params"]
        for seed in json.loads((finished / "result.json").read_text())["seeds"]
    ]
    assert len(seeds) == 2 and not np.array_equal(*(jax.tree.leaves(params)[0] for params in seeds))


def test_a_second_start_says_so_and_does_nothing(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    done = run(TINY, *FAST, "--workdir", str(finished))
    assert done.returncode == 0 and "already finished" in done.stdout
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}


def test_restart_keeps_the_old_folder_and_repeats_to_the_bit(finished, tmp_path):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(finished), str(copy)], check=True)
    done = run(TINY, *FAST, "--workdir", str(copy), "--restart")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy.old-1" / "result.json").read_bytes() == (finished / "result.json").read_bytes()
    assert outcome(copy) == outcome(finished)
    assert what_lasts(copy) == what_lasts(finished), "as scripts.soak compares runs"


def test_a_killed_run_resumes_to_the_same_bits(finished, tmp_path):
    """SIGKILL at the moments that differ: before a checkpoint, just after one, and while the result is made."""
    folder = tmp_path / "killed"
    marks = [folder / "config.json", folder / "checkpoints" / "latest" / "20", folder / "checkpoints" / "latest" / "40"]
    for mark in marks:
        process = subprocess.Popen(command(TINY, *FAST, "--workdir", str(folder)), cwd=ROOT, stdout=subprocess.DEVNULL)
        limit = time.monotonic() + 120
        while not mark.exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.002)
        assert mark.exists(), mark
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (folder / "result.json").exists()
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 39, "loss"')  # a line cut short, and one past the checkpoint
    done = run(TINY, *FAST, "--workdir", str(folder))
    assert done.returncode == 0, done.stderr
    assert outcome(folder) == outcome(finished)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(tmp_path):
    """A run goes well for 20 steps; then its learning rate, and with it its loss, explodes."""
    explode = (
        "--config.optimizer.schedule=exponential",
        "--config.optimizer.decay_begin=20",
        "--config.optimizer.decay_rate=1e30",
    )
    done = run(TINY, *FAST, *explode, "--workdir", str(tmp_path / "run"))
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert "is not finite at step" in line and "checkpoint before it is kept" in line
    assert 20 < int(line.split("at step ")[1].split(";")[0]) <= 30
    assert (tmp_path / "run" / "checkpoints" / "latest" / "20").is_dir()
    assert not (tmp_path / "run" / "result.json").exists()


SINE, PIXELS = "configs/intention/sine.py", "configs/intention/pixels.py"


@pytest.mark.parametrize(
    "arguments, pieces",
    [
        ([], ["--config is missing"]),
        (
            ["--config=configs/intention/sin.py"],
            ["configs/intention/sin.py", "did you mean 'configs/intention/sine.py'"],
        ),
        ([f"--config={SINE}:model=atention"], ["unknown model 'atention'", "did you mean 'attention'"]),
        ([f"--config={SINE}:preset=fast"], ["unknown preset 'fast'", "tiny"]),
        (
            [f"--config={SINE}:modle=maml"],
            ["sine.py: unknown axis 'modle': did you mean 'model'? known: model, preset"],
        ),
        ([TINY, "--config.train.stepz=3"], ["unknown key of config.train 'stepz': did you mean 'steps'"]),
        ([TINY, "--config.optimizer.lr=1"], ["unknown key of config.optimizer 'lr': did you mean 'learning_rate'?"]),
        ([TINY, "--config.train.steps.x=1"], ["config.train.steps is no section: it has no 'x'"]),
        ([TINY, "--config.train.steps=many"], ["config.train.steps: expected a whole number, got 'many'"]),
        ([TINY, "--config.optimizer.learning_rate=fast"], ["learning_rate: expected a number, got 'fast'"]),
        ([TINY, "--config.axes.preset=paper"], ["config.axes.preset: says what the config is"]),
        ([TINY, "-config.axes.preset=paper"], ["config.axes.preset: says what the config is"]),
        (
            [f"--config={SINE}:preset=tiny", "--config.model.op=softmax"],
            ["config.model.op: expected a section, such as", "got 'softmax'"],
        ),
        ([TINY, "--config.task.targets=5"], ["config.task", "max_context", "5 points"]),
        ([TINY, "--config.model.kernel_init=lecun"], ["config.model", "kernel_init", "lecun_normal"]),
        ([TINY, "--config.train.steps=45"], ["steps=45 is not a multiple of log_every=10"]),
        ([TINY, "--config.evaluation.counts=(1, 500)"], ["config.evaluation.counts", "500"]),
        (
            [TINY, "--config.train.placement=data", "--config.train.batch_size=12"],
            ["12 is not divisible by the 8 devices"],
        ),
        ([TINY, "--wrkdir=x"], ["--wrkdir", "--workdir"]),
        ([f"--config={PIXELS}:preset=tiny,source=archive"], ["--data_dir"]),
        ([f"--config={PIXELS}:preset=tiny,source=archive", "--data_dir=nowhere"], ["nowhere"]),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, pieces, tmp_path):
    workdir = tmp_path / "run"
    done = run(*arguments, "--workdir", str(workdir))
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ") and all(piece in line for piece in pieces), line
    assert not list(tmp_path.iterdir())


def test_a_flag_gives_any_of_the_types_of_a_field():
    section = "{'name': 'intention', 'alpha': 0.2}"
    for axes, changes, shown in (
        ("point_processes/events.py:model=cmhp", dict(chunk="8", cross_op="intention"), ["chunk: 8", "cross_op: int"]),
        ("neural_processes/gp.py:model=canp", dict(self_attention="2"), ["self_attention: 2"]),
        ("neural_processes/gp.py:model=canp", dict(self_attention="false", op=section), ["attention: False", section]),
    ):
        flags = (f"--config.model.{key}={text}" for key, text in changes.items())
        done = run(f"--config=configs/{axes}", *flags, "--show")
        assert done.returncode == 0 and all(piece in done.stdout for piece in shown), (done.stdout, done.stderr)


def test_folders_that_cannot_be_used(finished, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    for workdir, piece in [
        (tmp_path / "file" / "run", "cannot"),
        (tmp_path / "mine", "holds no run"),
        (finished, "belongs to another config"),
    ]:
        done = run(TINY, *FAST, "--config.train.seed=5", "--workdir", str(workdir))
        assert done.returncode == 2, done.stdout
        (line,) = done.stderr.strip().splitlines()
        assert piece in line and str(workdir) in line
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


SPREAD = (TINY, *FAST, "--config.train.placement=data", "--config.train.steps=20")


def pair_of(*arguments: str) -> list[subprocess.Popen]:
    """The two processes of one run, of four devices each."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    environments = [
        os.environ
        | {
            "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=4"),
            "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(index),
        }
        for index in range(2)
    ]
    line = command(*arguments)
    return [subprocess.Popen(line, cwd=ROOT, env=each, stderr=subprocess.PIPE) for each in environments]


def test_two_processes_end_together_where_one_is_refused(tmp_path):
    """The one that writes finds the folder in use, the other waits for it."""
    (tmp_path / "pair").mkdir()
    with (tmp_path / "pair" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first, second = pair_of(*SPREAD, "--workdir", str(tmp_path / "pair"))
        _, told = first.communicate(timeout=120)
        assert first.returncode == 2 and told.decode().startswith("error: another process is running in")
        second.communicate(timeout=60)
        assert second.returncode != 0


def test_two_processes_are_one(tmp_path):
    """The same run spread over two processes of four devices each, and alone: the same losses."""
    for process in pair_of(*SPREAD, "--workdir", str(tmp_path / "pair")):
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told.decode()[-2000:]
    assert run(*SPREAD, "--workdir", str(tmp_path / "alone")).returncode == 0
    curves = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("pair", "alone")
    ]
    np.testing.assert_allclose(*curves, rtol=1e-5)
