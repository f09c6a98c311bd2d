"""Figures of KVQ space itself."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import drawing
from experiments.harness.results import Result
from kvq_jax.ops import DISCRIMINANTS, OPS

_POINTS, _FEATURES, _COLUMNS = 8, 48, 6


def random_features(x: jax.Array) -> jax.Array:
    """cos(w x + b) for random w and b, x [N, 1] -> [N, 48], so that q k' is about exp(-(x - x')^2 / 0.18)."""
    frequency_key, phase_key = jax.random.split(jax.random.key(7))
    frequency = jax.random.normal(frequency_key, (_FEATURES,)) / 0.3
    phase = jax.random.uniform(phase_key, (_FEATURES,), maxval=2 * jnp.pi)
    return jnp.sqrt(2 / _FEATURES) * jnp.cos(x * frequency + phase)


def space(results: Sequence[Result], folder: Path) -> Path:
    """What every op in OPS predicts, untrained, from one small context: the same keys and queries for all.

    The discriminants, whose values are labels, are given the signs of the values: squares at -1 and 1, and the difference of
    scores, which has no unit, over its largest value.
    """
    del results  # nothing is trained
    x = jnp.linspace(-0.9, 0.9, _POINTS)[:, None] + 0.08 * jax.random.normal(jax.random.key(3), (_POINTS, 1))
    y = jnp.sin(3 * x) + 0.3 * x
    grid = jnp.linspace(-1.3, 1.3, 261)[:, None]
    key, query = random_features(x), random_features(grid)
    labels = jax.nn.one_hot((y[:, 0] > 0).astype(int), 2)
    values = {name: 2 * labels[:, 1:] - 1 if name in DISCRIMINANTS else y for name in OPS}
    predictions = {}
    for name, op in OPS.items():
        if name in DISCRIMINANTS:
            scores = np.asarray(op(query, key, labels))
            difference = scores[:, 1] - scores[:, 0]
            predictions[name] = difference / np.abs(difference).max()
        else:
            predictions[name] = np.asarray(op(query, key, y))[:, 0]
    lines = -(-len(OPS) // _COLUMNS)
    figure, axes = drawing.new_figure(lines, _COLUMNS, width=2.5, height=2.0, sharex=True, sharey=True)
    panels = [axis for line in axes for axis in line]
    for axis, (name, prediction) in zip(panels, predictions.items()):
        axis.plot(grid, prediction, color=drawing.RED)
        axis.plot(x, values[name], "s" if name in DISCRIMINANTS else "o", color=drawing.INK, markersize=4)
        axis.set_title(name)
        axis.set_ylim(-2.2, 2.2)
    drawing.hide_after(len(OPS), axes)
    figure.suptitle("One context, every operator of KVQ space (untrained; squares: the context as labels)")
    rows = [
        (name, float(at), float(value)) for name, curve in predictions.items() for at, value in zip(grid[:, 0], curve)
    ]
    drawing.save_numbers(folder / "space.csv", ["op", "x", "prediction"], rows)
    return drawing.save(figure, folder / "space.png")


FIGURES = {"space": space}
