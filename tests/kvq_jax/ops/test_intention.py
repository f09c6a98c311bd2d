"""Intention: routes, forms, limits and oracles; the laws it shares with attention are in test_laws.py."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg
from sklearn.linear_model import Ridge

from kvq_jax.ops import (
    informer,
    intention,
    intention_weights,
    least_squares,
    linear_attention,
    sigma_informer,
    sigma_intention,
    softmax_attention,
)
from tests.kvq_jax.ops.gradients import check_gradients
from tests.kvq_jax.ops.reference import close

both = pytest.mark.parametrize("op", [intention, sigma_intention])
SHAPES = [(3, 7, 2, 4), (2, 3, 5, 1), (3, 4, 4, 2), (2, 1, 3, 2)]  # M, N, d, k: N > d, N < d, N = d, one key


def draw(shape, seed=0):
    m, n, d, k = shape
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s) for s in ((m, d), (n, d), (n, k))]


def compiled(function):
    """What a function without arguments returns, from one program."""
    return jax.jit(function)()


@both
@pytest.mark.parametrize("form", ["ridge", "informer"])
@pytest.mark.parametrize("shape", SHAPES)
def test_primal_is_dual(op, form, shape, x64):
    q, k, v = draw(shape)
    mask = np.arange(shape[1]) != 1
    solved = compiled(
        lambda: [op(q, k, v, mask=mask, alpha=0.3, form=form, route=r) for r in ("primal", "dual", "auto")]
    )
    close(solved[0], solved[1])
    close(solved[0], solved[2])


@pytest.mark.parametrize("table", [least_squares.PREDICTIONS, least_squares.MAPS, least_squares.WEIGHTS])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_plan_gives_the_same_output(table, shape, x64):
    q, k, v = draw(shape)
    system = lambda rows: rows @ rows.T + 0.3 * jnp.eye(len(rows))
    outputs = compiled(
        lambda: [plan.run(*map(jnp.asarray, (q, k, v)), system) for plan in table if plan.route != "pinv"]
    )
    for out in outputs[1:]:
        close(out, outputs[0])


@both
@pytest.mark.parametrize("shape", SHAPES)
def test_pinv_is_the_limit_of_small_alpha(op, shape, x64):
    q, k, v = draw(shape)
    keep = np.array([i for i in range(shape[1]) if i != 1])
    mask = np.arange(shape[1]) != 1
    exact, limit, informers, masked, deleted = compiled(
        lambda: (
            op(q, k, v, alpha=0),
            op(q, k, v, alpha=1e-9),
            op(q, k, v, alpha=0.0, route="pinv", form="informer"),
            op(q, k, v, alpha=0, mask=mask),
            op(q, k[keep], v[keep], alpha=0),
        )
    )
    close(limit, exact, 1e-5)
    close(informers, exact, 1e-12)
    close(masked, deleted, 1e-9)


@both
def test_pinv_gradients(op, x64):
    for shape in ((3, 5, 2, 4), (2, 3, 5, 1)):
        check_gradients(lambda *a: op(*a, alpha=0), *draw(shape))
    q, k, v = draw((3, 5, 2, 4))
    grads = jax.jit(jax.grad(lambda *a: op(*a, alpha=0, mask=np.zeros(5, bool)).sum(), argnums=(0, 1, 2)))(q, k, v)
    assert not any(np.asarray(g).any() for g in grads)


@pytest.mark.parametrize("shape", SHAPES)
def test_scikit_learn_ridge(shape, x64):
    q, k, v = draw(shape)
    oracle = Ridge(alpha=0.7, fit_intercept=False).fit(k, v)
    out, w = compiled(lambda: (intention(q, k, v, alpha=0.7), intention_weights(k, v, alpha=0.7)))
    close(out, oracle.predict(q).reshape(len(q), -1))
    close(w, np.atleast_2d(oracle.coef_).T)


def test_numbers_by_hand():
    one = lambda x: np.array([[x]], np.float32)
    q, k, v = one(2.0 * np.log(3.0)), np.float32([[1], [0]]), np.float32([[4], [0]])
    outputs = compiled(
        lambda: [
            intention(one(1.0), one(4.0), one(1.0), alpha=0),  # f_ls = 1 / kappa
            intention(one(1.0), one(2.0), one(3.0), alpha=2.0),  # 2 * 3 / (4 + 2)
            informer(one(1.0), one(2.0), one(3.0), alpha=0.25),  # 6 / (0.75 * 4 + 0.25)
            sigma_intention(one(5.0), one(2.0), one(3.0), alpha=2.0),  # one key: softmax is one
            sigma_intention(q, k, v, alpha=1.0),  # two keys, scores q k / (k'k + alpha) = log 3 and 0
        ]
    )
    close(np.ravel(outputs), [0.25, 1.0, 6 / 3.25, 3.0, 3.0], 1e-6)


def test_small_alpha_recovers_the_map_from_noiseless_data(x64):
    q, k, _ = draw((4, 9, 3, 2))
    w = np.random.default_rng(5).normal(size=(3, 2))
    small, none, out = compiled(
        lambda: (
            intention_weights(k, k @ w, alpha=1e-10),
            intention_weights(k, k @ w, alpha=0),
            intention(q, k, k @ w, alpha=0),
        )
    )
    close(small, w, 1e-8)
    close(none, w, 1e-10)
    close(out, q @ w, 1e-10)


@pytest.mark.parametrize("op, limit", [(intention, linear_attention), (sigma_intention, softmax_attention)])
@pytest.mark.parametrize("route", ["primal", "dual"])
def test_large_alpha_is_attention(op, limit, route, x64):
    q, k, v = draw((3, 7, 2, 4))
    gap = jax.jit(lambda alpha: jnp.abs(op(alpha * q, k, v, alpha=alpha, route=route) - limit(q, k, v)).max())
    assert gap(1e6) < 1e-3 and gap(1e8) < 0.02 * gap(1e6)  # at rate 1 / alpha


@pytest.mark.parametrize("op, of", [(informer, intention), (sigma_informer, sigma_intention)])
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_informer_is_a_rescaled_ridge(op, of, shape, x64):
    # [(1 - a) G + a I]^-1 = [G + a / (1 - a) I]^-1 / (1 - a)
    q, k, v = draw(shape)
    limit = linear_attention if of is intention else softmax_attention
    pairs = compiled(
        lambda: [
            (op(q, k, v, alpha=0.2), of(q / 0.8, k, v, alpha=0.25)),
            (op(q, k, v), op(q, k, v, alpha=jax.nn.sigmoid(0.0))),
            (op(q, k, v, alpha=1), limit(q, k, v)),
        ]
    )
    for ours, expected in pairs:
        close(ours, expected)


@pytest.mark.parametrize("route", ["primal", "dual", "auto"])
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_are_the_map_that_intention_applies(route, shape, x64):
    q, k, v = draw(shape)
    mask = np.arange(shape[1]) != 1
    w, out = compiled(
        lambda: (intention_weights(k, v, mask=mask, alpha=0.3, route=route), intention(q, k, v, mask=mask, alpha=0.3))
    )
    assert w.shape == (shape[2], shape[3])
    close(q @ np.asarray(w), out)


def test_weights_without_keys_are_zeros():
    k, v = np.ones((4, 2), np.float32), np.ones((4, 3), np.float32)
    none, masked = compiled(lambda: (intention_weights(k[:0], v[:0]), intention_weights(k, v, mask=np.zeros(4, bool))))
    close(none, np.zeros((2, 3)))
    close(masked, np.zeros((2, 3)))


@both
@pytest.mark.parametrize("route", ["primal", "dual"])
def test_learnt_alpha(op, route, x64):
    q, k, v = (np.stack(x) for x in zip(*(draw((3, 5, 2, 4), seed) for seed in range(2))))
    per_head = np.array([0.1, 2.0])
    run = jax.jit(functools.partial(op, route=route))
    expected = np.stack([run(q[i], k[i], v[i], alpha=per_head[i]) for i in range(2)])
    close(compiled(lambda: op(q[1], k[1], v[1], alpha=2.0, route=route)), expected[1])
    close(run(q, k, v, alpha=per_head), expected)
    close(run(q, k, v, alpha=per_head, mask=np.ones((2, 3, 5), bool)), expected)
    check_gradients(lambda a: op(q, k, v, alpha=a, route=route), per_head)


@both
@pytest.mark.parametrize("route", ["primal", "dual"])
def test_duplicate_keys(op, route, x64):
    q, k, v = draw((3, 4, 2, 2))
    k, v = np.concatenate([k, k]), np.concatenate([v, v])
    out, half, grads, exact = compiled(
        lambda: (
            op(q, k, v, alpha=1e-2, route=route),
            op(q, k[:4], v[:4], alpha=5e-3, route=route),
            jax.grad(lambda *a: op(*a, alpha=1e-2, route=route).sum(), argnums=(0, 1, 2))(q, k, v),
            op(q, k, v, alpha=0),  # rank deficient in the dual
        )
    )
    if op is intention:  # twice the data is half the ridge
        close(out, half)
    assert all(np.isfinite(g).all() for g in grads)
    assert np.isfinite(exact).all()


@pytest.mark.parametrize("alpha", [1e-1, 1e-3, 1e-4])  # condition 1e3, 1e5, 1e6
def test_float32_of_a_large_and_badly_conditioned_system(alpha):
    rng = np.random.default_rng(0)
    n = 150  # above the size of one block
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    k = (basis * np.logspace(1, -3, n)) @ basis.T
    q, v = rng.normal(size=(8, n)), k @ rng.normal(size=(n, 8))
    exact = q @ np.linalg.solve(k.T @ k + alpha * np.eye(n), k.T @ v)
    error = lambda x: np.linalg.norm(np.asarray(x, np.float64) - exact) / np.linalg.norm(exact)
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    gram = k @ k.T + np.float32(alpha) * np.eye(n, dtype=np.float32)
    library = {
        "dual": q @ k.T @ linalg.cho_solve(linalg.cho_factor(gram), v),
        "primal": q @ linalg.cho_solve(linalg.cho_factor(gram), k.T @ v),
    }  # k is symmetric here
    for route, expected in library.items():
        assert error(jax.jit(functools.partial(intention, alpha=alpha, route=route))(q, k, v)) <= 2 * error(expected), (
            route
        )


@pytest.mark.parametrize("shape", [(2, 64, 4, 3), (64, 5, 40, 3), (3, 5, 40, 64), (64, 5, 40, 1)])
def test_auto_takes_the_plan_with_the_fewest_products(shape):
    m, n, d, k = shape
    chosen = least_squares.cheapest(least_squares.PREDICTIONS, "auto", m, n, d, k)
    assert chosen.route == ("primal" if d < n else "dual")
    assert chosen.cost(m, n, d, k) == min(p.cost(m, n, d, k) for p in least_squares.PREDICTIONS if p.route != "pinv")


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(alpha=-1.0), "alpha must be >= 0"),
        (dict(alpha=float("nan")), "alpha must be >= 0"),
        (dict(alpha=1.5, form="informer"), r"alpha must be in \[0, 1\]"),
        (dict(route="fast"), "unknown route 'fast'.* known: auto, primal, dual, pinv"),
        (dict(form="lasso"), "unknown form 'lasso'.* known: ridge, informer"),
        (dict(route="pinv", alpha=0.1), "pass alpha=0"),
    ],
)
@pytest.mark.parametrize("op", [intention, sigma_intention, lambda q, k, v, **o: intention_weights(k, v, **o)])
def test_bad_options_are_one_clear_line(op, options, message):
    with pytest.raises(ValueError, match=message) as error:
        op(np.ones((2, 3)), np.ones((4, 3)), np.ones((4, 1)), **options)
    assert "\n" not in str(error.value)
