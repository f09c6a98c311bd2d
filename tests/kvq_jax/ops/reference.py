"""Float64 NumPy references of every operator, written from the formulas, on unbatched, unmasked rows."""
import numpy as np
from scipy import special


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def least_squares(q, k, v, factor, ridge):
    """Q (factor K'K + ridge I)^-1 K'V."""
    return q @ np.linalg.solve(factor * k.T @ k + ridge * np.eye(k.shape[1]), k.T @ v)


def least_squares_map(q, k, factor, ridge):
    return q @ np.linalg.solve(factor * k.T @ k + ridge * np.eye(k.shape[1]), k.T)


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
}
