"""Bootstraps of BNP and BANP: step by step in NumPy, centred residuals, and draws of what is there alone."""

import functools

import jax
import numpy as np
from flax import linen as nn

from kvq_jax.models.neural_processes import bootstrap
from kvq_jax.models.neural_processes.conditional import CANP
from kvq_jax.models.points import Points
from tests.kvq_jax.models.neural_processes.cnp_family import ATTENTIVE, KEY, SMALL, K, M, N, chance, close, made, points


def numpy_mlp(params, rows):
    for index in range(len(params)):
        rows = np.maximum(rows, 0) if index else rows
        rows = rows @ params[f"layer_{index}"]["kernel"] + params[f"layer_{index}"]["bias"]
    return rows


def test_bnp_step_by_step():
    """One task, given indices, in NumPy: concatenations, loops over copies, no broadcasting."""
    model, variables = made("bnp")
    p = jax.tree.map(np.float64, variables["params"])
    context, target_x = points(N), points(M, seed=5).x
    (draws,) = chance(model, N)

    def encode(x, y):
        pairs = np.concatenate([x, y], -1)
        pooled = [
            numpy_mlp(p[path]["post"], numpy_mlp(p[path]["pre"], pairs).mean(0)) for path in ("encoder", "pooling")
        ]
        return np.concatenate(pooled)

    def decode(code, x, extra=None):
        first = p["decoder"]["first"]
        rows = np.concatenate([np.tile(code, (len(x), 1)), x], -1) @ first["kernel"] + first["bias"]
        rows = rows if extra is None else rows + extra @ p["decoder"]["extra"]["kernel"]
        mean, raw = np.split(numpy_mlp(p["decoder"]["rest"], np.maximum(rows, 0)), 2, -1)
        return mean, 0.1 + 0.9 * np.log1p(np.exp(raw))

    predictions, contexts = [], []
    for first, second in zip(*draws):
        mean, std = decode(encode(context.x[first], context.y[first]), context.x)
        residuals = ((context.y - mean) / std)[second]
        contexts.append(mean + std * (residuals - residuals.mean(0)))
        predictions.append(decode(encode(context.x, context.y), target_x, encode(context.x, contexts[-1])))
    mean, std = np.stack(predictions, 1)

    def outputs(model):
        components = model.predict(context, target_x, draws).component_distribution
        return model.bootstrap(context, draws)[:2], (components.mean, components.variance)

    found = jax.jit(nn.apply(outputs, model))(variables)
    close(found, ((context.x, np.stack(contexts)), (mean.swapaxes(0, 1), std.swapaxes(0, 1) ** 2)))


def test_what_a_masked_point_holds_reaches_no_prediction():
    model, variables = made("bnp")
    context, mask = points(N), np.arange(N) < N - 1
    predict = jax.jit(lambda y: model.apply(variables, Points(context.x, y, mask), context.x, key=KEY).mean)
    spoilt = np.where(mask[:, None], context.y, np.nan)
    np.testing.assert_array_equal(predict(spoilt), predict(np.where(mask[:, None], context.y, 0)))


def test_one_residual_for_all_places_is_none():
    """Centred, it vanishes: y~ is the mean that the resampled pairs predict at the context's x, without gradient."""
    model, variables = made("banp")
    context, (draws,) = points(N), chance(model, N)
    draws = draws._replace(residuals=np.full_like(draws.residuals, 2))
    (decoder := dict(variables["params"]["decoder"])).pop("extra")
    plain = functools.partial(CANP(**SMALL, **ATTENTIVE).apply, {"params": {**variables["params"], "decoder": decoder}})

    def bootstrapped(variables):
        y = model.apply(variables, context, draws, method="bootstrap").y
        return y.sum(), y

    gradient, y = jax.jit(jax.grad(bootstrapped, has_aux=True))(variables)
    pairs = Points(context.x[draws.points], context.y[draws.points])
    close(y, jax.jit(lambda: plain(pairs, np.stack([context.x] * K)).mean)())
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


def test_bootstraps_draw_points_that_are_there_evenly():
    mask = np.array([[0, 1, 0, 1, 1, 0, 0], [1] * N], bool)
    draws = jax.jit(lambda: bootstrap.draw(KEY, 2000, points(N, 2)._replace(mask=mask)))()
    for indices in draws:
        assert indices.shape == (2000, 2, N)
        for task in range(2):
            share = np.bincount(indices[:, task].ravel(), minlength=N) / (2000 * N)
            np.testing.assert_allclose(share, mask[task] / mask[task].sum(), atol=0.02)
    assert (draws.points != draws.residuals).any()
