"""Constraints on the weights: quadratic programs by SciPy, optimality, methods against each other, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from kvq_jax.ops import constraints as module
from kvq_jax.ops import intention, intention_weights
from kvq_jax.ops.constraints import METHODS, constrained_intention, constrained_weights
from tests.kvq_jax.ops.gradients import check_gradients

ALPHA = 0.3
STATIC = ("alpha", "method", "route")
weights = jax.jit(constrained_weights, static_argnames=STATIC)
predict = jax.jit(constrained_intention, static_argnames=STATIC)
few = settings(max_examples=12, deadline=None, derandomize=True)


def draw(n=8, d=4, k=2, p=3, seed=0, dtype=np.float64):
    """Keys, values, constraints and bounds. For p > d some constraints depend on others; all can be met together."""
    rng = np.random.default_rng(seed)
    constraints, inside = rng.normal(size=(d, p)), rng.normal(size=d)
    bounds = constraints.T @ inside - rng.uniform(0, 0.5, p)
    return [jnp.asarray(x, dtype) for x in (rng.normal(size=(n, d)), rng.normal(size=(n, k)), constraints, bounds)]


def close(a, b, tolerance=1e-8):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def quadratic_program(key, value, constraints, bounds):
    """SciPy's solution for one column of values."""
    key, value, constraints, bounds = map(np.asarray, (key, value, constraints, bounds))
    gram = key.T @ key + ALPHA * np.eye(key.shape[1])
    linear = key.T @ value
    found = optimize.minimize(
        lambda w: w @ gram @ w / 2 - linear @ w,
        np.zeros(len(linear)),
        jac=lambda w: gram @ w - linear,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda w: constraints.T @ w - bounds, "jac": lambda w: constraints.T},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return found.x


def check_optimality(w, key, value, constraints, bounds, tolerance=1e-8):
    """Karush, Kuhn and Tucker: feasible, and the gradient is a non-negative mix of the active constraints."""
    slack = np.asarray(constraints.T @ w - bounds)
    assert slack.min() >= -tolerance
    gradient = np.asarray(key.T @ (key @ w - value) + ALPHA * w)
    active = np.asarray(constraints)[:, slack < tolerance]
    residual = np.linalg.norm(gradient) if active.shape[1] == 0 else optimize.nnls(active, gradient)[1]
    assert residual <= tolerance * (1 + np.abs(gradient).max())


@few
@given(seed=st.integers(0, 2**16), p=st.sampled_from([1, 3, 7]))
def test_exact_is_the_quadratic_program(seed, p):
    with jax.enable_x64(True):
        key, value, constraints, bounds = draw(p=p, seed=seed)
        w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds)
        for column in range(2):
            close(w[:, column], quadratic_program(key, value[:, column], constraints, bounds), 1e-5)
            check_optimality(w[:, column], key, value[:, column], constraints, bounds)


@few
@given(seed=st.integers(0, 2**16), n=st.sampled_from([1, 4, 8]), route=st.sampled_from(["primal", "dual"]))
def test_non_negative_least_squares_is_the_default(seed, n, route):
    with jax.enable_x64(True):
        key, value, *_ = draw(n=n, d=6, seed=seed)
        w = weights(key, value, alpha=ALPHA, route=route)
        for column in range(2):
            stacked = np.concatenate([key, ALPHA**0.5 * np.eye(6)]), np.concatenate([value[:, column], np.zeros(6)])
            close(w[:, column], optimize.nnls(*stacked)[0])


def test_systems_of_the_number_of_keys_broadcast_as_those_of_the_number_of_features(x64):
    key, value = (
        jnp.stack([draw(n=4, d=9, k=3, seed=seed)[i] for seed in range(6)]).reshape(3, 2, 4, -1) for i in (0, 1)
    )
    query = jnp.asarray(np.random.default_rng(9).normal(size=(3, 2, 5, 9)))
    some = jnp.arange(4) < jnp.array([4, 2, 0])[:, None, None]
    pairs = jnp.asarray(np.random.default_rng(1).random((3, 2, 5, 4)) < 0.6)
    for alpha, mask in ((ALPHA, some), (jnp.array([0.1, 1.0]), pairs), (jnp.full((3, 1), 0.5), None)):
        op = jax.jit(functools.partial(constrained_intention, alpha=alpha, mask=mask), static_argnames="route")
        close(op(query, key, value, route="primal"), op(query, key, value))
        close(op(query, key, value, route="dual"), op(query, key, value))
    one = value[:1, :1], key[0, 0]
    close(weights(one[1], one[0], alpha=ALPHA), weights(one[1], one[0], alpha=ALPHA, route="primal"))


@pytest.mark.parametrize("route", ["primal", "dual"])
def test_steps_end_where_exchanges_do(route, x64, monkeypatch):
    key, value, *_ = draw(n=20, d=24, k=40)
    expected = constrained_weights(key, value, alpha=ALPHA, route=route)
    assert (expected >= -1e-12).all() and 0.2 < (expected > 1e-9).mean() < 0.8
    none = lambda conditions, gap, equality, tolerance: (equality, jnp.zeros((*gap.shape[:-1], 1), bool))
    monkeypatch.setattr(module, "_exchanged", none)
    close(constrained_weights(key, value, alpha=ALPHA, route=route), expected)


def test_boxes_are_bounded_least_squares(x64):
    key, value, *_ = draw(d=6, k=1)
    box = jnp.concatenate([jnp.eye(6), -jnp.eye(6)], 1)  # -0.1 <= w <= 0.2
    bounds = jnp.concatenate([jnp.full(6, -0.1), jnp.full(6, -0.2)])
    stacked = np.concatenate([key, ALPHA**0.5 * np.eye(6)]), np.concatenate([value[:, 0], np.zeros(6)])
    oracle = optimize.lsq_linear(*stacked, (-0.1, 0.2), method="bvls", tol=1e-14)
    close(weights(key, value, alpha=ALPHA, constraints=box, bounds=bounds)[:, 0], oracle.x)


def test_float32(x64):
    for seed in range(3):
        key, value, constraints, bounds = draw(p=7, seed=seed)
        expected = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds)
        arrays = [x.astype(jnp.float32) for x in (key, value, constraints, bounds)]
        single = weights(*arrays[:2], alpha=ALPHA, constraints=arrays[2], bounds=arrays[3])
        assert single.dtype == jnp.float32
        close(single, expected, 2e-4)


def test_equalities_hold_and_are_the_formula(x64):
    key, value, constraints, bounds = map(np.asarray, draw())
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method="equality")
    close(constraints.T @ w, bounds[:, None] + np.zeros((3, 2)))
    free = intention_weights(jnp.asarray(key), jnp.asarray(value), alpha=ALPHA)
    z = np.linalg.inv(key.T @ key + ALPHA * np.eye(4))
    step = np.linalg.solve(constraints.T @ z @ constraints, constraints.T @ free - bounds[:, None])
    close(w, free - z @ constraints @ step)


def test_one_shot_is_the_formula_of_the_paper(x64):
    key, value, constraints, bounds = map(np.asarray, draw(p=4, seed=3))
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method="one_shot")
    z = np.linalg.inv(key.T @ key + ALPHA * np.eye(4))
    for column in range(2):
        free = z @ key.T @ value[:, column]
        violated = constraints.T @ free < bounds
        assert violated.any()
        c, b = constraints[:, violated], bounds[violated]
        close(w[:, column], free - z @ c @ np.linalg.solve(c.T @ z @ c, c.T @ free - b))


def test_one_shot_can_violate_what_was_satisfied(x64):
    # K = I, so w is the point nearest to v = (-1, 0.5). Violated: w_1 >= 0. Moving there breaks w_2 - w_1 >= 1.
    key, value = jnp.eye(2), jnp.array([[-1.0], [0.5]])
    constraints, bounds = jnp.array([[1.0, -1.0], [0.0, 1.0]]), jnp.array([0.0, 1.0])
    once = weights(key, value, alpha=1e-9, constraints=constraints, bounds=bounds, method="one_shot")
    exact = weights(key, value, alpha=1e-9, constraints=constraints, bounds=bounds)
    close(once[:, 0], [0, 0.5], 1e-7)
    assert constraints[:, 1] @ once[:, 0] < 1
    close(exact[:, 0], [0, 1], 1e-7)


def test_one_constraint_and_no_violation(x64):
    key, value, constraints, bounds = draw(p=1)
    close(
        weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds),
        weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method="one_shot"),
    )
    free = intention_weights(key, value, alpha=ALPHA)
    for method in ("exact", "one_shot"):
        close(weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds - 100, method=method), free)
    close(weights(key, value, alpha=ALPHA, constraints=jnp.ones((4, 0))), free)


def test_some_equalities_among_inequalities(x64):
    key, value, constraints, bounds = draw(p=4, seed=1)
    equality = jnp.array([True, False, False, False])
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, equality=equality)
    both = jnp.concatenate([constraints, -constraints[:, :1]], 1), jnp.concatenate([bounds, -bounds[:1]])
    close(constraints[:, 0] @ w, bounds[0] + jnp.zeros(2))
    for column in range(2):
        close(w[:, column], quadratic_program(key, value[:, column], *both), 1e-5)


def test_bounds_may_differ_between_columns(x64):
    key, value, constraints, bounds = draw()
    each = jnp.stack([bounds, bounds - 1], -1)
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=each)
    for column in range(2):
        close(
            w[:, column], weights(key, value, alpha=ALPHA, constraints=constraints, bounds=each[:, column])[:, column]
        )


def test_repeated_and_impossible_constraints(x64):
    key, value, constraints, bounds = draw(p=1)
    twice = jnp.tile(constraints, (1, 3)), jnp.tile(bounds, 3)
    close(
        weights(key, value, alpha=ALPHA, constraints=twice[0], bounds=twice[1]),
        weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds),
    )
    opposite = jnp.concatenate([constraints, -constraints], 1)
    for method in ("exact", "equality"):
        assert jnp.isnan(weights(key, value, constraints=opposite, bounds=jnp.ones(2), method=method)).all()


def test_primal_is_dual(x64):
    key, value, constraints, bounds = draw(n=4, d=9)
    options = dict(alpha=ALPHA, constraints=constraints, bounds=bounds)
    close(weights(key, value, **options, route="primal"), weights(key, value, **options, route="dual"))
    close(weights(key, value, **options, route="primal"), weights(key, value, **options))


# Laws


@pytest.mark.parametrize("method", METHODS)
def test_laws(method, x64):
    key, value, constraints, bounds = draw()
    query = jnp.asarray(np.random.default_rng(9).normal(size=(4, 4)))
    op = functools.partial(predict, alpha=ALPHA, constraints=constraints, bounds=bounds, method=method)
    out = op(query, key, value)
    close(out, query @ weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method=method))
    rows = np.random.default_rng(0).permutation(8)
    close(op(query[::-1], key[rows], value[rows]), out[::-1])
    keep = np.array([1, 0, 1, 1, 0, 1, 1, 0], bool)
    spoil = jnp.where(keep, 0.0, jnp.nan)[:, None]
    alone = op(query, key[keep], value[keep])
    close(op(query, key + spoil, value + spoil, mask=jnp.asarray(keep)), alone)
    pairs = np.array([keep, np.zeros(8), np.ones(8), keep]).astype(bool)
    close(op(query, key, value, mask=jnp.asarray(pairs)), [alone[0], np.zeros(2), out[2], alone[3]])
    close(op(query, key[:0], value[:0]), np.zeros((4, 2)))


@pytest.mark.parametrize("method", METHODS)
def test_no_key_left_gives_zeros_and_finite_gradients(method):
    key, value, constraints, bounds = draw(dtype=np.float32)
    mask = jnp.zeros(8, bool)

    def loss(q, k, v, c, b):
        out = constrained_intention(q, k, v, mask=mask, constraints=c, bounds=b, method=method)
        return out.sum(), out

    grads, out = jax.jit(jax.grad(loss, argnums=range(5), has_aux=True))(key, key, value, constraints, bounds)
    close(out, np.zeros((8, 2)))
    assert all(not np.asarray(g).any() for g in grads)


def test_batch_axes_are_loops(x64):
    key, value, constraints, bounds = (jnp.stack(x) for x in zip(*(draw(seed=seed) for seed in range(4))))
    mask = jnp.arange(8) < jnp.array([8, 5, 0, 3])[:, None]
    bounds = bounds[..., None]
    one = lambda k, v, c, b, m: constrained_weights(k, v, alpha=ALPHA, constraints=c, bounds=b, mask=m)
    loop = jnp.stack([jax.jit(one)(*x) for x in zip(key, value, constraints, bounds, mask)])
    close(jax.jit(one)(key, value, constraints, bounds, mask), loop)
    close(jax.jit(jax.vmap(one))(key, value, constraints, bounds, mask), loop)
    shared = jnp.stack([jax.jit(one)(k, v, constraints[0], bounds[0], m) for k, v, m in zip(key, value, mask)])
    close(jax.jit(one)(key, value, constraints[0], bounds[0], mask), shared)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_against_finite_differences(method, x64):
    mask = jnp.arange(8) != 2
    op = lambda k, v, c, b, a: constrained_weights(k, v, mask=mask, alpha=a, constraints=c, bounds=b, method=method)
    check_gradients(op, *draw(seed=2), ALPHA)


def test_gradients_of_systems_of_the_number_of_keys(x64):
    mask = jnp.arange(4) != 2
    check_gradients(
        lambda k, v, a: constrained_weights(k, v, mask=mask, alpha=a, route="dual"), *draw(n=4, d=6)[:2], ALPHA
    )


def test_low_precision_in_low_precision_out():
    key, value, constraints, bounds = draw(dtype=jnp.bfloat16)
    out = predict(key, key, value, alpha=ALPHA, constraints=constraints, bounds=bounds)
    assert out.dtype == jnp.bfloat16
    single = predict(
        *(x.astype(jnp.float32) for x in (key, key, value)), alpha=ALPHA, constraints=constraints, bounds=bounds
    )
    close(out.astype(jnp.float32), single, 0.02)


def test_what_is_refused():
    key, value, constraints, bounds = draw(dtype=np.float32)
    for message, options in [
        ("unknown method 'simplex'", dict(method="simplex")),
        ("unknown route", dict(route="fast")),
        ("pass alpha=0", dict(route="pinv")),
        ("alpha must be >= 0", dict(alpha=-1.0)),
        (r"expected constraints \[..., 4, p\]", dict(constraints=constraints.T)),
        (r"expected constraints \[..., 4, p\]", dict(constraints=constraints, bounds=jnp.ones(4))),
        (r"expected equality \[3\]", dict(constraints=constraints, bounds=bounds, equality=jnp.ones(2, bool))),
    ]:
        with pytest.raises(ValueError, match=message):
            constrained_intention(key, key, value, **options)


def test_without_constraints_in_effect_it_is_intention(x64):
    key, value, constraints, bounds = draw()
    out = predict(key, key, value, alpha=ALPHA, constraints=constraints, bounds=bounds - 100)
    close(out, intention(key, key, value, alpha=ALPHA))


@pytest.mark.parametrize(
    "n, scale, tolerance", [(4, 1, 1e-5), (4, 100, 1e-5), (8, 100, 1e-5), (3, 1, 1e-3), (3, 100, np.inf)]
)
def test_small_problems_in_float32_have_the_answer_of_scipy(n, scale, tolerance):
    """Keys with a condition number up to 1 / epsilon of float32, and beyond (n = 3, times 100), which are finite."""
    rng, alpha, d = np.random.default_rng(n), 1e-3, 4
    key = (scale * rng.integers(0, 6, (20, n, d))).astype(np.float32)
    query, value = (rng.normal(size=(20, *shape)).astype(np.float32) for shape in ((5, d), (n, 2)))
    found = jax.jit(lambda *given: constrained_intention(*given, alpha=alpha))(query, key, value)
    assert np.isfinite(found).all()
    for q, k, v, ours in zip(*map(np.float64, (query, key, value)), found):
        rows, zeros = np.vstack([k, np.sqrt(alpha) * np.eye(d)]), np.zeros(d)
        weights = np.stack([optimize.nnls(rows, np.append(column, zeros))[0] for column in v.T], 1)
        assert np.abs(ours - q @ weights).max() <= tolerance * max(np.abs(q @ weights).max(), 1e-3)
