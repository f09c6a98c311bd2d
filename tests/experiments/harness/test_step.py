"""One step function: chunks, seeds and devices give the numbers of a plain loop."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.harness.errors import ConfigError
from experiments.harness.placement import build_placement
from experiments.harness.prng import PURPOSES, key_of
from experiments.harness.step import make_init, make_program, make_step, norm, sample_batch

OPTIMIZER = optax.sgd(0.1)
SEEDS = jnp.arange(8, dtype=jnp.uint32)


def program(experiment, placement="single", seeds=8, chunk_steps=5, micro_batches=1, evaluation_seed=7):
    parts = dict(batch_size=16, micro_batches=micro_batches)
    return make_program(
        experiment,
        OPTIMIZER,
        build_placement(placement, seeds=seeds, **parts),
        **parts,
        chunk_steps=chunk_steps,
        validation_batches=2,
        evaluation_seed=evaluation_seed,
    )


def curve(experiment, placement="single", chunk_steps=5, micro_batches=1):
    """Losses [10, 8] of ten steps and the parameters they end with."""
    made = program(experiment, placement, chunk_steps=chunk_steps, micro_batches=micro_batches)
    state, losses = made.init(SEEDS), []
    for _ in range(10 // chunk_steps):
        state, metrics, _ = made.chunk(state, experiment.data["train"])
        losses.append(metrics["loss"])
    return np.concatenate(losses), np.asarray(state.params["w"])


def test_one_step_by_hand(line):
    state = make_init(line, OPTIMIZER)(jnp.uint32(3))
    new, metrics = make_step(line, OPTIMIZER, 16)(state, line.data["train"])
    sample_key, _ = jax.random.split(key_of(3, "train", 0))
    x, _ = sample_batch(line, sample_key, line.data["train"], 16)
    gradient = 2 * (state.params["w"] - 3.0) * jnp.mean(x**2)
    np.testing.assert_allclose(new.params["w"], state.params["w"] - 0.1 * gradient, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], (state.params["w"] - 3.0) ** 2 * jnp.mean(x**2), rtol=1e-5)
    np.testing.assert_allclose(metrics["gradient_norm"], jnp.abs(gradient), rtol=1e-5)
    assert int(new.step) == 1 and int(new.collections["batch_stats"]["seen"]) == 16
    assert metrics["largest"] == jnp.abs(x).max()


def test_the_norm_is_finite_where_the_gradient_is():
    np.testing.assert_allclose(norm({"a": jnp.array([3e25, 0.0]), "b": jnp.array([[-4e25]])}), 5e25, rtol=1e-6)
    np.testing.assert_allclose(norm((jnp.array([3e-30]), jnp.array([4e-30]))), 5e-30, rtol=1e-6)
    assert norm([jnp.zeros(3)]) == 0
    assert not any(np.isfinite(norm([jnp.array([1.0, bad])])) for bad in (np.nan, np.inf, -np.inf))


def test_chunks_and_seeds_are_a_plain_loop(line):
    losses, weights = curve(line)
    step = jax.jit(make_step(line, OPTIMIZER, 16))
    for index, seed in enumerate(SEEDS):
        state, own = make_init(line, OPTIMIZER)(seed), []
        for _ in range(10):
            state, metrics = step(state, line.data["train"])
            own.append(metrics["loss"])
        np.testing.assert_allclose(losses[:, index], own, rtol=1e-5)
        np.testing.assert_allclose(weights[index], state.params["w"], rtol=1e-5)


@pytest.mark.parametrize("placement", ["data", "seeds", "in_turn"])
def test_all_placements_give_the_same_numbers(line, placement):
    assert jax.device_count() == 8
    for ours, single in zip(curve(line, placement), curve(line)):
        np.testing.assert_allclose(ours, single, rtol=1e-5)


def test_placements_split_what_they_say(line):
    by_seeds = program(line, "seeds").init(SEEDS)
    assert len(by_seeds.params["w"].sharding.device_set) == 8 and by_seeds.params["w"].addressable_shards[
        0
    ].data.shape == (1,)
    by_data = program(line, "data")
    assert by_data.init(SEEDS).params["w"].is_fully_replicated
    text = by_data.chunk.lower(by_data.init(SEEDS), line.data["train"]).compile().as_text()
    assert "all-reduce" in text  # of the gradient over the parts of the batch


def test_seeds_in_turn_are_one_more_loop(line):
    def loops(placement):
        made = program(line, placement)
        return made.chunk.lower(made.init(SEEDS), line.data["train"]).as_text().count("stablehlo.while")

    assert loops("in_turn") == loops("single") + 1


def test_the_length_of_a_chunk_changes_nothing(line):
    for one, other in zip(curve(line, chunk_steps=1), curve(line, chunk_steps=10)):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("placement, micro_batches", [("single", 4), ("single", 16), ("data", 2), ("seeds", 2)])
def test_micro_batches_are_the_whole_batch(line, placement, micro_batches):
    for parts, whole in zip(curve(line, placement, micro_batches=micro_batches), curve(line)):
        np.testing.assert_allclose(parts, whole, rtol=1e-5)


def test_a_micro_batch_is_all_that_the_loss_sees(line):
    """Metrics are means over the parts, and collections pass through all of them; one is split over all devices."""
    step = jax.jit(make_step(line, OPTIMIZER, 16, micro_batches=4))
    state, metrics = step(make_init(line, OPTIMIZER)(jnp.uint32(3)), line.data["train"])
    x, _ = sample_batch(line, jax.random.split(key_of(3, "train", 0))[0], line.data["train"], 16)
    assert int(state.collections["batch_stats"]["seen"]) == 16
    np.testing.assert_allclose(metrics["largest"], jnp.abs(x.reshape(4, 4)).max(0).mean(), rtol=1e-6)
    made = program(line, "data", seeds=1, micro_batches=2)
    text = made.chunk.lower(made.init(SEEDS[:1]), line.data["train"]).compile().as_text()
    assert "all-reduce" in text and "all-to-all" not in text and "all-gather" not in text


def test_evaluation_sees_the_same_tasks_whatever_the_seed(line):
    made = program(line)
    state = made.init(SEEDS)
    same = state.replace(params=jax.tree.map(lambda w: jnp.broadcast_to(w[0], w.shape), state.params))
    assert len(np.unique(made.validate(same, line.data["validation"]))) == 1
    assert made.evaluate(state, line.data["test"], 0)["error"].shape == (8, 3)


@pytest.mark.parametrize("seed", [7, 8])
def test_evaluation_draws_from_keys_of_its_own_seed(line, seed):
    told = lambda variables, data, key: {"key": jax.random.key_data(key)}
    made = program(dataclasses.replace(line, evaluate=told, examples=told), seeds=1, evaluation_seed=seed)
    state, data = made.init(SEEDS[:1]), line.data["validation"]
    keys = [jax.random.split(key_of(seed, "validate", index))[0] for index in range(2)]
    x = jnp.stack([sample_batch(line, key, data, 16)[0] for key in keys])
    np.testing.assert_allclose(
        made.validate(state, data)[0], (state.params["w"][0] - 3) ** 2 * jnp.mean(x**2), rtol=1e-5
    )
    for purpose, found in {"evaluate": made.evaluate(state, data, 0), "examples": made.examples(state, data)}.items():
        np.testing.assert_array_equal(found["key"].ravel(), jax.random.key_data(key_of(seed, purpose)))


def test_indivisible_sizes_are_refused_with_the_numbers():
    with pytest.raises(ConfigError, match="config.train.batch_size: 12 is not divisible by the 8 devices"):
        build_placement("data", seeds=1, batch_size=12)
    with pytest.raises(
        ConfigError, match="config.train.batch_size / micro_batches: 4 is not divisible by the 8 devices"
    ):
        build_placement("data", seeds=1, batch_size=16, micro_batches=4)
    with pytest.raises(ConfigError, match="config.train.seeds: 3 is not divisible by the 8 devices"):
        build_placement("seeds", seeds=3, batch_size=8)
    with pytest.raises(ConfigError, match="did you mean 'single'"):
        build_placement("singel", seeds=1, batch_size=8)


def test_every_step_of_every_seed_has_its_own_batch(line):
    """Ten steps of two seeds draw twenty different batches, none of which is a validation batch or a test task."""
    step, seen = jax.jit(make_step(line, optax.sgd(0.0), 16)), []
    for seed in (0, 1):
        state = make_init(line, optax.sgd(0.0))(jnp.uint32(seed))
        for _ in range(10):
            state, metrics = step(state, line.data["train"])
            seen.append(float(metrics["largest"]))  # the largest |x| of the batch
    for purpose in ("validate", "evaluate"):
        sample_key, _ = jax.random.split(key_of(0, purpose))
        seen.append(float(jnp.abs(sample_batch(line, sample_key, line.data["train"], 16)[0]).max()))
    assert len(set(seen)) == len(seen) == 22


def test_keys_differ_by_seed_purpose_and_step():
    keys = [key_of(seed, purpose, step) for seed in range(3) for purpose in PURPOSES for step in range(50)]
    assert len(PURPOSES) == 6 and len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(keys)
    with pytest.raises(ValueError):
        key_of(0, "guess")


def test_a_loss_draws_from_a_key_of_its_own_and_so_does_each_micro_batch(line):
    def told(variables, batch, key):
        kept = {"batch_stats": variables["batch_stats"]}
        return variables["params"]["w"] ** 2, ({"drawn": jax.random.uniform(key)}, kept)

    keyed = dataclasses.replace(line, loss=told)
    state = make_init(keyed, OPTIMIZER)(jnp.uint32(3))
    _, own = jax.random.split(key_of(3, "train", 0))
    for parts, keys in ((1, own[None]), (4, jax.random.split(own, 4))):
        _, metrics = make_step(keyed, OPTIMIZER, 16, micro_batches=parts)(state, line.data["train"])
        np.testing.assert_allclose(metrics["drawn"], np.mean([jax.random.uniform(key) for key in keys]), rtol=1e-6)


@pytest.mark.parametrize("flags, level", [("", 2), ("--xla_backend_optimization_level=0", None)])
def test_flags_decide_before_ours_how_far_programs_are_optimised(line, flags, level, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    asked, jit = [], jax.jit
    monkeypatch.setattr(
        jax, "jit", lambda *args, **options: (asked.append(options["compiler_options"]), jit(*args, **options))[1]
    )
    made = program(line, seeds=1)
    assert [options.get("xla_backend_optimization_level") for options in asked] == [level] * 5
    state, metrics, _ = made.chunk(made.init(jnp.zeros(1, jnp.uint32)), line.data["train"])
    assert np.isfinite(metrics["loss"]).all() and state.step[0] == 5
