"""Float64 NumPy references of every operator, written from the formulas, on unbatched, unmasked rows."""

import numpy as np
from scipy import optimize, special, stats

from kvq_jax.ops import OPERATORS

# Their values are one-hot labels of at least two columns, and a class without keys scores -inf. See `values`.
LABELS = {name for name, row in OPERATORS.items() if row.labels}
# The ridge on the system that an operator solves, by default.
ALPHA = {
    "intention": 1e-3,
    "sigma_intention": 1e-3,
    "informer": 0.5,
    "sigma_informer": 0.5,
    "kernel_intention": 1e-3,
    "nystroem_intention": 1e-3,
    "constrained_intention": 1e-3,
    "ls_svm": 1.0,
    "lda": 1.0,
    "within_class": 1.0,
    "qda": 1.0,
}
KERNELS = {"kernel_intention", "nystroem_intention"}


def close(a, b, tolerance=1e-9):
    """Asserts that arrays are equal within a relative or an absolute tolerance."""
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def values(name, x):
    """Values for an operator from real numbers [..., k]: those, or for LABELS one-hot rows of their largest column."""
    if name not in LABELS:
        return x
    x = np.concatenate([x, -x], -1) if x.shape[-1] == 1 else x
    return (x == x.max(-1, keepdims=True)).astype(x.dtype)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def least_squares(q, k, v, factor, ridge):
    """Q (factor K'K + ridge I)^-1 K'V."""
    return q @ np.linalg.solve(factor * k.T @ k + ridge * np.eye(k.shape[1]), k.T @ v)


def least_squares_map(q, k, factor, ridge):
    return q @ np.linalg.solve(factor * k.T @ k + ridge * np.eye(k.shape[1]), k.T)


def gaussian(x, k):
    """exp(-|x - k|^2 / (d var)), var the mean variance of a coordinate of the keys; 1 for one key."""
    variance = k.var(0).mean() or 1.0
    return np.exp(-((x[:, None] - k) ** 2).sum(-1) / (k.shape[1] * variance))


def kernel_ridge(q, k, v, ridge):
    return gaussian(q, k) @ np.linalg.solve(gaussian(k, k) + ridge * np.eye(len(k)), v)


def non_negative(q, k, v, ridge):
    """Q w with w >= 0, by the non-negative least squares of SciPy for each column."""
    rows = np.concatenate([k, ridge**0.5 * np.eye(k.shape[1])])
    targets = np.concatenate([v, np.zeros((k.shape[1], v.shape[1]))])
    return q @ np.stack([optimize.nnls(rows, column)[0] for column in targets.T], -1)


def ls_svm(q, k, v, ridge):
    """Ridge regression on 2 V - 1 with a column of ones that is not penalised."""
    ones = lambda x: np.concatenate([x, np.ones((len(x), 1))], 1)
    penalty = ridge * np.diag([1.0] * k.shape[1] + [0.0])
    return ones(q) @ np.linalg.solve(ones(k).T @ ones(k) + penalty, ones(k).T @ (2 * v - 1))


def discriminant(q, k, v, ridge, within):
    """N (q - m_c / 2)'Sigma^-1 m_c + log(N_c / N), about the mean of all keys."""
    count = v.sum(0)
    q, k = q - k.mean(0), k - k.mean(0)
    means = v.T @ k / np.maximum(count, 1)[:, None]
    rows = k - v @ means if within else k
    w = np.linalg.solve(rows.T @ rows + ridge * np.eye(k.shape[1]), means.T)
    with np.errstate(divide="ignore"):
        return len(k) * (q @ w - (means.T * w).sum(0) / 2) + np.log(count / len(k))


def qda(q, k, v, ridge):
    """log N(q; m_c, (S_c + ridge I) / N_c) + log(N_c / N) without its constant."""
    scores = np.full((len(q), v.shape[1]), -np.inf)
    for c in np.flatnonzero(v.sum(0)):
        own = k[v[:, c] == 1]
        scatter = (own - own.mean(0)).T @ (own - own.mean(0)) + ridge * np.eye(k.shape[1])
        density = stats.multivariate_normal(own.mean(0), scatter / len(own)).logpdf(q)
        scores[:, c] = density + k.shape[1] / 2 * np.log(2 * np.pi) + np.log(len(own) / len(k))
    return scores


REFERENCES = {
    "softmax": lambda q, k, v: softmax(q @ k.T) @ v,
    "linear": lambda q, k, v: q @ k.T @ v,
    "laplace": lambda q, k, v: softmax(-np.abs(q[:, None] - k[None]).sum(-1)) @ v,
    "uniform": lambda q, k, v: np.tile(v.mean(0), (len(q), 1)),
    "erf": lambda q, k, v: special.erf(q @ k.T) @ v,
    "intention": lambda q, k, v: least_squares(q, k, v, 1.0, 1e-3),
    "sigma_intention": lambda q, k, v: softmax(least_squares_map(q, k, 1.0, 1e-3)) @ v,
    "informer": lambda q, k, v: least_squares(q, k, v, 0.5, 0.5),
    "sigma_informer": lambda q, k, v: softmax(least_squares_map(q, k, 0.5, 0.5)) @ v,
    "kernel_intention": lambda q, k, v: kernel_ridge(q, k, v, 1e-3),
    "nystroem_intention": lambda q, k, v: kernel_ridge(q, k, v, 1e-3),  # with all keys as landmarks, up to the jitter
    "constrained_intention": lambda q, k, v: non_negative(q, k, v, 1e-3),
    "ls_svm": lambda q, k, v: ls_svm(q, k, v, 1.0),
    "lda": lambda q, k, v: discriminant(q, k, v, 1.0, within=False),
    "within_class": lambda q, k, v: discriminant(q, k, v, 1.0, within=True),
    "qda": lambda q, k, v: qda(q, k, v, 1.0),
}


def condition(name, k):
    """Condition number of the system of an operator for keys k, the larger of primal and dual; 1 without a system."""
    if name not in ALPHA:
        return 1.0
    if name in KERNELS:
        spectrum = np.linalg.eigvalsh(gaussian(k, k))
    else:
        spectrum = np.linalg.svd(k, compute_uv=False) ** 2
        if len(k) < k.shape[1]:
            spectrum = np.append(spectrum, 0.0)
    if name in LABELS | {"ls_svm"}:  # these centre the keys
        spectrum = np.append(spectrum, 0.0)
    return (spectrum.max() + ALPHA[name]) / (max(spectrum.min(), 0.0) + ALPHA[name])
