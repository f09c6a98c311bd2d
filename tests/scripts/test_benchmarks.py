"""Benchmarks on small sizes: what they return, not what they measure, except the accuracy, which depends on no load."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.intention import anomaly, few_shot_classification, pixels, sine
from experiments.harness.errors import UserError
from experiments.harness.placement import shares_of_cores
from experiments.harness.programs import operations
from scripts.benchmarks import (
    accuracy,
    evaluation,
    events,
    experiments,
    harness,
    images,
    ops,
    published,
    sets,
    training,
)
from scripts.benchmarks import np as neural_processes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_grow_no_faster_than_the_condition_number(dtype):
    conditions = (1e0, 1e3, 1e6)
    result = accuracy.errors(dtype, conditions, size=8, draws=1)
    epsilon = np.finfo(dtype).eps
    for name, row in result.items():
        for condition, error in zip(conditions, row, strict=True):
            assert error <= 100 * epsilon * condition, (name, condition)  # not NaN
        assert dtype == np.float32 or row[0] < 1e-12
    assert result["softmax"][2] < 100 * epsilon  # solves no system
    lines = accuracy.table(result, dtype, conditions).splitlines()
    assert len(lines) == 2 + len(accuracy.ROWS) and len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("condition", [1e2, 1e8])
def test_problems_have_their_condition_number(kernel, condition):
    drawn = accuracy.problem(condition, kernel, size=8, seed=0)
    gram = accuracy._gaussian(drawn.key, drawn.key, drawn.gamma) if kernel else drawn.key.T @ drawn.key
    np.testing.assert_allclose(np.linalg.cond(gram + drawn.alpha * np.eye(len(gram))), condition, rtol=0.01)


def test_the_grids_of_operators(capsys):
    few = dict(few_points=(4, 6), few_widths=(3,), set_points=(5,))
    cells = ops.main(points=(4, 8), widths=(4, 8), **few, turns=1, budget_s=0)
    assert [(c.n, c.d) for c in cells] == 2 * [(4, 4), (4, 8), (8, 4), (8, 8)] + 4 * [(4, 3), (6, 3)] + 2 * [(5, 3)]
    assert [list(c.ratio) for c in cells[7:11:3]] == [
        ["intention", "plain"],
        ["constrained_intention", "kernel_intention"],
    ]
    assert all(ratio > 0 for c in cells for ratio in c.ratio.values())
    printed = capsys.readouterr().out
    assert printed.count("median") == printed.count("N \\ d") == 12 and printed.count("8 heads") == 4


def test_labels_for_qda():
    query, key, value = ops.labelled(10, 3, (2,))
    assert query.shape == key.shape == (2, 10, 3) and (value.sum(-2) == 2).all() and (value.sum(-1) == 1).all()


def test_neural_processes(capsys, monkeypatch):
    monkeypatch.setattr(neural_processes, "_STEPS", 2)
    monkeypatch.setattr(neural_processes, "_TURNS", 2)
    monkeypatch.setattr(neural_processes, "_LENGTHS", (20, 100))
    monkeypatch.setattr(neural_processes, "_CHUNK", 10)
    monkeypatch.setattr(neural_processes, "_SEEN", (10, 100))
    monkeypatch.setattr(neural_processes, "_PLAYERS", {"cnp": 5})
    monkeypatch.setattr(neural_processes, "shares_of_cores", lambda: shares_of_cores(1))  # one process is enough
    monkeypatch.setattr(neural_processes, "_LONG", ("cnp",))
    monkeypatch.setattr(neural_processes, "_LONG_CONTEXT", 100)
    monkeypatch.setattr(neural_processes, "_LONG_TARGETS", 5000)
    neural_processes.main(models=("cnp",), preset="tiny", budget_s=0)
    printed = capsys.readouterr().out
    assert [printed.count(what) for what in ("of rate", "points/s", "update by", "rounds/s")] == [2, 2, 1, 1]
    assert "100 context points in" in printed and "6144 targets in" in printed
    assert "no state of constant size" in neural_processes._update_line("lbanp", "tiny", 0)
    monkeypatch.setattr(neural_processes, "_PLAYERS", {"canp": 5})
    assert "times those from a buffer" in neural_processes._bandit_line("canp", "tiny")


def test_beside_the_released_operations(capsys, monkeypatch):
    pytest.importorskip("torch", reason="no PyTorch: pip install '.[released]'")
    monkeypatch.setattr(published, "shares_of_cores", lambda: shares_of_cores(1))
    published.main(models=("cnp",), preset="tiny", budget_s=0.01)
    line = capsys.readouterr().out.splitlines()[-1]
    ours, least, released, most, times = (float(line.split()[place].strip("()")) for place in (1, 3, 2, 5, 6))
    assert least <= released <= most and times == pytest.approx(released / ours, rel=0.5)
    with pytest.raises(UserError, match="intention_anp has no released code"):
        published.main(models=("intention_anp",))


def test_without_pytorch_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(published.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="needs PyTorch"):
        published.main()


def test_image_completion(capsys, monkeypatch):
    monkeypatch.setattr(images, "_CHUNK", 16)
    images.main(data=("digits",), models=("cnp",), sides=(8, 16), preset="tiny", budget_s=0)
    printed = capsys.readouterr().out
    assert "batch 8, waste" in printed and "% of it" in printed and printed.count("MiB") == 2
    assert "16x16 pixels in chunks of 16" in printed


def test_evaluation_beside_training(capsys):
    evaluation.main(models=("cnp",), preset="tiny")
    _, step, function, steps, functions, share = capsys.readouterr().out.splitlines()[-1].split()
    assert (steps, functions) == ("20", "8") and float(step) > 0 and float(function) > 0
    assert float(share.removesuffix("%")) == pytest.approx(100 * 8 * float(function) / (20 * float(step)), rel=0.5)


def test_sets(capsys, monkeypatch):
    monkeypatch.setattr(sets, "_BLOCKS", {"PMA (4)": sets._BLOCKS["PMA (4)"]})
    sets.main(points=(30,), width=8, sizes=("small",), preset="tiny", budget_s=0)
    *_, flax, pma, clustered = capsys.readouterr().out.splitlines()
    n, rate, flops, ratio = pma.removeprefix("PMA (4)").split()
    assert n == "30" and float(rate) > 0 and float(flops) > 0 and float(ratio) > 0
    assert flax.split()[-1] == "1.000" and "clustering 50 points, 4 clusters" in clustered and "from 1," in clustered


def test_events(capsys, monkeypatch):
    monkeypatch.setattr(events, "_MODELS", ("thp_mixture", "gru"))
    events.main(lengths=(4,), preset="tiny", budget_s=0)
    *_, thp, gru = capsys.readouterr().out.splitlines()
    of_thp, of_gru = (list(map(float, line.split()[-4:])) for line in (thp, gru))
    assert of_thp[1] == of_thp[3] == 1 and min(of_gru) > 0


def test_operations_of_a_block_grow_with_its_set_or_with_the_square():
    for name, block in sets._BLOCKS.items():
        small, large = (operations(sets.step_program(block(8), n, 8)) for n in (400, 800))
        assert large / small == pytest.approx(4 if name == "SAB" else 2, rel=0.1)


def test_what_does_not_fit_in_memory_is_said(monkeypatch):
    monkeypatch.setattr(sets, "_BLOCKS", {})
    monkeypatch.setattr(sets, "free_memory", lambda: 0)
    assert "does not fit in memory" in sets.block_lines(10, 8, 0)[0]


def test_the_first_step_of_a_config():
    assert harness.first_step("configs.intention.sine", "model=neural_process,preset=tiny") is None
    assert [module.get_config(arg).axes.preset for module, arg in harness._STARTS] == 3 * ["quick"]


def test_a_line_says_what_was_measured(capsys, monkeypatch):
    experiments.main(files=((sine, ""),), presets=("tiny",), budget_s=0)
    rate, share, *note = capsys.readouterr().out.splitlines()[-1].split()[3:]
    assert float(rate) > 0 and 0 < int(share.removesuffix("%")) < 100 and note == ["(of", "one", "chunk)"]
    monkeypatch.setattr(experiments, "free_memory", lambda: 0)
    experiments.main(files=((sine, ""),), presets=("tiny",), budget_s=0)
    assert "does not fit in memory: 0.0 GB" in capsys.readouterr().out


@pytest.mark.parametrize(
    "file, arg, shapes",
    [
        (pixels, "source=archive", {"context.x": (264, 2), "target.y": (784, 1)}),
        (few_shot_classification, "source=mini_imagenet", {"context_image": (25, 28, 28, 3), "target_label": (75, 5)}),
        (anomaly, "source=archive,preset=paper", {"feature": (10, 512)}),
        (anomaly, "source=archive", {"feature": (10, 128)}),
    ],
)
def test_noise_has_the_shapes_of_the_data(file, arg, shapes):
    made = experiments.on_noise(file.get_config(arg))
    task = jax.eval_shape(made.sample, jax.random.key(0), made.data["train"])
    assert {name: operator.attrgetter(name)(task).shape for name in shapes} == shapes


@pytest.mark.parametrize("function, least, most", [(lambda x: x @ x, 0, 0.2), (jnp.sin, 1, 1)])
def test_share_of_time_outside_products(function, least, most):
    x = jnp.ones((500, 500))
    compiled = jax.jit(function).lower(x).compile()
    assert least <= experiments.outside_products(training.Trainer(lambda: compiled(x), compiled)) <= most


@pytest.mark.parametrize(
    "function, found", [(lambda x: jnp.sin(x @ x) + 1, True), (lambda x: jnp.sin(x) + x.sum(0), False)]
)
def test_operations_with_a_product(function, found):
    hlo = jax.jit(function).lower(jnp.ones((64, 64))).compile().as_text()
    assert bool(experiments._products(hlo)) == found
