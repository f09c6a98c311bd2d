"""What operators do before anything is learnt (Intention paper, Sections 2, 3, Appendices 3, 9; Figures 4, 5, 15).

Nothing is trained: a run computes, or times, what one figure draws. The config's `measure` section names a class here.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.harness import settings, timing
from experiments.harness.evaluation import Summary, summarise
from kvq_jax.domains import Count, NotNegative, Positive, Seed
from kvq_jax.ops import OPERATORS, intention, softmax_attention
from kvq_jax.ops.linalg import gram, transpose
from kvq_jax.ops.scaling import MAP_SCALINGS, intention_map, map_variance

SECTIONS = ("measure",)

Measured = tuple[dict[str, Summary], dict[str, np.ndarray], dict[str, Any]]  # metrics, examples, facts


def measure(config: ConfigDict) -> Measured:
    """What the config's `measure` section describes. Raises ConfigError."""
    return settings.build_named(MEASURES, config.measure, "config.measure").measure()


@dataclasses.dataclass(frozen=True)
class Regression:
    """Figure 4: predictions of operators for a noiseless linear function of the plane (Appendix 3)."""

    ops: tuple[str, ...]  # names of OPERATORS
    alpha: NotNegative  # of operators that have one
    points: Count  # keys; the paper does not give their number
    queries: Count
    interpolation: Positive  # queries are uniform in [-interpolation, interpolation]^2,
    extrapolation: Positive  # or in [-extrapolation, extrapolation]^2
    weight_variance: NotNegative
    key_covariance: tuple[tuple[float, float], tuple[float, float]]  # 2 x 2
    draws: Count  # functions over which Pearson's r is averaged
    seed: Seed  # of the function that is drawn
    draws_seed: Seed  # of those functions

    def sample(self, key: jax.Array, span: float) -> tuple[jax.Array, ...]:
        """One function: query [queries, 2], |.| <= span; key [points, 2]; value [points, 1]; target [queries, 1]."""
        weight_key, key_key, query_key = jax.random.split(key, 3)
        weights = math.sqrt(self.weight_variance) * jax.random.normal(weight_key, (2, 1))
        covariance = jnp.asarray(self.key_covariance, jnp.float32)
        keys = jax.random.multivariate_normal(key_key, jnp.zeros(2), covariance, (self.points,))
        query = jax.random.uniform(query_key, (self.queries, 2), minval=-span, maxval=span)
        return query, keys, keys @ weights, query @ weights

    def measure(self) -> Measured:
        """Metrics <setting>/<op>/r over the draws; examples <setting>/<array> and <setting>/<op>/{prediction,r}."""
        operators = {name: settings.choose(OPERATORS, name, "config.measure.ops") for name in self.ops}
        options = {name: {} if row.alpha is None else {"alpha": self.alpha} for name, row in operators.items()}
        ops = {name: functools.partial(row.function, **options[name]) for name, row in operators.items()}
        keys = jax.random.split(jax.random.key(self.draws_seed), self.draws)
        examples = {}
        for setting in ("interpolation", "extrapolation"):
            span = getattr(self, setting)
            query, key, value, target = self.sample(jax.random.key(self.seed), span)
            arrays = {"query": query, "key": key, "value": value, "target": target}
            for name, op in ops.items():
                arrays[f"{name}/prediction"] = op(query, key, value)
                arrays[f"{name}/r"] = jax.jit(jax.vmap(functools.partial(self._r, op, span)))(keys)
            examples |= {f"{setting}/{name}": np.asarray(array) for name, array in arrays.items()}
        metrics = {name: array[None] for name, array in examples.items() if name.endswith("/r")}
        return summarise(metrics), examples, {}

    def _r(self, op: Callable, span: float, key: jax.Array) -> jax.Array:
        *inputs, target = self.sample(key, span)
        return pearson_r(op(*inputs), target)


@dataclasses.dataclass(frozen=True)
class Slowdown:
    """Figure 5: how many times as long as attention Intention takes, for N keys and queries of d features.

    The paper's figure holds 1809 repetitions on a grid that it does not give; 7 x 7 sizes and 37 repeats make 1813.
    """

    sizes: tuple[Count, ...]  # of N, and of d
    repeats: Count
    alpha: NotNegative

    def measure(self) -> Measured:
        """Metrics and examples <form>/slowdown [sizes of N, sizes of d, repeats], for the forms of _FORMS."""
        slowdowns = {form: [] for form in _FORMS}
        for n, d in itertools.product(self.sizes, self.sizes):
            query, key, value = (jax.random.normal(k, (n, d)) for k in jax.random.split(jax.random.key(n * d), 3))
            forms = [functools.partial(form, alpha=self.alpha) for form in _FORMS.values()]
            arguments = (query / math.sqrt(d), key, value)
            functions = [functools.partial(jax.jit(op), *arguments) for op in (softmax_attention, *forms)]
            times = timing.interleaved(functions, self.repeats)
            for index, form in enumerate(_FORMS, 1):
                slowdowns[form].append(timing.ratios(times, index, 0))
        shape = (len(self.sizes), len(self.sizes), self.repeats)
        examples = {f"{form}/slowdown": np.reshape(ratios, shape) for form, ratios in slowdowns.items()}
        metrics = {name: array.reshape(1, -1) for name, array in examples.items()}
        return summarise(metrics), examples | {"sizes": np.array(self.sizes)}, {}


@dataclasses.dataclass(frozen=True)
class MapVariance:
    """Figure 15: the variance of the Intention map of N random normal queries and keys, by scaling (Appendix 9)."""

    points: tuple[Count, ...]  # numbers N of queries, and of keys
    most: Count  # features
    dimensions: Count  # numbers of features, spaced geometrically from 1 to `most`; equal ones count once
    draws: Count  # maps for each variance
    seed: Seed

    def measure(self) -> Measured:
        """Examples <scaling>/{variance,closed_form} [points, dimensions], and metrics <scaling>/relative_error.

        The scaling 'sigmoid' has no closed form. The errors are those of the N and d for which it is finite.
        """
        points = np.array(self.points)
        dimensions = np.unique(np.geomspace(1, self.most, self.dimensions).astype(int))
        theory = map_variance(points[:, None], dimensions)
        closed_forms = {"none": theory, "sqrt": theory * dimensions}
        examples, metrics = {"points": points, "dimensions": dimensions}, {}
        for scaling in MAP_SCALINGS:
            variances = [self._variance(n, jnp.asarray(dimensions), scaling) for n in self.points]
            examples[f"{scaling}/variance"] = np.stack(variances)
        for scaling, closed_form in closed_forms.items():
            finite = np.isfinite(closed_form)
            ratio = examples[f"{scaling}/variance"][finite] / closed_form[finite]
            examples[f"{scaling}/closed_form"] = closed_form
            metrics[f"{scaling}/relative_error"] = np.abs(ratio - 1)[None]
        return summarise(metrics), examples, {}

    @functools.partial(jax.jit, static_argnums=(0, 1, 3))
    def _variance(self, n: int, dimensions: jax.Array, scaling: str) -> jax.Array:
        """The variance of the entries of maps of n queries and n keys, for each of `dimensions`: [len(dimensions)].

        One program serves all dimensions: points in fewer than the most have zeros at the end.
        """

        def one(key, d):
            query, keys = jax.random.normal(key, (2, n, self.most)) * (jnp.arange(self.most) < d)
            return intention_map(query, keys, scaling=scaling)

        def variance(d):
            scale = 1.0 if scaling == "none" else jnp.sqrt(d / self.most)  # the map takes its own width for d
            maps = jax.vmap(one, (0, None))(jax.random.split(jax.random.key(self.seed), self.draws), d)
            return jnp.var(scale * maps)

        return jax.lax.map(variance, dimensions)


def pearson_r(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Pearson's correlation coefficient of two arrays of the same shape."""
    return jnp.corrcoef(prediction.ravel(), target.ravel())[0, 1]


def inverse_intention(query: jax.Array, key: jax.Array, value: jax.Array, alpha: float = 1e-3) -> jax.Array:
    """Intention as Section 3 writes it: an explicit inverse of the smaller of K'K + alpha I and KK' + alpha I.

    query [M, d], key [N, d], value [N, k] -> [M, k].
    """
    n, d = key.shape
    if d < n:
        return query @ jnp.linalg.inv(gram(transpose(key)) + alpha * jnp.eye(d)) @ (key.T @ value)
    return query @ key.T @ jnp.linalg.inv(gram(key) + alpha * jnp.eye(n)) @ value


# Form of Intention -> what computes it: as the paper writes it, and ours (Cholesky, by the cheaper route).
_FORMS = {"inverse": inverse_intention, "intention": intention}
# Name in the config -> what is measured.
MEASURES = {"regression": Regression, "slowdown": Slowdown, "map_variance": MapVariance}
