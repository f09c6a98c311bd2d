"""What clustering is judged by outside JAX: the adjusted Rand index, and EM as a user would run it, by scikit-learn.

Nothing here uses JAX: figures use it too.
"""

import time
import warnings
from typing import Any

import numpy as np

ABSENT = -1  # the component of a point that is not there


def fit(x: np.ndarray, clusters: int, starts: int) -> Any:
    """scikit-learn's GaussianMixture, diagonal, of points [N, D]: EM from the best of `starts` starts of k-means++.

    In float64: a feature that does not vary in a cluster has, in float32, variances below 0.
    """
    from sklearn.exceptions import ConvergenceWarning  # a second: only where it is used
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(clusters, covariance_type="diag", init_params="k-means++", n_init=starts, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it keeps what it has found
        return model.fit(np.float64(x))


def rand_index(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The adjusted Rand index of clusterings [..., N] of sets whose absent points have the component ABSENT, [...]."""
    from sklearn.metrics import adjusted_rand_score

    pairs = zip(truth.reshape(-1, truth.shape[-1]), found.reshape(-1, found.shape[-1]))
    values = [adjusted_rand_score(own[own != ABSENT], other[own != ABSENT]) for own, other in pairs]
    return np.reshape(values, truth.shape[:-1])


def em_metrics(x: np.ndarray, truth: np.ndarray, clusters: np.ndarray, starts: int) -> dict[str, np.ndarray]:
    """Likelihood of a point, Rand index and milliseconds of `fit` on each of T sets, [1, T].

    Args:
      x: points [T, N, D].
      truth: their components, [T, N].
      clusters: how many to look for in each set, [T].
      starts: of EM on each.
    """
    values = {"ll_em": [], "ari_em": [], "ms_em": []}
    fit(x[0][truth[0] != ABSENT], int(clusters[0]), 1)  # what is imported is not timed
    for points, component, count in zip(x, truth, clusters):
        there = component != ABSENT
        started = time.perf_counter()
        model = fit(points[there], int(count), starts)
        values["ms_em"].append(1000 * (time.perf_counter() - started))
        values["ll_em"].append(model.score(points[there]))
        values["ari_em"].append(rand_index(component[there], model.predict(points[there])))
    return {name: np.asarray(of_sets)[None] for name, of_sets in values.items()}
