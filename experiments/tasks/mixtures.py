"""Points of mixtures of Gaussians, to be clustered (Set Transformer, Section 5.3, Table 3)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.tasks.sets import SetSampler, SetTask
from kvq_jax.domains import Count, Positive, Range
from kvq_jax.models.mixture import Mixture


class Clustering(NamedTuple):
    """What no network sees."""

    mixture: Mixture  # that the points are drawn from
    component: jax.Array  # int8 [N]: of each point
    there: jax.Array | None = None  # bool [K]: the components that a network is told to find; None: all


@dataclasses.dataclass(frozen=True)
class Mixtures(SetSampler):
    """`clusters` Gaussians of one `std`; means uniform in a box, weights Dirichlet(1, ..., 1)."""

    clusters: Count
    dimension: Count
    position: Range  # lowest and highest coordinate of a mean
    std: Positive

    def draw(self, key: jax.Array, data: None) -> SetTask:
        """max_size points of one mixture, with a Clustering as the truth. `data` is not used."""
        return self.draw_of(key, None)

    def draw_of(self, key: jax.Array, there: jax.Array | None) -> SetTask:
        """As `draw`, of the components that there [K] says, the first ones, or of all (None)."""
        mean_key, weight_key, component_key, noise_key = jax.random.split(key, 4)
        low, high = self.position
        mean = jax.random.uniform(mean_key, (self.clusters, self.dimension), minval=low, maxval=high)
        # Independent exponentials over their sum are Dirichlet(1, ..., 1).
        parts = jax.random.exponential(weight_key, (self.clusters,))
        parts = parts if there is None else jnp.where(there, parts, 0)
        below = jnp.cumsum(parts) / parts.sum()
        lots = jax.random.uniform(component_key, (self.max_size,))
        component = (lots[:, None] >= below[:-1]).sum(-1)
        component = component if there is None else jnp.minimum(component, there.sum() - 1)  # a sum may round below 1
        x = mean[component] + self.std * jax.random.normal(noise_key, (self.max_size, self.dimension))
        mixture = Mixture(jnp.log(parts) - jnp.log(parts.sum()), mean, jnp.full_like(mean, self.std))
        return SetTask(x, None, Clustering(mixture, component.astype(jnp.int8), there))

    def with_truth(self, task: SetTask) -> SetTask:
        """The task with the components of the points that are left."""
        truth = task.truth
        return task.replace(truth=truth._replace(component=truth.component[: len(task.x)]))


@dataclasses.dataclass(frozen=True)
class VaryingMixtures(Mixtures):
    """Mixtures of k Gaussians, k uniform in min_clusters..clusters. A network is told k. Ours."""

    min_clusters: Count

    def __post_init__(self):
        super().__post_init__()
        if self.min_clusters > self.clusters:
            raise ValueError(f"min_clusters <= clusters does not hold for {self.min_clusters} and {self.clusters}")

    def draw(self, key: jax.Array, data: None) -> SetTask:
        """As Mixtures, with the weight 0 of all components but the first k. `data` is not used."""
        count_key, key = jax.random.split(key)
        count = jax.random.randint(count_key, (), self.min_clusters, self.clusters + 1)
        return self.draw_of(key, jnp.arange(self.clusters) < count)
