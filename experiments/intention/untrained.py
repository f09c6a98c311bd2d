"""What the operators do before anything is learnt (Intention paper, Section 3, Appendices 3 and 9; Figures 4, 5 and 15)."""

import functools
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import drawing, timing
from experiments.harness.results import Result
from kvq_jax.ops import intention, linear_attention, sigma_intention, softmax_attention
from kvq_jax.ops.linalg import gram, transpose
from kvq_jax.ops.scaling import MAP_SCALINGS, intention_map, map_variance

# The printed covariance [[0.7, 0.9], [0.9, 1.0]] is not positive semi-definite. NumPy's sampler, which takes the singular values for
# the eigenvalues, draws from this one instead.
_KEY_COVARIANCE = np.array([[0.773, 0.838], [0.838, 1.052]])
_DIMENSIONS = np.unique(np.geomspace(1, 512, 25).astype(int))
_REGRESSION_OPS = {
    "Attention": softmax_attention,
    "Linear attention": linear_attention,
    "Intention": functools.partial(intention, alpha=0),
    "σIntention": functools.partial(sigma_intention, alpha=0),
}


def linear_regression_task(
    key: jax.Array, *, points: int = 100, queries: int = 400, span: float = 1.0
) -> tuple[jax.Array, ...]:
    """A noiseless linear function of the plane (Appendix 3).

    Args:
      key: PRNG key.
      points: number of keys; the paper does not give it.
      queries: number of queries, uniform in [-span, span]^2: 1 interpolates, 25 extrapolates.
      span: half the side of the square of queries.

    Returns:
      query [queries, 2], key [points, 2], value [points, 1], target [queries, 1].
    """
    weight_key, key_key, query_key = jax.random.split(key, 3)
    weights = math.sqrt(10) * jax.random.normal(weight_key, (2, 1))
    keys = jax.random.multivariate_normal(key_key, jnp.zeros(2), jnp.asarray(_KEY_COVARIANCE, jnp.float32), (points,))
    query = jax.random.uniform(query_key, (queries, 2), minval=-span, maxval=span)
    return query, keys, keys @ weights, query @ weights


def pearson_r(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Pearson's correlation coefficient of two arrays of the same shape."""
    return jnp.corrcoef(prediction.ravel(), target.ravel())[0, 1]


def figure4(results: Sequence[Result], folder: Path) -> Path:
    """Untrained operators on 2-D linear regression: predictions over the plane, and against the truth, with Pearson's r."""
    del results  # nothing is trained
    figure, axes = drawing.new_figure(4, 1 + len(_REGRESSION_OPS), width=2.1, height=2.0)
    rows = []
    for row, (setting, span) in enumerate((("interpolation", 1.0), ("extrapolation", 25.0))):
        query, key, value, target = linear_regression_task(jax.random.key(0), span=span)
        maps, correlations = axes[2 * row], axes[2 * row + 1]
        maps[0].scatter(*key.T, c=value[:, 0], cmap="coolwarm", s=6)
        maps[0].set_title(f"context of {len(key)}\n{setting}", fontsize=8.5)
        correlations[0].scatter(*query.T, c=target[:, 0], cmap="coolwarm", s=6)
        correlations[0].set_title("truth at the queries", fontsize=8.5)
        for column, (name, op) in enumerate(_REGRESSION_OPS.items(), 1):
            prediction = op(query, key, value)
            maps[column].scatter(*query.T, c=prediction[:, 0], cmap="coolwarm", s=6)
            maps[column].set_title(name, fontsize=8.5)
            correlations[column].plot(target, prediction, ".", color=drawing.RED, markersize=2.5)
            correlations[column].set_title(f"r = {pearson_r(prediction, target):.3f}", fontsize=8.5)
            correlations[column].set_xlabel("truth", fontsize=8)
            rows += _repeated_r(name, op, setting, span)
        correlations[1].set_ylabel("prediction", fontsize=8)
    for axis in itertools.chain.from_iterable(axes):
        axis.tick_params(labelsize=6)
    drawing.save_numbers(folder / "figure4.csv", ["op", "setting", "mean r", "smallest r", "draws"], rows)
    return drawing.save(figure, folder / "figure4.png")


def _repeated_r(name: str, op, setting: str, span: float, draws: int = 300) -> list[tuple]:
    def one(key):
        query, keys, value, target = linear_regression_task(key, span=span)
        return pearson_r(op(query, keys, value), target)

    r = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), draws))
    return [(name, setting, float(r.mean()), float(r.min()), draws)]


def inverse_intention(query: jax.Array, key: jax.Array, value: jax.Array, alpha: float = 1e-3) -> jax.Array:
    """Intention as the paper writes it, with an explicit inverse of the smaller of K'K + alpha I and KK' + alpha I (Section 3)."""
    n, d = key.shape
    if d < n:
        return query @ jnp.linalg.inv(gram(transpose(key)) + alpha * jnp.eye(d)) @ (key.T @ value)
    return query @ key.T @ jnp.linalg.inv(gram(key) + alpha * jnp.eye(n)) @ value


def figure5(
    results: Sequence[Result], folder: Path, sizes: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024), repeats: int = 37
) -> Path:
    """How many times as long Intention takes as attention: the distribution over sizes and repeats, the paper's form beside ours.

    The paper's figure holds 1809 repetitions on a grid it does not give; 7 x 7 sizes and 37 repeats make 1813.
    """
    del results
    names = {"explicit inverse, as the paper writes it": inverse_intention, "Cholesky, route by cost (ours)": intention}
    slowdowns, rows = {name: [] for name in names}, []
    for n, d in itertools.product(sizes, sizes):
        keys = jax.random.split(jax.random.key(n * d), 3)
        arguments = [jax.random.normal(k, (n, d)) for k in keys]
        arguments[0] = arguments[0] / math.sqrt(d)
        functions = [functools.partial(jax.jit(op), *arguments) for op in (softmax_attention, *names.values())]
        times = timing.interleaved(functions, repeats)
        for index, name in enumerate(names, 1):
            slowdowns[name] += timing.ratios(times, index, 0)
            rows.append((name, n, d, timing.ratio(times, index, 0), repeats))
    figure, ((axis,),) = drawing.new_figure(1, 1, width=6.0, height=3.4)
    bins = np.geomspace(0.1, 30, 60)
    for name, colour in zip(names, (drawing.GREY, drawing.RED)):
        label = f"{name}: median {np.median(slowdowns[name]):.2f}"
        axis.hist(np.clip(slowdowns[name], bins[0], bins[-1]), bins, color=colour, alpha=0.6, label=label)
    axis.axvline(1, color=drawing.INK, linewidth=0.8)
    axis.set(xscale="log", xlabel="time of Intention / time of attention", ylabel="repetitions")
    axis.set_title(f"N, d in {sizes[0]}..{sizes[-1]}, {repeats} repetitions each, {jax.devices()[0].device_kind}")
    axis.set_ylim(top=1.3 * axis.get_ylim()[1])  # room for the legend
    axis.legend(fontsize=8, loc="upper left")
    drawing.save_numbers(folder / "figure5.csv", ["form", "N", "d", "median slowdown", "repeats"], rows)
    return drawing.save(figure, folder / "figure5.png")


def figure15(results: Sequence[Result], folder: Path) -> Path:
    """Variance of the Intention map for random normal queries and keys, under three scalings, with the closed form (Appendix 9)."""
    del results
    figure, axes = drawing.new_figure(1, len(MAP_SCALINGS), width=3.6, height=3.2)
    titles = {"none": "unscaled", "sqrt": "scaled by √d", "sigmoid": "scaled by √d, regularised"}
    dimensions, rows = _DIMENSIONS, []
    for axis, scaling in zip(axes[0], MAP_SCALINGS):
        for n, colour in zip((16, 32, 64), (drawing.BLUE, drawing.GREEN, drawing.RED)):
            measured = np.asarray(_measured_variance(n, jnp.asarray(dimensions), scaling))
            axis.plot(dimensions, measured, "o", color=colour, markersize=2.5, label=f"N = {n}")
            theory = map_variance(n, dimensions) * (dimensions if scaling == "sqrt" else 1)
            if scaling != "sigmoid":
                finite = np.where(np.isfinite(theory), theory, np.nan)
                axis.plot(dimensions, finite, color=colour, linewidth=1)
            rows += [
                (scaling, n, int(d), float(variance), "" if scaling == "sigmoid" else float(t))
                for d, variance, t in zip(dimensions, measured, theory)
            ]
        axis.set(xscale="log", yscale="log", xlabel="d", title=titles[scaling])
    axes[0][0].set_ylabel("variance of an entry of Z")
    axes[0][0].legend(fontsize=8)
    axes[0][1].axhline(1, color=drawing.INK, linewidth=0.6, linestyle=":")
    figure.suptitle("Intention map of N random keys in d dimensions: measured (dots), closed form (lines)")
    drawing.save_numbers(folder / "figure15.csv", ["scaling", "N", "d", "measured variance", "closed form"], rows)
    return drawing.save(figure, folder / "figure15.png")


@functools.partial(jax.jit, static_argnums=(0, 2))
def _measured_variance(n: int, dimensions: jax.Array, scaling: str, draws: int = 6) -> jax.Array:
    """Variance of the entries of `draws` maps of n queries and n keys, for each of `dimensions`: [len(dimensions)].

    Points in fewer dimensions are points of the most with zeros at the end, so that one program serves all.
    """
    most = _DIMENSIONS[-1]

    def one(key, d):
        query, keys = jax.random.normal(key, (2, n, most)) * (jnp.arange(most) < d)
        return intention_map(query, keys, scaling=scaling)

    def variance(d):
        scale = 1.0 if scaling == "none" else jnp.sqrt(d / most)  # the map takes its own width for d
        return jnp.var(scale * jax.vmap(one, (0, None))(jax.random.split(jax.random.key(0), draws), d))

    return jax.lax.map(variance, dimensions)
