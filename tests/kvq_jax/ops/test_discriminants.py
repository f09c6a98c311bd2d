"""Discriminants: scikit-learn, the dual of Suykens, routes, identities by hand and the laws of KVQ space."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import Ridge, RidgeClassifier

from kvq_jax.ops import OPERATORS, intention
from kvq_jax.ops.discriminants import RULES
from tests.kvq_jax.ops.gradients import check_gradients
from tests.kvq_jax.ops.programs import compiled
from tests.kvq_jax.ops.reference import close

DISCRIMINANTS = {name: row.function for name, row in OPERATORS.items() if row.labels or name == "ls_svm"}
every = pytest.mark.parametrize("name", DISCRIMINANTS)
STATIC = {"ls_svm": (), "lda": ("rule",), "within_class": ("rule",), "qda": ("pooling",)}


JITTED = {name: compiled(op, "alpha", "route", *STATIC[name]) for name, op in DISCRIMINANTS.items()}
ridge = compiled(intention, "alpha", "route")  # with sample weights
ls_svm, lda, within_class, qda = JITTED.values()


def draw(m=4, n=9, d=3, classes=3, seed=0, dtype=np.float64):
    """Queries, keys and one-hot labels; every class has a key."""
    rng = np.random.default_rng(seed)
    label = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    key = rng.normal(size=(n, d)) + rng.normal(size=(classes, d))[label] + 1
    return [x.astype(dtype) for x in (rng.normal(size=(m, d)), key, np.eye(classes)[label])]


def differences(scores):
    """What decides between classes."""
    return np.asarray(scores)[..., 1:] - np.asarray(scores)[..., :1]


# Oracles


def test_ridge_is_scikit_learn_with_sample_weights(x64):
    q, k, v = draw()
    weight = np.random.default_rng(1).uniform(0.1, 3, len(k))
    oracle = Ridge(alpha=0.7, fit_intercept=False).fit(k, v, sample_weight=weight)
    close(ridge(q, k, v, alpha=0.7, sample_weight=weight), oracle.predict(q))
    close(ridge(q, k, v, alpha=0.7), intention(q, k, v, alpha=0.7))


@pytest.mark.parametrize("weighted", [False, True])
def test_ls_svm_is_scikit_learn_ridge_classifier(weighted, x64):
    q, k, v = draw(m=20)
    weight = np.random.default_rng(1).uniform(0.1, 3, len(k)) if weighted else None
    oracle = RidgeClassifier(alpha=0.7, solver="cholesky").fit(k, np.argmax(v, -1), sample_weight=weight)
    scores = ls_svm(q, k, v, alpha=0.7, sample_weight=weight)
    close(scores, oracle.decision_function(q))
    close(np.argmax(scores, -1), oracle.predict(q))


@pytest.mark.parametrize("d", [3, 20])
def test_ls_svm_solves_the_dual_system_of_suykens(d, x64):
    q, k, v = draw(d=d)
    y = 2 * v - 1
    alpha, n = 0.7, len(k)
    # [0 1'; 1 KK' + I / gamma] [b; a] = [0; y], gamma = 1 / alpha
    system = np.block([[np.zeros((1, 1)), np.ones((1, n))], [np.ones((n, 1)), k @ k.T + alpha * np.eye(n)]])
    solution = np.linalg.solve(system, np.concatenate([np.zeros((1, 3)), y]))
    close(ls_svm(q, k, v, alpha=alpha), q @ k.T @ solution[1:] + solution[0])


def test_ls_svm_is_a_column_of_ones_without_penalty(x64):
    q, k, v = draw()
    ones = lambda x: np.concatenate([x, np.ones((len(x), 1))], 1)
    penalty = 0.7 * np.diag([1, 1, 1, 0])
    expected = ones(q) @ np.linalg.solve(ones(k).T @ ones(k) + penalty, ones(k).T @ (2 * v - 1))
    close(ls_svm(q, k, v, alpha=0.7), expected)


@pytest.mark.parametrize("classes", [2, 4])
def test_within_class_is_scikit_learn_lda(classes, x64):
    q, k, v = draw(m=7, n=30, classes=classes)
    oracle = LinearDiscriminantAnalysis(solver="lsqr").fit(k, np.argmax(v, -1))
    scores = within_class(q, k, v, alpha=0)
    expected = oracle.decision_function(q)
    close(differences(scores), expected[:, None] if classes == 2 else differences(expected), 1e-7)
    close(jax.nn.softmax(scores), oracle.predict_proba(q), 1e-7)


@pytest.mark.parametrize("d", [3, 40])
def test_within_class_with_a_ridge_is_scikit_learn_shrinkage(d, x64):
    q, k, v = draw(n=30, d=d, classes=4)
    share = 0.3
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share).fit(k, np.argmax(v, -1))
    residuals = k - v @ (v.T @ k / v.sum(0)[:, None])
    alpha = share / (1 - share) * float((residuals**2).sum()) / d
    scores = within_class(q, k, v, alpha=alpha) - np.log(v.mean(0))
    # Their covariance is (1 - share) times ours.
    close(differences(scores), (1 - share) * differences(oracle.decision_function(q) - np.log(v.mean(0))), 1e-7)


@pytest.mark.parametrize("d", [3, 12])
def test_qda_is_the_log_density_of_gaussian_classes(d, x64):
    q, k, v = draw(n=15, d=d)
    expected = []
    for c in range(3):
        own = k[v[:, c] == 1]
        scatter = (own - own.mean(0)).T @ (own - own.mean(0))
        gaussian = multivariate_normal(own.mean(0), (scatter + 0.7 * np.eye(d)) / len(own))
        expected.append(gaussian.logpdf(q) + d / 2 * np.log(2 * np.pi) + np.log(len(own) / 15))
    close(qda(q, k, v, alpha=0.7), np.stack(expected, -1))


def test_qda_is_scikit_learn_qda(x64):
    q, k, v = draw(m=20, n=40)
    copies = 5000  # of every key: then their covariance, divided by n - 1, is ours, divided by n
    oracle = QuadraticDiscriminantAnalysis(solver="svd").fit(np.tile(k, (copies, 1)), np.tile(np.argmax(v, -1), copies))
    close(jax.nn.softmax(qda(q, k, v, alpha=1e-10)), oracle.predict_proba(q), 1e-3)
    close(np.argmax(qda(q, k, v, alpha=1e-10), -1), oracle.predict(q))


@pytest.mark.parametrize("d", [3, 12])
def test_pooled_qda_is_linear(d, x64):
    q, k, v = draw(d=d)
    close(differences(qda(q, k, v, alpha=0.7, pooling=1.0)), differences(within_class(q, k, v, alpha=0.7)), 1e-7)


# Identities


@pytest.mark.parametrize("rule", RULES)
def test_label_maps_by_hand(rule):
    # Class 0: (0, 0), (0, 2); class 1: (4, 2), (4, 4). Mean difference (4, 2), class means (0, 1), (4, 3).
    k = np.array([[0.0, 0], [0, 2], [4, 2], [4, 4]])
    v = np.eye(2)[[0, 0, 1, 1]]
    q = np.array([[1.0, 1], [2, 2], [0, 0]])
    # Within-class scatter diag(0, 4); with alpha = 1 Sigma = diag(1, 5) and w = (4, 2 / 5).
    w, midpoint = np.array([4, 0.4]), np.array([2, 2])
    scores = within_class(q, k, v, alpha=1.0, rule=rule)
    expected = {"paper": q @ w, "fisher": (q - midpoint) @ w, "bayes": 4 * (q - midpoint) @ w}[rule]
    close(scores[:, 1] - scores[:, 0] if rule == "bayes" else scores[:, 1], expected, 1e-5)


@pytest.mark.parametrize("op", [lda, within_class])
@pytest.mark.parametrize("d", [3, 12])
def test_one_column_and_two_columns_are_the_same_problem(op, d, x64):
    q, k, v = draw(d=d, classes=2)
    weight = np.arange(1.0, 10.0)
    for rule in ("fisher", "paper"):
        two = op(q, k, v, rule=rule, sample_weight=weight)
        close(two[:, :1], -two[:, 1:])
        close(op(q, k, v[:, 1:], rule=rule, sample_weight=weight), two[:, 1:])
    linear = op(q, k, v, rule="paper") - op(0 * q, k, v, rule="paper")
    bayes = op(q, k, v) - op(0 * q, k, v)
    close(bayes[:, 1] - bayes[:, 0], 9 * linear[:, 1])


@pytest.mark.parametrize("alpha", [0, 5.0])
def test_two_class_weights_of_lda_and_within_class_are_parallel(alpha, x64):
    # Their scatters differ by a multiple of (m_1 - m_0)(m_1 - m_0)', which a ridge does not change.
    _, k, v = draw(classes=2)
    total, within = (op(np.eye(3), k, v, alpha=alpha, rule="paper")[:, 1] for op in (lda, within_class))
    assert total @ within == pytest.approx(np.linalg.norm(total) * np.linalg.norm(within), rel=1e-12)
    assert np.linalg.norm(total) < np.linalg.norm(within)


def test_lda_by_its_formula(x64):
    q, k, v = draw()
    centred = k - k.mean(0)
    w = np.linalg.solve(centred.T @ centred + 0.7 * np.eye(3), k.T @ (v / v.sum(0) - (1 - v) / (1 - v).sum(0)))
    close(lda(q, k, v, alpha=0.7, rule="paper"), q @ w)
    means, rest = v.T @ k / v.sum(0)[:, None], (1 - v).T @ k / (1 - v).sum(0)[:, None]
    close(lda(q, k, v, alpha=0.7, rule="fisher"), q @ w - ((means + rest) / 2 * w.T).sum(-1))


@every
def test_primal_is_dual(name, x64):
    for d in (4, 12):
        q, k, v = draw(d=d)
        solved = [JITTED[name](q, k, v, alpha=0.3, route=route) for route in ("primal", "dual", "auto")]
        close(solved[0], solved[1])
        close(solved[0], solved[2])


@every
def test_weights_are_copies(name, x64):
    q, k, v = draw()
    times = np.array([1, 2, 1, 3, 1, 1, 2, 0, 1])
    repeated = JITTED[name](q, np.repeat(k, times, 0), np.repeat(v, times, 0))
    close(JITTED[name](q, k, v, sample_weight=times.astype(float)), repeated)


@every
def test_few_shots_in_many_dimensions_solve_small_systems(name):
    q, k, v = draw(m=75, n=25, d=8192, classes=5, dtype=np.float32)
    program = jax.jit(DISCRIMINANTS[name]).lower(q, k, v).compile()
    assert program.memory_analysis().temp_size_in_bytes < 100e6  # one 8192 x 8192 matrix is 268e6
    assert np.isfinite(program(q, k, v)).all()
    close(np.argmax(JITTED[name](k, k, v), -1), np.argmax(v, -1))
    with jax.enable_x64(True):
        exact = differences(JITTED[name](*map(np.float64, (q, k, v)), alpha=0.01))
    error = differences(JITTED[name](q, k, v, alpha=0.01)) - exact
    assert np.abs(error).max() < 1e-4 * np.abs(exact).max()


# Laws


@every
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), keep=st.lists(st.booleans(), min_size=6, max_size=6))
def test_permutations_and_masks(name, seed, keep):
    with jax.enable_x64(True):
        q, k, v = draw(seed=seed)
        rng = np.random.default_rng(seed)
        rows, queries, op = rng.permutation(9), rng.permutation(4), JITTED[name]
        close(op(q[queries], k[rows], v[rows]), op(q, k, v)[queries], 1e-7)
        keep = np.array([True, True, True, *keep])  # draw's first keys are one of each class
        expected = JITTED[name](q, k, v, sample_weight=keep.astype(float))
        spoil = np.where(keep, 0.0, np.nan)[:, None]
        close(JITTED[name](q, k + spoil, v + spoil, mask=keep), expected, 1e-7)


@every
def test_masked_keys_are_deleted_keys(name, x64):
    q, k, v = draw()
    close(JITTED[name](q, k, v, mask=np.arange(9) < 5), JITTED[name](q, k[:5], v[:5]))


@every
def test_each_query_may_have_its_own_keys(name, x64):
    q, k, v = draw(m=3)
    mask = np.ones((3, 9), bool)
    mask[0, 3], mask[1], mask[2, 5] = False, False, False
    weight = np.arange(1.0, 10.0)
    out = jax.jit(lambda *a: DISCRIMINANTS[name](*a, mask=mask, sample_weight=weight, alpha=jnp.float64(0.4)))(q, k, v)
    for row in (0, 2):
        close(out[row], JITTED[name](q, k[mask[row]], v[mask[row]], sample_weight=weight[mask[row]], alpha=0.4)[row])
    close(out[1], np.zeros(3))


@every
@pytest.mark.parametrize("mask_shape, d", [((9,), 12), ((4, 9), 3)])
def test_no_key_left_gives_zeros_and_finite_gradients(name, mask_shape, d):
    q, k, v = draw(d=d, dtype=np.float32)
    k[0] = np.nan
    loss = lambda q, k, v: (lambda out: (out.sum(), out))(DISCRIMINANTS[name](q, k, v, mask=np.zeros(mask_shape, bool)))
    grads, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
    close(out, np.zeros((4, 3)))
    assert all(not np.asarray(g).any() for g in grads)
    close(JITTED[name](q, k[:0], v[:0]), np.zeros((4, 3)))


@pytest.mark.parametrize("name", ["lda", "within_class", "qda"])
def test_a_class_without_keys_is_impossible(name, x64):
    q, k, v = draw(classes=3)
    mask = v[:, 1] == 0
    scores = JITTED[name](q, k, v, mask=mask)
    assert (scores[:, 1] == -jnp.inf).all()
    close(scores[:, [0, 2]], JITTED[name](q, k, v[:, [0, 2]], mask=mask))
    loss = lambda q, k: -jax.nn.log_softmax(DISCRIMINANTS[name](q, k, v, mask=mask))[:, 0].sum()
    assert all(np.isfinite(g).all() for g in jax.jit(jax.grad(loss, argnums=(0, 1)))(q, k))


@every
def test_batch_axes_are_loops(name, x64):
    q, k, v = (np.stack(x) for x in zip(*(draw(seed=seed) for seed in range(4))))
    mask = np.arange(9) < np.array([9, 7, 0, 4])[:, None]
    alpha = np.array([0.1, 0.5, 1.0, 3.0])
    op = jax.jit(DISCRIMINANTS[name])
    loop = np.stack([op(*x[:3], mask=x[3], alpha=x[4]) for x in zip(q, k, v, mask, alpha)])
    close(op(q, k, v, mask=mask, alpha=alpha), loop)
    close(
        jax.jit(jax.vmap(lambda q, k, v, mask, alpha: op(q, k, v, mask=mask, alpha=alpha)))(q, k, v, mask, alpha), loop
    )
    close(op(q, k[0], v[0]), np.stack([op(x, k[0], v[0]) for x in q]))


@pytest.mark.parametrize("name, d", [*((name, 12) for name in DISCRIMINANTS), ("within_class", 3), ("qda", 3)])
def test_gradients_against_finite_differences(name, d, x64):
    q, k, v = draw(d=d, seed=1)
    weight, mask = np.linspace(0.5, 2, 9), np.arange(9) != 4
    op = lambda q, k, w, alpha: DISCRIMINANTS[name](q, k, v, mask=mask, sample_weight=w, alpha=alpha)
    check_gradients(op, q, k, weight, 0.7)


@every
def test_low_precision_in_low_precision_out(name):
    q, k, v = draw(dtype=jnp.bfloat16)
    out = JITTED[name](q, k, v)
    assert out.dtype == jnp.bfloat16
    expected = JITTED[name](*map(np.float32, (q, k, v)))
    close(np.float32(out), expected, 0.01)


def test_what_is_refused():
    q, k, v = draw(dtype=np.float32)
    for message, call in [
        ("unknown rule 'baies'", lambda: lda(q, k, v, rule="baies")),
        ("unknown route", lambda: ridge(q, k, v, route="fast")),
        ("pass alpha=0", lambda: ridge(q, k, v, route="pinv")),
        ("alpha must be >= 0", lambda: ls_svm(q, k, v, alpha=-1)),
        ("qda needs alpha > 0", lambda: qda(q, k, v, alpha=0)),
        ("pooling must be in .0, 1., got 1.7", lambda: qda(q, k, v, pooling=1.7)),
        ("needs one column of labels for each class", lambda: lda(q, k, v[:, :1])),
        ("needs one column of labels for each class", lambda: qda(q, k, v[:, :1])),
        (r"expected sample_weight \[..., 9\]", lambda: ridge(q, k, v, sample_weight=np.ones(8))),
        ("expected query", lambda: lda(q, k[:4], v)),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
