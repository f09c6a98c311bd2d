"""Classical linear models as covariance and label maps: w = Sigma^-1 K'y (Garnelo and Czarnecki 2023, Section 3.2).

    intention     Sigma = K'WK + alpha I                      y = W Y, with sample weights W (I if none)
    ls_svm        Sigma = K'WK + alpha diag(1, .., 1, 0)      y = W (2 Y - 1), K with a column of ones
    lda           Sigma = scatter about the mean + alpha I    y_c = Y_c / N_c - (1 - Y_c) / (N - N_c)
    within_class  Sigma = scatter about the mean of each key's class + alpha I, y_c as lda. The paper calls this "QDA"
    qda           not of this form: a covariance, and so a quadratic boundary, for every class

Values are labels: one column [N, 1] of 0 and 1 for two classes, or one-hot columns [N, C]. `intention` and `ls_svm`
take any real values. Scores [M, C] are larger where a class is likelier.

Corrected against the paper (Section 3.2 and its proof): its weighted ridge regression has y = sqrt(W) Y beside an
unweighted K; its label map of LDA gives a multiple of the sum of the class means, not their difference. Its "QDA" is
Fisher's discriminant with the pooled within-class scatter. For two classes its weights are parallel to those of its
LDA, for every alpha, since the scatters differ by a multiple of (m_1 - m_0)(m_1 - m_0)'.

Where d > N only N x N systems are solved. A masked key is an absent key; a query without keys gets zeros. To
`intention`, `ls_svm` and `lda` labels between 0 and 1 are parts of a key in each class; `within_class` and `qda` take
such a key as one, with the mixture of its classes' means for its mean. The gradient for a sample weight of exactly 0 is
taken as 0.
"""

import numbers
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from kvq_jax.names import choose
from kvq_jax.ops import least_squares, linalg
from kvq_jax.ops.least_squares import positive
from kvq_jax.ops.linalg import cross, matmul, transpose
from kvq_jax.ops.masks import Mask, Scalar


def ls_svm(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1.0,
    unit: str = "one",
    sample_weight: Array | None = None,
    route: str = "auto",
) -> Array:
    """Q w + b with (w, b) least squares on the labels 2 V - 1; |w|^2 is penalised, b is not.

    [K 1]'W[K 1] + alpha diag(1, .., 1, 0): LS-SVM, Garnelo and Czarnecki 2023, proof of Section 3.2. The same as the
    dual system of Suykens and Vandewalle 1999 with gamma = 1 / alpha. Solved as ridge regression on centred data, which
    eliminates b. Every column is a problem of its own: one against the rest.

    Shapes and options as `intention`; value [..., N, C] holds labels 0 and 1, or any real values.
    """
    route = least_squares.checked_route(alpha, route)

    def run(query, key, value, weight, alpha):
        sign = 2 * value - 1
        root, centre = least_squares.root(weight), least_squares.mean(key, weight)
        bias = least_squares.mean(sign, weight)
        rows, targets = least_squares.in_unit(unit, root * (key - centre), root * (sign - bias))
        return least_squares.predict(query - centre, rows, targets, alpha, route) + bias

    return least_squares.fit(run, query, key, value, mask, sample_weight=sample_weight, scalars=(alpha,))


def lda(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1.0,
    sample_weight: Array | None = None,
    rule: str = "bayes",
    route: str = "auto",
) -> Array:
    """Discriminant with the total scatter: w = (sum_i (k_i - m)(k_i - m)' + alpha I)^-1 K'y.

    Garnelo and Czarnecki 2023, proof of Section 3.2, with the label map corrected: K'y is a difference of class means.

    query [..., M, d], key [..., N, d], value [..., N, C], labels 0 and 1, mask [..., N] or [..., M, N] -> [..., M, C].

    Args:
        alpha: a number >= 0 (0: Moore-Penrose), or an array > 0; added to the scatter, a sum over the keys, not a mean.
        sample_weight: [..., N], >= 0.
        rule: how scores come from Sigma, one of RULES:
            'bayes': K'y_c = m_c - m, and score_c = N [(q - m)'w_c - (m_c - m)'w_c / 2] + log(N_c / N): the log
                posterior, up to a term that classes share, of Gaussian classes with covariance Sigma / N. One column
                for each class. The difference of two columns of w is the w of the paper; a class without keys scores
                -inf;
            'fisher': K'y_c = m_c - m_rest, score_c = (q - (m_c + m_rest) / 2)'w_c: one against the rest, positive on
                the side of c;
            'paper': the same w_c, without a threshold: Q w (Appendix 5, Eq. 16).
        route: 'primal', 'dual', or 'auto' for the cheaper.

    Raises ValueError for rule 'bayes' with one column too.
    """
    return _linear_discriminant(False, query, key, value, mask, alpha, sample_weight, rule, route)


def within_class(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1.0,
    sample_weight: Array | None = None,
    rule: str = "bayes",
    route: str = "auto",
) -> Array:
    """Discriminant with the pooled within-class scatter: w = (S + alpha I)^-1 K'y.

    S = sum_c sum_{i in c} (k_i - m_c)(k_i - m_c)'. The "QDA" of Garnelo and Czarnecki 2023, proof of Section 3.2;
    everybody else's LDA: with rule 'bayes' and alpha = 0 it is scikit-learn's
    LinearDiscriminantAnalysis(solver='lsqr'). For real QDA see `qda`.

    Shapes, options and errors as `lda`.
    """
    return _linear_discriminant(True, query, key, value, mask, alpha, sample_weight, rule, route)


def qda(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1.0,
    sample_weight: Array | None = None,
    pooling: Scalar = 0.0,
    route: str = "auto",
) -> Array:
    """Quadratic discriminant: log N(q; m_c, Sigma_c) + log(N_c / N), with a regularised covariance for every class.

    Sigma_c = (S_c + alpha I) / N_c, S_c the scatter of class c about its mean m_c. With `pooling` t in (0, 1], Friedman
    1989 (Regularized Discriminant Analysis, Eq. 16): S_c(t) = (1 - t) S_c + t S and N_c(t) = (1 - t) N_c + t N, where S
    is the pooled scatter; t = 1 is `within_class`. The term -d/2 log(2 pi) is left out. A class without keys scores
    -inf.

    query [..., M, d], key [..., N, d], value [..., N, C], one-hot, mask [..., N] or [..., M, N] -> [..., M, C].

    Args:
        alpha: > 0, added to the scatters.
        sample_weight: [..., N], >= 0.
        pooling: in [0, 1].
        route: 'primal' (C systems d x d), 'dual' (N x N), or 'auto' for the smaller. Memory C max(M, N) d.

    Raises ValueError for one column too.
    """
    _need_columns(value, "qda")
    if isinstance(alpha, numbers.Real) and not alpha > 0:
        raise ValueError(f"qda needs alpha > 0, got {alpha}: a class may have fewer keys than dimensions")
    if isinstance(pooling, numbers.Real) and not 0 <= pooling <= 1:
        raise ValueError(f"pooling must be in [0, 1], got {pooling}")
    route = least_squares.checked_route(alpha, route)

    def run(query, key, value, weight, alpha, pooling):
        weight = _weight(key, weight)
        count, total, means = _classes(key, value, weight)
        residuals = key - matmul(value, means)
        size = positive((1 - pooling) * count + pooling * total)  # [..., 1, C]
        alpha, pooling = (x if isinstance(x, numbers.Real) else x[..., None] for x in (alpha, pooling))
        share = pooling + (1 - pooling) * transpose(value)[..., None]  # [..., C, N, 1]
        rows = least_squares.root(weight[..., None, :, :] * share) * residuals[..., None, :, :]
        offsets = query[..., None, :, :] - means[..., :, None, :]  # [..., C, M, d]
        squares, log_det = _quadratic_form(rows, offsets, alpha, route)
        log_det = log_det[..., None, :] - key.shape[-1] * jnp.log(size)
        return -(size * transpose(squares) + log_det) / 2 + _log_prior(count, total)

    return least_squares.fit(run, query, key, value, mask, sample_weight=sample_weight, scalars=(alpha, pooling))


def _quadratic_form(rows: Array, offsets: Array, alpha: Scalar, route: str) -> tuple[Array, Array]:
    """x'(A'A + alpha I)^-1 x for offsets x [..., M, d] -> [..., M], and log det(A'A + alpha I) [...]."""
    n, d = rows.shape[-2:]
    primal = route == "primal" or (route == "auto" and d <= n)
    lower = linalg.cholesky(least_squares.system(transpose(rows) if primal else rows, alpha))
    log_det = 2 * jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)).sum(-1)
    whiten = transpose(linalg.inverse_triangle(lower))
    if primal:
        return (matmul(offsets, whiten) ** 2).sum(-1), log_det
    explained = (matmul(matmul(offsets, transpose(rows)), whiten) ** 2).sum(-1)
    ridge = alpha if isinstance(alpha, numbers.Real) else alpha[..., 0]
    log_ridge = jnp.log(alpha) if isinstance(alpha, numbers.Real) else jnp.log(alpha)[..., 0, 0]
    return ((offsets**2).sum(-1) - explained) / ridge, log_det + (d - n) * log_ridge


class Rule(NamedTuple):
    """Scores from Sigma. Keys are centred; counts N_c are [..., 1, C], totals N [..., 1, 1]."""

    labels: Callable[[Array, Array, Array], Array]  # (Y, N_c, N) -> y, for K'y
    scores: Callable[..., Array]  # (Q w, m'w, diagonal of m_c'w_c, N_c, N) -> scores


def _one_against_rest(value, count, total):
    return value / positive(count) - (1 - value) / positive(total - count)


RULES: dict[str, Rule] = {
    "bayes": Rule(
        lambda value, count, total: value / positive(count),
        lambda linear, centre, own, count, total: total * (linear - own / 2) + _log_prior(count, total),
    ),
    # m_rest is -m_c N_c / (N - N_c) where all keys are centred.
    "fisher": Rule(
        _one_against_rest,
        lambda linear, centre, own, count, total: linear - own * (1 - count / positive(total - count)) / 2,
    ),
    "paper": Rule(_one_against_rest, lambda linear, centre, own, count, total: linear + centre),
}


def _linear_discriminant(within: bool, query, key, value, mask, alpha, sample_weight, rule, route) -> Array:
    route, scored = least_squares.checked_route(alpha, route), choose(RULES, rule, "rule")
    if rule == "bayes":
        _need_columns(value, "rule 'bayes'")

    def run(query, key, value, weight, alpha):
        centre, each = least_squares.mean(key, weight), _weight(key, weight)
        query, key = query - centre, key - centre
        count, total, means = _classes(key, value, each)
        labels = scored.labels(value, count, total)
        root = least_squares.root(weight)
        if within:  # class means are outside the span of the rows, so that K'y is not rows' B for any B
            rows = root * (key - _own_mean(value, means, count, total))
            w = least_squares.inverse_times(rows, cross(key, each * labels), alpha, route)
        else:  # a constant in y is invisible to centred keys, but alpha^-1 times as large as the rest in an N x N solve
            w = least_squares.weights(root * key, root * (labels - least_squares.mean(labels, weight)), alpha, route)
        own = (transpose(means) * w).sum(-2, keepdims=True)
        return scored.scores(matmul(query, w), matmul(centre, w), own, count, total)

    return least_squares.fit(run, query, key, value, mask, sample_weight=sample_weight, scalars=(alpha,))


def _need_columns(value: Array, what: str) -> None:
    if jnp.shape(value)[-1:] == (1,):
        raise ValueError(
            f"{what} needs one column of labels for each class, got one column (of 'lda', rule 'fisher' takes one)"
        )


def _own_mean(value: Array, means: Array, count: Array, total: Array) -> Array:
    """The mean of each key's own class [..., N, d], for centred keys.

    With a single column of labels the rest is the second class.
    """
    if value.shape[-1] > 1:
        return matmul(value, means)
    return (value - (1 - value) * count / positive(total - count)) * means


def _classes(key: Array, value: Array, weight: Array) -> tuple[Array, Array, Array]:
    """N_c [..., 1, C], N [..., 1, 1] and class means [..., C, d]."""
    member = weight * value
    count = member.sum(-2, keepdims=True)
    return count, weight.sum(-2, keepdims=True), cross(member, key) / transpose(positive(count))


def _weight(key: Array, weight: Array | None) -> Array:
    return jnp.ones((key.shape[-2], 1), key.dtype) if weight is None else weight


def _log_prior(count: Array, total: Array) -> Array:
    """log(N_c / N); -inf, without a gradient, for a class that is not there."""
    return jnp.where(count > 0, jnp.log(positive(count) / positive(total)), -jnp.inf)
