"""Training to the end: which states are validated, kept and judged, and what ends it before."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.harness.checkpoints import Checkpoints
from experiments.harness.errors import Diverged
from experiments.harness.loop import _check_finite
from experiments.harness.prng import key_of
from experiments.harness.step import sample_batch
from tests.experiments.harness.launched import run


def test_the_latest_state_never_names_a_best_one_that_was_let_go(config, tmp_path, monkeypatch):
    saved, save = [], Checkpoints.save

    def noted(self, step, state, record):
        save(self, step, state, record)
        saved.append((self._folder.name, step, record.best_step))

    monkeypatch.setattr(Checkpoints, "save", noted)
    config.train.update(steps=12, validate_every=1, checkpoint_every=12)
    run(config, tmp_path / "run")
    best = [step for name, step, _ in saved if name == "best"]
    assert len(best) > 3  # more than are kept
    assert [(step, of) for name, step, of in saved if name == "latest"][: len(best)] == [(step, step) for step in best]


def test_a_run_that_ends_with_its_last_state_keeps_no_best_one(config, tmp_path):
    config.train.update(steps=12, validate_every=1, checkpoint_every=4, select="last")
    result, _ = run(config, tmp_path / "run")
    kept = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("run/checkpoints/*/*")}
    assert kept == {"run/checkpoints/latest/8", "run/checkpoints/latest/12"}
    assert result.content["best_step"] == 12  # which step was the best is in the result all the same


def test_the_best_and_the_untrained_state_are_evaluated(config, line, tmp_path, monkeypatch):
    """On its way from its first draw to the 3 of the training data w passes the 2 of the others.

    The metric is 2 (w - 2)^2, the validation loss (w - 2)^2 times the mean of x^2.
    """
    passing = dataclasses.replace(line, data=line.data | dict.fromkeys(("validation", "test"), np.float32(2)))
    monkeypatch.setattr(sys.modules["experiments.paper.line.experiment"], "build", lambda *given: passing)
    config.train.update(batch_size=256, checkpoint_every=4)
    config.optimizer.update(name="sgd", learning_rate=0.25)
    config.evaluation.untrained = True
    found = run(config, tmp_path / "run")[0].content
    (_, best), (_, last) = found["validation_losses"]
    assert best < last and found["best_step"] == 2 and found["steps"] == 4
    x, _ = sample_batch(line, jax.random.split(key_of(1000, "validate"))[0], 2.0, 256)
    drawn = line.init(key_of(0, "init"))["params"]["w"]
    means = [found["metrics"][f"{phase}/error"]["mean"] for phase in ("trained", "untrained")]
    np.testing.assert_allclose(means, [2 * best / np.mean(x**2), 2 * (drawn - 2) ** 2], rtol=1e-3)


def test_a_gradient_that_is_not_finite_ends_a_run_too(tmp_path):
    metrics = {"loss": np.zeros((2, 3)), "gradient_norm": np.zeros((2, 3))}
    _check_finite(metrics, 10, Checkpoints(tmp_path))
    metrics["gradient_norm"][1, 2] = np.nan
    with pytest.raises(Diverged, match="gradient norm of seed number 2 is not finite at step 12"):
        _check_finite(metrics, 10, Checkpoints(tmp_path))


def test_an_optimizer_that_is_not_finite_ends_a_run(config, tmp_path, line, monkeypatch):
    """One slope of 1e20: its square is beyond float32, and Adam would not move the parameter again."""

    def loss(variables, batch, key):
        spike = 1e20 * (jnp.abs(batch[0]).max() > 1.5)
        return (1 + spike) * variables["params"]["w"], ({}, {"batch_stats": variables["batch_stats"]})

    steep = dataclasses.replace(line, loss=loss)
    monkeypatch.setattr(sys.modules["experiments.paper.line.experiment"], "build", lambda *given: steep)
    config.train.update(steps=20, seeds=3)
    with pytest.raises(Diverged, match=r"the state of seed number \d is not finite at step"):
        run(config, tmp_path / "run")
    config.optimizer.clip_norm = 1.0  # whose norm is infinite: the step is none, and the run recovers
    assert run(config, tmp_path / "clipped")[0].content["steps"] == 20


def test_the_last_step_is_validated_and_kept_whatever_divides_it(config, tmp_path):
    config.train.update(steps=3)  # validate_every and checkpoint_every are 2
    result, _ = run(config, tmp_path / "run")
    assert [step for step, _ in result.content["validation_losses"]] == [2, 3]
    assert (tmp_path / "run" / "checkpoints" / "latest" / "3").is_dir()


def test_a_validation_loss_is_the_mean_over_seeds(config, line, tmp_path):
    config.train.update(seeds=3, select="last")
    found = run(config, tmp_path / "run")[0].content
    x, _ = sample_batch(line, jax.random.split(key_of(1000, "validate"))[0], 3.0, 2)
    expected = found["metrics"]["trained/error"]["mean"] / 2 * np.mean(x**2)
    np.testing.assert_allclose(found["validation_losses"][-1][1], expected, rtol=1e-4)


def test_a_validation_loss_that_is_not_finite_ends_a_run(config, line, tmp_path, monkeypatch):
    lost = dataclasses.replace(line, data=line.data | {"validation": np.float32(np.nan)})
    monkeypatch.setattr(sys.modules["experiments.paper.line.experiment"], "build", lambda *given: lost)
    with pytest.raises(Diverged, match="the validation loss is not finite at step 2"):
        run(config, tmp_path / "run")
