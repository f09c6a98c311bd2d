"""Size classes: the law of sizes stays, work follows the points, and the class of a batch changes no number."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from rich.console import Console

from configs.intention import sine
from experiments.harness import checks
from experiments.harness.checks import check_programs
from experiments.harness.errors import ConfigError
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.harness.launch import Options, launch
from experiments.harness.placement import build_placement
from experiments.harness.prng import key_of
from experiments.harness.size_classes import Law, SizeClasses, Sizes, choose_classes
from experiments.harness.step import make_program

# Sizes (1, 1), (1, 2), (1, 3), of probability 1/6 each, and (2, 1), of 1/2: 3 points on average.
LAW = Law(min_context=1, min_targets=1, most_targets=(3, 1))
SEEDS = jnp.arange(8, dtype=jnp.uint32)
STEPS = 20


def sized(count):
    """Mean squares of as many numbers as there are points: wrong if a slot that is empty is counted."""

    classes = choose_classes(LAW, count)

    def sample(key, data):
        return jax.random.normal(key, (sum(LAW.slots),))

    def fill(numbers, slots, size):
        there = jnp.concatenate([jnp.arange(held) < n for held, n in zip(slots, size or slots)])
        return jnp.where(there, 1 + numbers[: sum(slots)] ** 2, 0).sum() / there.sum(), there.sum()

    def loss(variables, batch, key):
        value, points = batch
        return (variables["params"]["w"] ** 2 * value).mean(), ({"points": points[0], "spread": jnp.ptp(points)}, {})

    def evaluate(variables, data, key):
        of_task = lambda key, number, slots, size: {"points": sum(size), "slots": jnp.asarray(sum(slots))}
        return classes.map(of_task, key_number, key, 50, 4)

    init = lambda key: {"params": {"w": jax.random.normal(key)}}
    return Experiment(init, sample, loss, evaluate, lambda *_: {}, NO_DATA, sizes=Sizes(classes, fill))


def key_number(key):
    return jax.random.key_data(key)[-1]


@functools.cache
def curve(count, placement, chunks=2):
    """Metrics [STEPS, 8] and the weights after STEPS steps."""
    built = build_placement(placement, seeds=8, batch_size=16)
    options = dict(batch_size=16, chunk_steps=STEPS // chunks, validation_batches=3, evaluation_seed=7)
    program = make_program(sized(count), optax.sgd(0.01), built, **options)
    state, rows = program.init(SEEDS), []
    for _ in range(chunks):
        state, metrics, _ = program.chunk(state, None)
        rows.append(metrics)
    values = program.evaluate(state, None, 0)
    metrics = jax.tree.map(lambda *parts: np.concatenate(parts), *rows)
    return metrics, state.params["w"], program.validate(state, None), values


def test_classes_of_a_law_by_hand():
    np.testing.assert_array_equal(LAW.sizes, [(1, 1), (1, 2), (1, 3), (2, 1)])
    np.testing.assert_allclose(LAW.probability, [1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert LAW.slots == (2, 3)
    assert choose_classes(LAW, 1) == SizeClasses(LAW, ((2, 3),))
    assert choose_classes(LAW, 1).waste == pytest.approx(5 / 3)
    two = choose_classes(LAW, 2)
    assert two.classes == ((2, 1), (2, 3)) and two.waste == pytest.approx((2 / 3 * 3 + 1 / 3 * 5) / 3)
    assert choose_classes(LAW, 9).classes == ((1, 1), (1, 2), (2, 1), (1, 3), (2, 3))  # all sizes, the class of all


def test_classes_of_all_points_in_one_array_by_hand():
    """N + M = 2, 3, 4; where the context costs nothing, the classes follow the points alone."""
    law = LAW.of_points
    np.testing.assert_array_equal(law.sizes, [(1, 2), (1, 3), (1, 4), (2, 3)])
    assert choose_classes(law, 9).classes == ((1, 2), (1, 3), (1, 4), (2, 3), (2, 4))
    free = choose_classes(law, 2, (0.0, 1.0))
    assert free.classes == ((2, 3), (2, 4)) and free.waste == pytest.approx((5 / 6 * 3 + 1 / 6 * 4) / 3)


@pytest.mark.parametrize("law", [Law(1, 1, tuple(range(99, 0, -1))), Law(3, 1, tuple(range(397, 3, -1)))])
def test_no_class_of_all_points_has_more_slots_for_context(law):
    """Their masks would be longer than the points."""
    classes = choose_classes(law.of_points, 24, (0.1, 1.0))
    assert all(context <= points for context, points in classes.classes)
    held = np.asarray(classes.classes)[classes._of_size()]
    assert (held >= law.of_points.sizes).all()


def test_more_classes_waste_less_and_hold_every_size():
    law = Law(3, 2, (59,) * 37)
    chosen = [choose_classes(law, count) for count in (1, 2, 4, 8)]
    assert np.all(np.diff([classes.waste for classes in chosen]) < 0)
    for classes in chosen:
        assert classes.classes[-1] == law.slots
        held = np.asarray(classes.classes)[classes._of_size()]
        assert np.all(held >= law.sizes)


def test_drawn_sizes_have_the_law():
    drawn = np.asarray(jax.jit(jax.vmap(LAW.draw))(jax.random.split(jax.random.key(0), 4000)))
    assert scipy.stats.chisquare(np.bincount(drawn), 4000 * LAW.probability).pvalue > 0.01
    for law in (LAW, LAW.of_points):
        np.testing.assert_array_equal(np.stack(law.size(drawn[:9]), 1), law.sizes[drawn[:9]])


@pytest.mark.parametrize("placement", ["in_turn", "seeds", "data"])
def test_every_placement_draws_the_sizes_of_one_device(placement):
    """Seeds at once, in turn, on eight devices, and batches on eight devices: the same numbers."""
    for ours, single in zip(curve(2, placement), curve(2, "single")):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, single)


def test_the_length_of_a_chunk_changes_no_size():
    """As where a run is resumed: the size depends on the step alone."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), curve(2, "single", 5), curve(2, "single"))


@pytest.mark.parametrize(
    "count, message", [(4, "batches of this task have one size, so expected 0"), (-1, "at least 0")]
)
def test_refusals(count, message, tmp_path):
    config = sine.get_config("model=neural_process,preset=tiny")
    config.train.size_classes = count
    with pytest.raises(ConfigError, match=f"config.train.*{message}"):
        launch(config, tmp_path / "run", Options(), Console(quiet=True))
    assert not list(tmp_path.iterdir())


def test_a_batch_has_one_size_and_all_seeds_share_it():
    metrics = curve(2, "single")[0]
    assert not metrics["spread"].any() and not np.ptp(metrics["points"], axis=1).any()
    expected = [int(sum(LAW.size(LAW.draw(key_of(0, "sizes", step))))) for step in range(STEPS)]
    np.testing.assert_array_equal(metrics["points"][:, 0], expected)
    assert len(set(expected)) == 3  # every size of the law, and not one for all steps


def test_a_step_computes_one_class(line):
    """The switch is no select: under a mapped seed axis, each class stays a branch of its own."""
    experiment = sized(2)
    options = dict(batch_size=16, chunk_steps=5, validation_batches=2, evaluation_seed=7)
    program = make_program(experiment, optax.sgd(0.01), build_placement("single", seeds=8, batch_size=16), **options)
    text = program.chunk.lower(program.init(SEEDS), None).as_text()
    assert text.count("stablehlo.case") == 1
    without = make_program(line, optax.sgd(0.01), build_placement("single", seeds=8, batch_size=16), **options)
    assert "stablehlo.case" not in without.chunk.lower(without.init(SEEDS), line.data["train"]).as_text()


def test_a_class_of_one_size_needs_no_mask():
    seen = []
    classes = choose_classes(LAW, 9)
    jax.eval_shape(
        lambda key: classes.switch(key, lambda slots, size: seen.append((slots, size is None)) or 0), jax.random.key(0)
    )
    full = ((1, 1), (1, 2), (2, 1), (1, 3))
    assert seen == [*((slots, True) for slots in full), ((2, 3), False)]  # the last holds no size alone


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_tasks_keep_their_order_and_their_size(batch_size):
    """Evaluation groups tasks by class; every task has the key and the size that it has alone."""
    key, sizes = jax.random.key(3), choose_classes(LAW, 3)
    of_task = lambda key, drawn, slots, size: (key_number(key), drawn, jnp.stack(size), jnp.asarray(slots))
    numbers, drawn, found, slots = jax.jit(lambda: sizes.map(of_task, key_number, key, 50, batch_size))()
    np.testing.assert_array_equal(numbers, drawn)
    keys = jax.random.split(key, 50)
    np.testing.assert_array_equal(numbers, jax.vmap(key_number)(keys))
    alone = [np.stack(LAW.size(LAW.draw(jax.random.fold_in(one, 0)))) for one in keys]
    np.testing.assert_array_equal(found, alone)
    assert np.all(slots >= found)
    cheapest = {tuple(of) for of in np.asarray(slots)}
    assert len(cheapest) == (1 if batch_size == 64 else 3)  # too few of a class for a batch: the largest class


def test_evaluation_is_the_same_whatever_the_classes():
    values = [curve(count, "single")[3] for count in (1, 2, 4)]
    assert all(np.array_equal(of["points"], values[0]["points"]) for of in values)
    means = [np.mean(of["slots"]) for of in values]
    assert means[0] > means[1] > means[2]


def test_an_evaluation_is_traced_before_a_run_begins_and_not_again(monkeypatch):
    """In every class; what is wrong with it is told then."""
    traced = []

    def evaluate(variables, data, key):
        traced.append(key)
        return sized(2).evaluate(variables, data, key)

    def checked(function):
        built = build_placement("single", seeds=8, batch_size=16)
        options = dict(batch_size=16, chunk_steps=5, validation_batches=2, evaluation_seed=7)
        program = make_program(dataclasses.replace(sized(2), evaluate=function), optax.sgd(0.01), built, **options)
        check_programs(program, np.asarray(SEEDS), NO_DATA)
        return program

    program = checked(evaluate)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(program.init(np.asarray(SEEDS))))
    monkeypatch.setattr(checks, "memory_bytes", lambda: held - 1)
    check_programs(program, np.asarray(SEEDS), NO_DATA, 2)
    with pytest.raises(ConfigError, match="the state of training takes"):
        check_programs(program, np.asarray(SEEDS), NO_DATA)
    monkeypatch.undo()
    assert len(traced) == 1
    program.evaluate(program.init(SEEDS), None, 0)
    assert len(traced) == 1
    with pytest.raises(ConfigError, match="the evaluation: ZeroDivisionError"):
        checked(lambda *given: 1 // 0)
