"""What the detection of anomalies is judged by outside JAX: areas under curves, by scikit-learn."""

import numpy as np


def curves(probability: np.ndarray, place: np.ndarray, together: int) -> dict[str, np.ndarray]:
    """AUROC and AUPR [S, T / together] of the images of `together` sets at once, and the accuracy of each set [S, T].

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
    return areas | {"accuracy": np.float64(probability.argmax(-1) == place)}
