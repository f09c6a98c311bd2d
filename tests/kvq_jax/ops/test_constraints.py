"""Constraints on the weights: quadratic programs by SciPy, optimality, methods against each other, derivatives."""

import functools
import itertools

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
from tests.kvq_jax.ops.programs import compiled

ALPHA = 0.3
few = settings(max_examples=12, deadline=None, derandomize=True)


weights = compiled(constrained_weights, "alpha", "method", "route")
predict = compiled(constrained_intention, "alpha", "method", "route")
free_weights = compiled(intention_weights, "alpha")


def draw(n=8, d=4, k=2, p=3, seed=0, dtype=np.float64):
    """Keys, values, constraints and bounds. For p > d some constraints depend on others; all can be met together."""
    rng = np.random.default_rng(seed)
    constraints, inside = rng.normal(size=(d, p)), rng.normal(size=d)
    bounds = constraints.T @ inside - rng.uniform(0, 0.5, p)
    return [x.astype(dtype) for x in (rng.normal(size=(n, d)), rng.normal(size=(n, k)), constraints, bounds)]


def close(a, b, tolerance=1e-8):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def reference(key, value, constraints, bounds, method="exact"):
    """w by the formula of the paper; 'exact': the best that meets the constraints, of all sets of active ones."""
    if not len(key):
        return np.zeros((key.shape[1], value.shape[1]))
    gram = key.T @ key + ALPHA * np.eye(key.shape[1])
    z = np.linalg.inv(gram)

    def fitted(active, free):
        c = constraints[:, active]
        return free - z @ c @ np.linalg.solve(c.T @ z @ c, c.T @ free - bounds[active])

    def column(free):
        if method == "equality":
            return fitted(np.ones(len(bounds), bool), free)
        if method == "one_shot":
            return fitted(constraints.T @ free < bounds, free)
        every = (fitted(np.array(active), free) for active in itertools.product([False, True], repeat=len(bounds)))
        feasible = [w for w in every if (constraints.T @ w >= bounds - 1e-9).all()]
        return min(feasible, key=lambda w: (w - free) @ gram @ (w - free))

    return np.stack([column(free) for free in (z @ key.T @ value).T], -1)


def quadratic_program(key, value, constraints, bounds):
    """SciPy's solution for one column of values."""
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
    slack = constraints.T @ w - bounds
    assert slack.min() >= -tolerance
    gradient = key.T @ (key @ w - value) + ALPHA * w
    active = constraints[:, slack < tolerance]
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
        np.stack([draw(n=4, d=9, k=3, seed=seed)[i] for seed in range(6)]).reshape(3, 2, 4, -1) for i in (0, 1)
    )
    query = np.random.default_rng(9).normal(size=(3, 2, 5, 9))
    some = np.arange(4) < np.array([4, 2, 0])[:, None, None]
    pairs = np.random.default_rng(1).random((3, 2, 5, 4)) < 0.6
    for alpha, mask in ((ALPHA, some), (np.array([0.1, 1.0]), pairs), (np.full((3, 1), 0.5), None)):
        op = functools.partial(constrained_intention, alpha=alpha, mask=mask)
        primal, dual = (jax.jit(functools.partial(op, route=route)) for route in ("primal", "dual"))
        close(primal(query, key, value), dual(query, key, value))
        assert str(jax.make_jaxpr(op)(query, key, value)) == str(dual.trace(query, key, value).jaxpr)
    one = value[:1, :1], key[0, 0]
    close(weights(one[1], one[0], alpha=ALPHA), weights(one[1], one[0], alpha=ALPHA, route="primal"))


@pytest.mark.parametrize("route", ["primal", "dual"])
def test_steps_end_where_exchanges_do(route, x64, monkeypatch):
    key, value, *_ = draw(n=20, d=24, k=40)
    expected = weights(key, value, alpha=ALPHA, route=route)
    assert (expected >= -1e-12).all() and 0.2 < (expected > 1e-9).mean() < 0.8
    none = lambda conditions, gap, equality, tolerance: (equality, jnp.zeros((*gap.shape[:-1], 1), bool))
    monkeypatch.setattr(module, "_exchanged", none)
    close(jax.jit(lambda: constrained_weights(key, value, alpha=ALPHA, route=route))(), expected)


def test_boxes_are_bounded_least_squares(x64):
    key, value, *_ = draw(d=6, k=1)
    box = np.concatenate([np.eye(6), -np.eye(6)], 1)  # -0.1 <= w <= 0.2
    bounds = np.repeat([-0.1, -0.2], 6)
    stacked = np.concatenate([key, ALPHA**0.5 * np.eye(6)]), np.concatenate([value[:, 0], np.zeros(6)])
    oracle = optimize.lsq_linear(*stacked, (-0.1, 0.2), method="bvls", tol=1e-14)
    close(weights(key, value, alpha=ALPHA, constraints=box, bounds=bounds)[:, 0], oracle.x)


def test_float32(x64):
    for seed in range(3):
        key, value, constraints, bounds = draw(p=7, seed=seed)
        expected = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds)
        arrays = [x.astype(np.float32) for x in (key, value, constraints, bounds)]
        single = weights(*arrays[:2], alpha=ALPHA, constraints=arrays[2], bounds=arrays[3])
        assert single.dtype == np.float32
        close(single, expected, 2e-4)


def test_equalities_hold_and_are_the_formula(x64):
    key, value, constraints, bounds = draw()
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method="equality")
    close(constraints.T @ w, bounds[:, None] + np.zeros((3, 2)))
    free = free_weights(key, value, alpha=ALPHA)
    z = np.linalg.inv(key.T @ key + ALPHA * np.eye(4))
    step = np.linalg.solve(constraints.T @ z @ constraints, constraints.T @ free - bounds[:, None])
    close(w, free - z @ constraints @ step)


def test_one_shot_is_the_formula_of_the_paper(x64):
    key, value, constraints, bounds = draw(seed=3)
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method="one_shot")
    assert (constraints.T @ free_weights(key, value, alpha=ALPHA) < bounds[:, None]).any(0).all()
    close(w, reference(key, value, constraints, bounds, "one_shot"))


def test_one_shot_can_violate_what_was_satisfied(x64):
    # K'K = I, so w is the point nearest to w* = (-1, 0.5). Violated: w_1 >= 0. Moving there breaks w_2 - w_1 >= 1.
    key, value, constraints, bounds = np.eye(8, 4), np.zeros((8, 2)), np.zeros((4, 3)), np.array([0.0, 1.0, -1.0])
    value[:2] = (1 + ALPHA) * np.array([[-1.0], [0.5]])
    constraints[:2, :2] = [[1.0, -1.0], [0.0, 1.0]]
    once = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method="one_shot")
    exact = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds)
    close(once[:, 0], [0, 0.5, 0, 0], 1e-7)
    assert constraints[:, 1] @ once[:, 0] < 1
    close(exact[:, 0], [0, 1, 0, 0], 1e-7)


def test_one_constraint_and_no_violation(x64):
    key, value, constraints, bounds = draw(p=1)
    close(
        weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds),
        weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method="one_shot"),
    )
    free = free_weights(key, value, alpha=ALPHA)
    for method in ("exact", "one_shot"):
        close(weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds - 100, method=method), free)
    close(weights(key, value, alpha=ALPHA, constraints=np.ones((4, 0))), free)


def test_some_equalities_among_inequalities(x64):
    key, value, constraints, bounds = draw(p=4, seed=1)
    equality = np.array([True, False, False, False])
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, equality=equality)
    both = np.concatenate([constraints, -constraints[:, :1]], 1), np.concatenate([bounds, -bounds[:1]])
    close(constraints[:, 0] @ w, bounds[0] + np.zeros(2))
    for column in range(2):
        close(w[:, column], quadratic_program(key, value[:, column], *both), 1e-5)


def test_bounds_may_differ_between_columns(x64):
    key, value, constraints, bounds = draw()
    each = np.stack([bounds, bounds - 1], -1)
    w = weights(key, value, alpha=ALPHA, constraints=constraints, bounds=each)
    for column in range(2):
        close(
            w[:, column], weights(key, value, alpha=ALPHA, constraints=constraints, bounds=each[:, column])[:, column]
        )


def test_repeated_and_impossible_constraints(x64):
    key, value, constraints, bounds = draw(p=1)
    twice = np.tile(constraints, (1, 3)), np.tile(bounds, 3)
    close(
        weights(key, value, alpha=ALPHA, constraints=twice[0], bounds=twice[1]),
        weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds),
    )
    opposite = np.concatenate([constraints, -constraints, constraints], 1)
    for method in ("exact", "equality"):
        w = weights(key, value, alpha=ALPHA, constraints=opposite, bounds=np.ones(3), method=method)
        assert np.isnan(w).all()


def test_primal_is_dual(x64):
    key, value, constraints, bounds = draw(n=4, d=9)
    options = dict(alpha=ALPHA, constraints=constraints, bounds=bounds)
    primal, dual = (jax.jit(functools.partial(constrained_weights, **options, route=x)) for x in ("primal", "dual"))
    close(primal(key, value), dual(key, value))
    auto = jax.make_jaxpr(functools.partial(constrained_weights, **options))(key, value)
    assert str(auto) == str(dual.trace(key, value).jaxpr)


# Laws


@pytest.mark.parametrize("method", METHODS)
def test_laws(method, x64):
    key, value, constraints, bounds = draw()
    query = np.random.default_rng(9).normal(size=(4, 4))
    op = functools.partial(predict, alpha=ALPHA, constraints=constraints, bounds=bounds, method=method)
    out = op(query, key, value)
    close(out, query @ weights(key, value, alpha=ALPHA, constraints=constraints, bounds=bounds, method=method))
    rows = np.random.default_rng(0).permutation(8)
    close(op(query[::-1], key[rows], value[rows]), out[::-1])
    keep = np.array([1, 0, 1, 1, 0, 1, 1, 0], bool)
    spoil = np.where(keep, 0.0, np.nan)[:, None]
    alone = query @ reference(key[keep], value[keep], constraints, bounds, method)
    close(op(query, key + spoil, value + spoil, mask=keep), alone)
    pairs = np.array([keep, np.zeros(8), np.ones(8), keep]).astype(bool)
    close(op(query, key, value, mask=pairs), [alone[0], np.zeros(2), out[2], alone[3]])
    close(op(query, key[:0], value[:0]), np.zeros((4, 2)))


@pytest.mark.parametrize("mask", [np.arange(3)[:, None] > np.zeros(8), np.zeros(8, bool)])
def test_without_a_ridge_a_query_without_keys_gives_zeros_and_finite_gradients(mask):
    query, (key, value, *_) = np.ones((3, 4), np.float32), draw(dtype=np.float32)

    def loss(*arguments):
        out = constrained_intention(*arguments, mask=mask, alpha=0.0)
        return out.sum(), out

    grads, out = jax.jit(jax.grad(loss, argnums=range(3), has_aux=True))(query, key, value)
    close(out[0], np.zeros(2))
    assert all(np.isfinite(g).all() for g in grads) and np.asarray(grads[2]).any() == mask.any()


@pytest.mark.parametrize("method", METHODS)
def test_no_key_left_gives_zeros_and_finite_gradients(method):
    key, value, constraints, bounds = draw(dtype=np.float32)
    mask = np.zeros(8, bool)

    def loss(q, k, v, c, b):
        out = constrained_intention(q, k, v, mask=mask, constraints=c, bounds=b, method=method)
        return out.sum(), out

    grads, out = jax.jit(jax.grad(loss, argnums=range(5), has_aux=True))(key, key, value, constraints, bounds)
    close(out, np.zeros((8, 2)))
    assert all(not np.asarray(g).any() for g in grads)


def test_batch_axes_are_loops(x64):
    key, value, constraints, bounds = (np.stack(x) for x in zip(*(draw(seed=seed) for seed in range(4))))
    mask = np.arange(8) < np.array([8, 5, 0, 3])[:, None]
    one = lambda k, v, c, b, m: constrained_weights(k, v, alpha=ALPHA, constraints=c, bounds=b[..., None], mask=m)
    loop = np.stack([reference(k[m], v[m], c, b) for k, v, c, b, m in zip(key, value, constraints, bounds, mask)])
    close(jax.jit(one)(key, value, constraints, bounds, mask), loop)
    close(jax.jit(jax.vmap(one))(key, value, constraints, bounds, mask), loop)
    shared = np.stack([reference(k[m], v[m], constraints[0], bounds[0]) for k, v, m in zip(key, value, mask)])
    close(jax.jit(one)(key, value, constraints[0], bounds[0], mask), shared)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_against_finite_differences(method, x64):
    mask = np.arange(8) != 2
    op = lambda k, v, c, b, a: constrained_weights(k, v, mask=mask, alpha=a, constraints=c, bounds=b, method=method)
    check_gradients(op, *draw(seed=2), ALPHA)


def test_gradients_of_systems_of_the_number_of_keys(x64):
    mask = np.arange(4) != 2
    check_gradients(
        lambda k, v, a: constrained_weights(k, v, mask=mask, alpha=a, route="dual"), *draw(n=4, d=6)[:2], ALPHA
    )


def test_low_precision_in_low_precision_out():
    key, value, constraints, bounds = draw(dtype=jnp.bfloat16)
    out = predict(key, key, value, alpha=ALPHA, constraints=constraints, bounds=bounds)
    assert out.dtype == jnp.bfloat16
    key, value, constraints, bounds = (np.float64(x) for x in (key, value, constraints, bounds))
    close(np.float64(out), key @ reference(key, value, constraints, bounds), 0.02)


def test_what_is_refused():
    key, value, constraints, bounds = draw(dtype=np.float32)
    for message, options in [
        ("unknown method 'simplex'", dict(method="simplex")),
        ("unknown route", dict(route="fast")),
        ("pass alpha=0", dict(route="pinv")),
        ("alpha must be >= 0", dict(alpha=-1.0)),
        (r"expected constraints \[..., 4, p\]", dict(constraints=constraints.T)),
        (r"expected constraints \[..., 4, p\]", dict(constraints=constraints, bounds=np.ones(4))),
        (r"expected equality \[3\]", dict(constraints=constraints, bounds=bounds, equality=np.ones(2, bool))),
    ]:
        with pytest.raises(ValueError, match=message):
            constrained_intention(key, key, value, **options)


def test_without_constraints_in_effect_it_is_intention(x64):
    key, value, constraints, bounds = draw()
    out = predict(key[:4], key, value, alpha=ALPHA, constraints=constraints, bounds=bounds - 100)
    close(out, jax.jit(functools.partial(intention, alpha=ALPHA))(key[:4], key, value))


@pytest.mark.parametrize(
    "n, scale, tolerance", [(4, 1, 1e-5), (4, 100, 1e-5), (8, 100, 1e-5), (3, 1, 1e-3), (3, 100, np.inf)]
)
def test_small_problems_in_float32_have_the_answer_of_scipy(n, scale, tolerance):
    """Keys with a condition number up to 1 / epsilon of float32, and beyond (n = 3, times 100), which are finite."""
    rng, alpha, d = np.random.default_rng(n), 1e-3, 4
    key = (scale * rng.integers(0, 6, (20, n, d))).astype(np.float32)
    query, value = (rng.normal(size=(20, *shape)).astype(np.float32) for shape in ((5, d), (n, 2)))
    found = predict(query, key, value, alpha=alpha)
    assert np.isfinite(found).all()
    for q, k, v, ours in zip(*map(np.float64, (query, key, value)), found):
        rows, zeros = np.vstack([k, np.sqrt(alpha) * np.eye(d)]), np.zeros(d)
        weights = np.stack([optimize.nnls(rows, np.append(column, zeros))[0] for column in v.T], 1)
        assert np.abs(ours - q @ weights).max() <= tolerance * max(np.abs(q @ weights).max(), 1e-3)
