"""EQTNP, LBANP and CMANP, jointly and by Intention: laws of sets, the chain rule."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.lbanp import LBANP, LBANPND
from kvq_jax.models.points import Points, join
from tests.kvq_jax.models.neural_processes.cnp_family import hide
from tests.kvq_jax.models.neural_processes.perceivers import MODELS, SMALL, points, variables_of

N, M = 7, 4
each_model = pytest.mark.parametrize("name", MODELS)


def outputs(model, context, target):
    """Mean and marginal variance of the prediction [2, ..., M, dy], and the log density of all targets [...]."""
    prediction = model(context, target.x, target.mask)
    moments = jnp.stack([x.reshape(target.y.shape) for x in (prediction.mean, prediction.variance)])
    return moments, predictive.log_prob(prediction, target.y, target.mask)


ORDER = np.array([2, 0, 3, 1])
KEPT, ASKED = [0, 2, 3, 6], [1, 3]


def tasks():
    """One batch for all laws: name -> context, target."""
    context, target = (points(n, seed=n, mask=np.ones(n, bool)) for n in (N, M))
    moved = lambda points, order: Points(points.x[order], points.y[order], points.mask)
    return dict(
        plain=(context, target),
        context_moved=(moved(context, np.random.default_rng(0).permutation(N)), target),
        target_moved=(context, moved(target, ORDER)),
        other_context=(points(N, seed=9)._replace(mask=context.mask), target),
        hidden=(hide(context, KEPT), hide(target, ASKED)),
        no_context=(hide(context, []), target),
        no_target=(context, hide(target, [])),
    )


@functools.cache
def made(name):
    """Name of a task -> `outputs`, from one batch; and the gradient of the sum of all log densities."""
    model, batch = MODELS[name], jax.tree.map(lambda *rows: np.stack(rows), *tasks().values())

    @jax.jit
    def run(variables, context, target):
        def total(variables):
            moments, value = nn.apply(outputs, model)(variables, context, target)
            return value.sum(), (moments, value)

        return jax.grad(total, has_aux=True)(variables)

    gradient, (moments, value) = run(variables_of(name), *batch)
    return {task: (moments[:, i], value[i]) for i, task in enumerate(tasks())}, gradient["params"]


@functools.cache
def alone(name):
    """`outputs` for one task without masks, compiled for each shape."""
    return jax.jit(functools.partial(nn.apply(outputs, MODELS[name]), variables_of(name)))


@functools.cache
def shapes(model, dim_x):
    context = Points(jnp.zeros((3, dim_x)), jnp.zeros((3, model.dim_y)))
    return jax.eval_shape(lambda: model.init(jax.random.key(0), context, context.x))["params"]


def close(one, other, tolerance=3e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


@pytest.mark.parametrize("copies", [True, False])
def test_layers_start_as_copies(copies):
    model = MODELS["lbanp"].clone(copy_layers=copies)
    params = jax.jit(lambda: model.init(jax.random.key(0), points(N), points(M).x))()["params"]
    for stack in ("encoder", "decoder"):
        same = jax.tree.map(jnp.array_equal, params[f"{stack}_0"], params[f"{stack}_1"])
        assert all(same for path, same in flatten_dict(same).items() if path[-1] == "kernel") == copies


@each_model
def test_points_in_any_order(name):
    """But for the Cholesky form, whose variances depend on the order of the targets; its means do not."""
    found, _ = made(name)
    moments, value = found["plain"]
    close(found["context_moved"], (moments, value), 1e-4)
    moved, other = found["target_moved"]
    close(moved[0], moments[0, ORDER])
    if name in ("nd", "cmanpand"):
        assert np.abs(moved[1] - moments[1, ORDER]).max() > 0.1
    else:
        close((moved, other), (moments[:, ORDER], value), 1e-4)
    assert np.abs(found["other_context"][0] - moments).max() > 0.1  # the context is not ignored


@each_model
def test_a_masked_point_is_absent_and_a_batch_is_its_tasks(name):
    context, target = tasks()["plain"]
    moments, value = made(name)[0]["hidden"]
    one = alone(name)(Points(context.x[KEPT], context.y[KEPT]), Points(target.x[ASKED], target.y[ASKED]))
    close((moments[:, ASKED], value), one, 1e-4)


@pytest.mark.parametrize("name", ["eqtnp", "cmanp"])
def test_no_context_at_all_is_a_masked_one(name):
    _, target = tasks()["plain"]
    close(made(name)[0]["no_context"], alone(name)(points(0), target._replace(mask=None)), 1e-4)


@each_model
def test_everything_is_finite_whatever_is_missing(name):
    found, gradient = made(name)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((found, gradient)))
    assert found["no_target"][1] == 0
    unused = {path for path, leaf in flatten_dict(gradient).items() if not leaf.any()}
    joint = name in ("nd", "lowrank", "cmanpand")  # whose predictor the released code counts and never uses
    assert unused == {path for path in flatten_dict(gradient) if path[0] == "predictor" and joint}


def test_the_unused_predictor_may_go():
    counts = [
        sum(leaf.size for leaf in jax.tree.leaves(shapes(LBANPND(unused_predictor=kept), 1))) for kept in (True, False)
    ]
    assert counts[0] - counts[1] == 64 * 128 + 128 + 128 * 2 + 2 == 8578


def test_blocks_of_targets_follow_the_chain_rule():
    """Against a loop: each block jointly, given the context and the true targets of the blocks before it."""
    model, variables = MODELS["cmanpand"], variables_of("cmanpand")
    target = points(M, 2, seed=5, mask=np.array([[1, 1, 1, 1], [0, 1, 0, 1]], bool))
    context = points(N, 2, mask=np.ones((2, N), bool))

    @jax.jit
    def of_block(start, stop):
        place = jnp.arange(M)
        seen = join(context, target._replace(mask=target.mask & (place < start)))
        block = target._replace(mask=target.mask & (start <= place) & (place < stop))
        return -model.apply(variables, seen, block, method="loss")

    log_likelihood = jax.jit(
        lambda size: model.clone(block_size=size).apply(variables, context, target, method="log_likelihood"),
        static_argnums=0,
    )
    of_blocks = (of_block(0, 3) + of_block(3, 4)) / target.mask.sum(1)
    joint = of_block(0, M) / target.mask.sum(1)
    close(log_likelihood(3), of_blocks)
    close(log_likelihood(100), joint)
    assert np.abs(of_blocks - joint).min() > 1e-3
    with pytest.raises(ValueError, match="at least 1 point, not 0"):
        log_likelihood(0)


def test_refusals():
    for field in (dict(std_map="softplus"), dict(std_floor=0.05)):
        with pytest.raises(ValueError, match="bound=True limits joint ones"):
            shapes(LBANPND(**field), 1)
    with pytest.raises(ValueError, match="num_heads=3 does not divide features=16"):
        shapes(LBANP(**{**SMALL, "num_heads": 3}), 1)
    with pytest.raises(ValueError, match="LBANP has no state of constant size"):
        MODELS["lbanp"].apply(variables_of("lbanp"), (), method="init_state")
    with pytest.raises(ValueError, match="sigma_intention has no streaming state"):
        model = MODELS["cmanp"].clone(cross_op="sigma_intention")
        jax.eval_shape(lambda: model.apply(variables_of("cmanp"), (), method="init_state"))
