"""KVQ space in one picture: what every operator predicts, untrained, from one small context."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import Summary, single
from kvq_jax.domains import Count, NotNegative, Positive, Seed
from kvq_jax.ops import OPERATORS

SECTIONS = ("measure",)


@dataclasses.dataclass(frozen=True)
class Measure:
    """The config's `measure` section: points of y = sin(3 x) + 0.3 x, and features of x for keys and queries."""

    points: Count  # of the context, evenly spaced in [-context, context] and then moved
    context: Positive
    jitter: NotNegative  # standard deviation of that move
    grid: Count  # queries, evenly spaced in [-span, span]
    span: Positive
    features: Count  # random ones
    bandwidth: Positive  # q k' is about exp(-(x - x')^2 / (2 bandwidth^2))
    seed: Seed  # of the context
    feature_seed: Seed
    labels: tuple[
        str, ...
    ]  # operators that get labels although they take any values, beside those that take nothing else

    def random_features(self, x: jax.Array) -> jax.Array:
        """sqrt(2 / features) cos(w x + b) for random w and b: x [N, 1] -> [N, features]."""
        frequency_key, phase_key = jax.random.split(jax.random.key(self.feature_seed))
        frequency = jax.random.normal(frequency_key, (self.features,)) / self.bandwidth
        phase = jax.random.uniform(phase_key, (self.features,), maxval=2 * jnp.pi)
        return jnp.sqrt(2 / self.features) * jnp.cos(x * frequency + phase)


def measure(config: ConfigDict) -> tuple[dict[str, Summary], dict[str, np.ndarray], dict[str, Any]]:
    """Metrics, examples and facts of a run: all operators have the same keys and queries.

    Operators of labels get the signs of y as one-hot labels. Their prediction is the difference of the two scores over
    its largest absolute value, because it has no unit.

    Metrics: <op>/mse, or <op>/accuracy of the sign for operators of labels. Examples: grid and truth [grid], x, y and
    sign [points], <op>/prediction [grid]. Facts: labels, the operators that got labels. Raises ConfigError.
    """
    section = settings.build(Measure, config.measure, "config.measure")
    moves = jax.random.normal(jax.random.key(section.seed), (section.points, 1))
    x = jnp.linspace(-section.context, section.context, section.points)[:, None] + section.jitter * moves
    grid = jnp.linspace(-section.span, section.span, section.grid)[:, None]
    y, truth = np.asarray(_curve(x)), np.asarray(_curve(grid))[:, 0]
    key, query = section.random_features(x), section.random_features(grid)
    labels = jax.nn.one_hot((y[:, 0] > 0).astype(int), 2)
    examples = {"grid": np.asarray(grid[:, 0]), "truth": truth}
    examples |= {"x": np.asarray(x[:, 0]), "y": y[:, 0], "sign": np.sign(y[:, 0])}
    of_labels = [name for name, operator in OPERATORS.items() if operator.labels or name in section.labels]
    metrics = {}
    for name, operator in OPERATORS.items():
        if name in of_labels:
            scores = np.asarray(operator.function(query, key, labels))
            difference = scores[:, 1] - scores[:, 0]
            prediction = difference / np.abs(difference).max()
            metrics[f"{name}/accuracy"] = single(np.mean((prediction > 0) == (truth > 0)))
        else:
            prediction = np.asarray(operator.function(query, key, y))[:, 0]
            metrics[f"{name}/mse"] = single(np.mean((prediction - truth) ** 2))
        examples[f"{name}/prediction"] = prediction
    return metrics, examples, {"labels": of_labels}


def _curve(x: jax.Array) -> jax.Array:
    return jnp.sin(3 * x) + 0.3 * x
