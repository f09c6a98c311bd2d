"""What the detection of anomalies is judged by outside JAX: areas under curves, by scikit-learn."""

import numpy as np


def curves(probability: np.ndarray, place: np.ndarray, together: int) -> dict[str, np.ndarray]:
    """Areas [S, T / together] of the images of `together` sets at once; areas and accuracy [S, T] of each set.

    Where one of N images is the anomaly, as in a set, and r of them are not below it, itself among them, the area under
    the curve of precision and recall is 1 / r, and that under the receiver operating characteristic the share of the
    N - 1 others that are below it, of those equal to it one half.

    Args:
      probability: of each image to be the anomaly, [S, T, N], under each of S seeds.
      place: of the anomaly, [S, T].
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # a second: only where it is used

    is_odd = np.arange(probability.shape[-1]) == place[..., None]
    shape = (len(place), -1, together * probability.shape[-1])
    labels, scores = is_odd.reshape(shape), np.asarray(probability).reshape(shape)
    areas = {
        name: np.array([[area(*pair) for pair in zip(*of_seed)] for of_seed in zip(labels, scores)])
        for name, area in (("auroc", roc_auc_score), ("aupr", average_precision_score))
    }
    own, others = np.take_along_axis(probability, place[..., None], -1), probability.shape[-1] - 1
    below, equal = (probability < own).sum(-1), (probability == own).sum(-1) - 1
    areas |= {"auroc_of_set": (below + equal / 2) / others, "aupr_of_set": 1 / (others + 1 - below)}
    return areas | {"accuracy": np.float64(probability.argmax(-1) == place)}
