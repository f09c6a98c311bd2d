"""How forecasts of events are judged: sums over each sequence inside jit, metrics of all sequences outside.

Most metrics are a mean over events, not over sequences, which differ in length: the mean over sequences of

    r + (a_i - r n_i) / n,    r = sum_i a_i / sum_i n_i,    n = mean_i n_i

for sums a_i of n_i events. Its mean is the ratio r, and its standard error that of a ratio (Cochran, Sampling
Techniques, 1977, Section 2.11). A root of such a mean has the error that its derivative gives it.

    nll, nll_time, nll_mark   minus the log-likelihood per event: of all, of times with the last survival, of marks
    rmse, mae                 of the next gap, by the mean of its forecast; rmse_median, mae_median: by its median
    rmse_log                  of the logarithm of the next gap, by the median
    accuracy                  share of marks that are the most probable one, given the gap
    calibration               largest distance of the distribution of F(gap) from the uniform one (Kolmogorov, Smirnov)
    calibration_bound         what this distance is below for 95 of 100 samples of independent uniform numbers
    rmse_published            root of the squared sum of a sequence's signed errors, over events: what Bae et al. 2023
                              released under the name RMSE. Errors of opposite sign cancel; no RMSE
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from kvq_jax.models.event_processes.base import Forecast
from kvq_jax.models.event_processes.events import EventLogLikelihood, Events, whole_mask

BINS = 1000  # of F(gap)
_SIGNIFICANCE = 0.05
_LEAST = 1e-30  # gap whose logarithm is taken
# Metric -> (sum of a sequence, whether it is the root of a mean).
_OF_EVENTS = {
    "rmse": ("squared_mean", True),
    "mae": ("absolute_mean", False),
    "rmse_median": ("squared_median", True),
    "mae_median": ("absolute_median", False),
    "rmse_log": ("squared_log", True),
    "accuracy": ("right", False),
}
NLL = {"nll": ("time", "mark", "rest"), "nll_time": ("time", "rest"), "nll_mark": ("mark",)}


def likelihood_sums(found: EventLogLikelihood) -> dict[str, jax.Array]:
    """Part -> log-likelihood of one sequence."""
    return {"time": found.time.sum(-1), "mark": found.mark.sum(-1), "rest": found.rest}


def forecast_sums(forecast: Forecast, events: Events) -> dict[str, jax.Array]:
    """Sums over the events of one sequence [L], by its forecasts [L + 1]; `pit` [BINS] counts F(gap) in bins."""
    mask = whole_mask(events)
    gap = jnp.append(events.gap, events.rest)
    of_events = lambda array: jnp.where(mask, array[: len(mask)], 0)
    mean, median = forecast.time.mean - gap, forecast.time.median - gap
    log = jnp.log(jnp.maximum(forecast.time.median, _LEAST)) - jnp.log(jnp.maximum(gap, _LEAST))
    right = forecast.mark_logits(gap)[:-1].argmax(-1) == events.mark
    uniform = jnp.clip(forecast.time.cdf(gap)[:-1] * BINS, 0, BINS - 1).astype(jnp.int32)
    sums = {
        "squared_mean": jnp.square(mean),
        "absolute_mean": jnp.abs(mean),
        "squared_median": jnp.square(median),
        "absolute_median": jnp.abs(median),
        "squared_log": jnp.square(log),
        "right": jnp.append(right, False),
    }
    sums = {name: of_events(array).sum() for name, array in sums.items()}
    signed = of_events(mean).sum()
    counts = jnp.zeros(BINS, jnp.int32).at[uniform].add(mask)
    return sums | {"number": mask.sum(), "squared_sum": jnp.square(signed), "pit": counts}


def metrics(arrays: Mapping[str, np.ndarray], marks: bool, oracle: bool) -> dict[str, np.ndarray]:
    """Metrics from the sums [S, sequences] of `likelihood_sums` and `forecast_sums`, and the oracle's, 'oracle_time'.

    Args:
      arrays: of each of S seeds.
      marks: whether there is more than one kind of event.
      oracle: whether the likelihood of the process that the sequences are drawn from is among them.
    """
    arrays = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
    number = arrays["number"]
    found = {name: per_event(arrays[total], number, root) for name, (total, root) in _OF_EVENTS.items()}
    found["rmse_published"] = per_event(arrays["squared_sum"], number, root=True)
    found["calibration"] = np.stack([distance(counts) for counts in arrays["pit"].sum(1)])[:, None]
    found["calibration_bound"] = np.full((1, 1), bound(number[0].sum()))
    for whose in ("", "oracle_")[: 1 + oracle]:
        for name, parts in NLL.items():
            total = sum(arrays[whose + part] for part in parts)
            found[whose + name] = per_event(-total, number)
    if oracle:
        for name, parts in NLL.items():
            total = sum(arrays[f"oracle_{part}"] - arrays[part] for part in parts)
            found[f"gap_{name}"] = per_event(total, number)
    return found if marks else {name: values for name, values in found.items() if not _of_marks(name)}


def per_event(total: np.ndarray, number: np.ndarray, root: bool = False) -> np.ndarray:
    """Values [S, sequences] whose mean is sum(total) / sum(number), or the root of it, with its standard error."""
    mean_number = number.mean(-1, keepdims=True)
    ratio = total.mean(-1, keepdims=True) / mean_number
    rest = (total - ratio * number) / mean_number
    if not root:
        return ratio + rest
    top = np.sqrt(ratio)
    return top + np.divide(rest, 2 * top, out=np.zeros_like(rest), where=top > 0)


def distance(counts: np.ndarray) -> float:
    """The largest distance of the distribution of numbers in [0, 1], counted in equal bins, from the uniform one."""
    below = np.cumsum(counts) / max(counts.sum(), 1)
    edges = np.arange(1, len(counts) + 1) / len(counts)
    return float(np.abs(below - edges).max())


def bound(number: float) -> float:
    """What `distance` is below for 95 of 100 samples of so many independent uniform numbers."""
    return float(stats.kstwo.ppf(1 - _SIGNIFICANCE, number))


def _of_marks(name: str) -> bool:
    return name == "accuracy" or name.endswith("nll_mark")
