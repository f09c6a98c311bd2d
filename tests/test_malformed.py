"""Malformed input of every command: one line, exit code 2, nothing written. All but one in this process."""

import os
import subprocess
import sys

import pytest

from tests import in_process
from tests.processes import ROOT

# Config -> changes of one value each, as flags --config.KEY=VALUE. None of them may be run.
VALUES = {
    "intention/sine.py:model=neural_process": """
        train.steps=0 train.steps=-10 train.steps=45 train.steps=1.5 train.steps=many train.batch_size=0
        train.batch_size=-1 train.seed=-1 train.seed=4294967296 train.seed=4294967295 train.seeds=0
        train.micro_batches=0 train.micro_batches=3 train.size_classes=-1 train.size_classes=4 train.log_every=0
        train.log_every=7
        train.validate_every=0 train.validate_every=15 train.checkpoint_every=0 train.placement=nowhere
        train.select=worst optimizer.name=adm optimizer.learning_rate=0.0 optimizer.learning_rate=-1.0
        optimizer.learning_rate=nan optimizer.learning_rate=inf optimizer.schedule=cosin optimizer.warmup_steps=-1
        optimizer.warmup_steps=100 optimizer.decay_begin=-1 optimizer.decay_steps=0 optimizer.decay_rate=0.0
        optimizer.decay_rate=nan optimizer.momentum=-0.1 optimizer.momentum=1.0 optimizer.momentum=2.0
        optimizer.momentum=nan optimizer.weight_decay=-1.0 optimizer.weight_decay=inf optimizer.clip_norm=-1.0
        optimizer.clip_norm=inf optimizer.clip_norm=nan evaluation.tasks=0 evaluation.tasks=-5 evaluation.batch_size=0
        evaluation.example_tasks=0 evaluation.seed=-1 evaluation.seed=4294967296 evaluation.validation_batches=0
        evaluation.counts=() evaluation.counts=(5,1) evaluation.counts=(1,1) evaluation.counts=(-1,)
        evaluation.counts=(0.5,) evaluation.counts=('a',) evaluation.counts=(1,500) evaluation.example_counts=(-1,)
        evaluation.example_counts=(9,3) evaluation.example_counts=(500,) task.min_context=-1 task.min_context=30
        task.max_context=0 task.max_context=500 task.targets=0 task.targets=5 task.amplitude=(3.0,1.0)
        task.amplitude=(1.0,) task.amplitude=(1.0,2.0,3.0) task.amplitude=(1e999,1e999) task.phase=(3.0,0.0)
        task.position=('a','b') task.position=() task.name=sin model.encoder_features=(0,) model.encoder_features=(-1,)
        model.encoder_features=(1.5,) model.encoder_features=(1,'a') model.decoder_features=(0,)
        model.decoder_features=(8,1000000000000) model.fourier_levels=-1 model.activate_final=2
        model.kernel_init=lecun model.name=attention name=../../x axes.preset=paper experiment=x.y data=3 model=3
        """,
    "intention/sine.py:model=attention": """
        model.num_heads=0 model.head_features=0 model.key_features=(0,) model.value_features=(-3,) model.scaling=hed
        model.op=softmix model.op=3
        """,
    "intention/sine.py:model=intention": """
        model.op.alpha=nan model.op.alpha=inf model.op.alpha_kind=plus model.op.name=linear model.value=mine
        """,
    "intention/sine.py:model=maml": "model.inner_steps=-1 model.inner_steps=100000 model.inner_rate=-1.0",
    "neural_processes/gp.py:model=cmanp": """
        model.num_heads=0 model.num_heads=-4 model.num_heads=5 model.num_latents=0 model.num_latents=-1
        model.num_block_latents=0 model.num_layers=-1 model.num_layers=100000 model.features=0 model.hidden=0
        model.embed_depth=-1 model.dim_y=0 model.std_floor=-1.0 model.std_floor=nan task.kernel=rbg
        task.length_scale=(0.0,1.0) task.length_scale=(0.6,0.1) task.length_scale=(0.1,) task.scale=(-1.0,1.0)
        task.period=(0.5,0.1) task.noise=0.0 task.noise=-1.0 task.noise=inf task.t_scale=(-1.0,0.0)
        task.t_freedom=0.0 task.position=(2.0,-2.0) task.min_context=-1 task.max_context=100 task.min_targets=0
        task.max_points=0 evaluation.kernels=() evaluation.kernels=('rbg',) evaluation.example_counts=()
        evaluation.example_counts=(5,1) evaluation.example_points=0 evaluation.tasks=0
        """,
    "neural_processes/gp.py:model=cmanp_and": """
        model.block_size=0 model.block_size=-1 model.rank=0 model.jitter=-1.0 model.std_layers=-1
        """,
    "neural_processes/gp.py:model=np": """
        model.train_samples=0 model.eval_samples=0 model.latent=0 model.latent_floor=-1.0 model.pre_depth=1000000
        """,
    "neural_processes/wheel.py:model=cnp": """
        task.drop=2.0 task.small_std=-1.0 task.context=0 task.targets=0 evaluation.rounds=0 evaluation.last=0
        evaluation.last=10000 evaluation.deltas=(2.0,) evaluation.exploration=-1.0 evaluation.stages=0
        evaluation.seeds=0 evaluation.wheels=mine loss=mine
        """,
    "neural_processes/complexity.py:what=memory": "measurement.turns=0 measurement.chunk=0 measurement.budget_s=-1.0",
    "intention/anomaly.py:model=transformer": """
        model.dropout=1.5 model.dropout=1.0 model.input_dropout=-0.1 model.num_layers=-1 model.features=0
        task.set_size=2 data.validation_fraction=0.0 data.validation_fraction=1.0 data.validation_fraction=nan
        data.seed=-1 features.dimension=0 evaluation.example_sets=0
        """,
    "set_transformer/clustering.py:model=rff_mean": """
        task.std=0.0 task.clusters=0 task.dimension=0 task.min_size=0 task.min_size=100000 task.position=(4.0,-4.0)
        model.dim=0 model.num_outputs=0 model.head=(0,) evaluation.em_starts=0 evaluation.em_tasks=0
        evaluation.em_tasks=1000000
        """,
    "set_transformer/max.py:model=rff_mean": "task.low=200.0 task.low=nan task.max_size=0",
    "intention/kabsch.py:model=intention": """
        task.dimension=4 task.pairs=0 task.queries=0 task.point_std=0.0 task.angle=(3.0,1.0) task.angle=(1.0,)
        task.scale=(0.0,1.0) task.noise_std=-1.0 evaluation.cloud_points=0
        """,
    "intention/policy_distillation.py:model=intention": """
        task.observations=0 task.target_std=0.0 task.place_std=-1.0 task.linearised_alpha=0.0
        """,
    "intention/scaling.py:model=intention": "task.points=0 task.dimension=0 model.latent=0 evaluation.threshold=0.0",
    "intention/untrained.py:": """
        measure.points=0 measure.alpha=-1.0 measure.draws=0 measure.seed=-1 measure.key_covariance=((1.0,),(1.0,))
        measure.ops=(3,) measure.weight_variance=-1.0
        """,
    "kvq/space.py:": "measure.grid=0 measure.points=0 measure.bandwidth=0.0 measure.seed=4294967296",
}
# A config file -> what the line says of it, its place in it first.
FILES = {
    "def get_config(:\n": "1: SyntaxError",
    "\x00\x01": "SyntaxError",
    "\n\nimport nothing_here\n": "3: ModuleNotFoundError: No module named 'nothing_here'",
    "x = 1\n": "has no get_config()",
    "get_config = 3\n": "has no get_config()",
    "def get_config(arg=None):\n    return None\n": "get_config() returns a NoneType, expected a ConfigDict",
    "import sys\nsys.exit(3)\n": "2: SystemExit: 3",
    "def get_config(arg=None):\n    return 1 / 0\n": "2: ZeroDivisionError",
    "def get_config():\n    return None\n": "TypeError",
    "import configs.common as c\ndef get_config(arg=None):\n    return c.edited({'axes': {}}, {'': {'b': 1}})\n": "'b'",
}
SINE = "--config=configs/intention/sine.py:preset=tiny"
LONG = "x" * 300
# A command and its arguments -> what the line says.
COMMANDS = {
    ("experiments.run",): "--config is missing",
    ("experiments.run", "--config=configs/intention/sin.py"): "did you mean 'configs/intention/sine.py'",
    ("experiments.run", "-config=configs/intention/sin.py"): "did you mean 'configs/intention/sine.py'",
    ("experiments.run", "--config="): "unknown config file",
    ("experiments.run", "--config=configs"): "unknown config file 'configs'",
    ("experiments.run", f"--config={LONG}.py"): "File name too long",
    ("experiments.run", f"{SINE},modle=mlp"): "unknown axis 'modle': did you mean 'model'?",
    ("experiments.run", f"{SINE},model=mpl"): "unknown model 'mpl'",
    ("experiments.run", f"{SINE},model"): "unknown model ''",
    ("experiments.run", f"{SINE},,=,"): "unknown axis ''",
    ("experiments.run", SINE, "more"): "unexpected argument 'more'",
    ("experiments.run", SINE, "--wrkdir=x"): "did you mean '--workdir'",
    ("experiments.run", SINE, "--restart=perhaps"): "restart",
    ("experiments.run", SINE, "--weights=nowhere"): "nowhere holds no trained model",
    ("experiments.run", SINE, f"--workdir={LONG}"): "File name too long",
    ("experiments.run", "--config=configs/intention/pixels.py:preset=tiny,source=archive"): "--data_dir",
    ("experiments.run", "--help", "--config=nothing.py"): "unknown config file",
    ("scripts.sweep",): "--config is missing",
    ("scripts.sweep", SINE, "--cells=sweeep"): "has no sweeep()",
    ("scripts.sweep", SINE, "--cells=EDITS"): "has no EDITS()",
    ("scripts.sweep", SINE, "--workers=0"): "workers",
    ("scripts.sweep", SINE, "--workers=many"): "workers",
    ("scripts.sweep", SINE, "--workers=100000"): "100000 workers",
    ("scripts.sweep", SINE, "--config.train.stepz=3"): "stepz",
    ("scripts.sweep", SINE, "--config.axes.preset=paper"): "config.axes.preset",
    ("scripts.sweep", f"{SINE},model=mpl"): "unknown model 'mpl'",
    ("scripts.tables", "--table=intention/figure7"): "unknown --table",
    ("scripts.tables", "--table=../figure7"): "unknown --table",
    ("scripts.tables", "--table=intention/figure7_sine", "--format=pdf", "--results=results"): "unknown --format",
    ("scripts.tables", "--table=intention/figure7_sine", "--results=nowhere"): "no result",
    ("scripts.figures", "--figure=intention/figure77"): "did you mean 'intention/figure7'",
    ("scripts.figures", "--figure=intention/figure3", "--results=nowhere"): "there are none",
    ("scripts.figures", "--figures=x"): "unknown flag",
    ("scripts.runs", "--results=nowhere"): "no result below nowhere",
    ("scripts.runs", "--results=results", "--sort=size"): "unknown --sort",
    ("scripts.runs", "--results=results", "--format=xml"): "unknown --format",
    ("scripts.runs", "--results=results", "--metric=mse"): "unknown --metric",
    ("scripts.runs", "--results=results", "--name=nobody"): "with 'nobody' in its name",
    ("scripts.collect", "--runs=nowhere"): "no result of quick or paper below nowhere",
    ("scripts.collect", "--run=nowhere"): "unknown flag",
    ("scripts.import_weights",): "--model is missing",
    ("scripts.import_weights", "--model=cmanp"): "--weights is missing",
    ("scripts.import_weights", "--model=cmanp", "--weights=x.pt", "--out=experiments"): "is not empty",
    ("scripts.import_weights", "--model=cmanp", "--weights=nowhere.pt", "--out=new"): "nowhere.pt",
    ("scripts.import_weights", "--model=cmanp", "--weights=README.md", "--out=new"): "unknown kind of file '.md'",
    ("scripts.benchmark",): "name a benchmark",
    ("scripts.benchmark", "opps"): "did you mean 'ops'",
    ("scripts.prepare_data",): "unknown command ''",
    ("scripts.prepare_data", "embd"): "did you mean 'embed'",
    ("scripts.prepare_data", "embed"): "--weights is missing",
    ("scripts.prepare_data", "embed", "--weights=x.npz", "--out=x.txt"): "expected a new file .npz",
    ("scripts.prepare_data", "embed", "--batch_size=0"): "batch_size",
}
ENVIRONMENTS = [
    ({"JAX_COORDINATOR_ADDRESS": "localhost:1"}, "JAX_NUM_PROCESSES: with JAX_COORDINATOR_ADDRESS expected a number"),
    (
        {"JAX_COORDINATOR_ADDRESS": "localhost:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "one"},
        "JAX_PROCESS_ID: with JAX_COORDINATOR_ADDRESS expected a number, got 'one'",
    ),
    ({"JAX_COORDINATOR_ADDRESS": "nowhere"}, "JAX_COORDINATOR_ADDRESS: expected host:port, got 'nowhere'"),
    (
        {"JAX_COORDINATOR_ADDRESS": "localhost:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"},
        "JAX_PROCESS_ID: expected less than JAX_NUM_PROCESSES=2, got 2",
    ),
]


def fault(folder, module: str, *arguments, said: str = "", **environment) -> str | None:
    """What is wrong with the answer of a command to bad input, None where it is as promised."""
    done = in_process.run(module, *arguments, **environment)
    lines = done.stderr.splitlines()
    if done.returncode != 2 or len(lines) != 1 or not lines[0].startswith("error: ") or said not in lines[0]:
        return f"{' '.join(map(str, arguments))[:200]}: exit code {done.returncode}, said {done.stderr[-500:]!r}"
    if len(lines[0]) > 1100 or "Traceback" in done.stdout + done.stderr:
        return f"{arguments}: says too much: {done.stderr[:500]!r}"
    written = sorted(map(str, folder.iterdir()))
    return f"{arguments}: wrote {written}" if written else None


@pytest.mark.parametrize("config", VALUES)
def test_no_config_runs_with_a_value_that_cannot_be(config, tmp_path):
    flag = f"--config=configs/{config}{'' if config.endswith(':') else ','}preset=tiny"
    faults = []
    for change in VALUES[config].split():
        section = "config." + change.partition("=")[0].partition(".")[0]
        arguments = (flag, f"--config.{change}", f"--workdir={tmp_path / 'run'}")
        faults.append(fault(tmp_path, "experiments.run", *arguments, said=section))
    assert not list(filter(None, faults))


@pytest.mark.parametrize("text, said", FILES.items())
def test_config_files_that_cannot_be_read(text, said, tmp_path):
    file = tmp_path / "config.py"
    file.write_text(text)
    for module in ("experiments.run", "scripts.sweep"):
        (tmp_path / "out").mkdir(exist_ok=True)
        found = fault(tmp_path / "out", module, f"--config={file}", f"--workdir={tmp_path / 'out' / 'run'}", said=said)
        assert found is None


def test_every_command_refuses_bad_arguments_in_a_line(tmp_path):
    faults = [fault(tmp_path, *command, said=said) for command, said in COMMANDS.items()]
    assert not list(filter(None, faults))
    assert sum(len(changes.split()) for changes in VALUES.values()) + len(COMMANDS) + 2 * len(FILES) > 250


@pytest.mark.parametrize("environment, said", ENVIRONMENTS)
def test_an_environment_that_is_half_set(environment, said, tmp_path):
    assert fault(tmp_path, "experiments.run", SINE, f"--workdir={tmp_path / 'run'}", said=said, **environment) is None


def test_a_platform_that_is_not_there(tmp_path):
    """JAX looks for it when it is first asked for a device: a process that has one cannot tell."""
    command = [sys.executable, "-m", "scripts.sweep", SINE, f"--workdir={tmp_path / 'runs'}"]
    environment = os.environ | {"JAX_PLATFORMS": "moon"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: JAX_PLATFORMS: Unable to initialize backend 'moon'")
    assert not list(tmp_path.iterdir()) and "run: " not in done.stdout
