"""Features of images of some classes, to be clustered (Set Transformer, Section 5.3, CIFAR-100)."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from experiments.tasks.mixtures import Clustering
from experiments.tasks.sets import SetSampler, SetTask
from kvq_jax.domains import Count
from kvq_jax.models.mixture import Mixture

_MIN_STD = 1e-3  # of a class of equal features


class Features(flax.struct.PyTreeNode):
    """Features, on the device.

    feature  float32 [n, d]
    member   int32 [classes, largest]: numbers of the features of each class, then -1 where it has fewer
    """

    feature: jax.Array
    member: jax.Array


@dataclasses.dataclass(frozen=True)
class LabelledFeatures(SetSampler):
    """Different features of `clusters` classes, drawn uniformly from all that these have.

    No mixture is true of them. The truth is that with the moments of each class in the set, which the oracle knows.
    """

    clusters: Count

    def draw(self, key: jax.Array, data: Features) -> SetTask:
        """max_size features of `clusters` classes, with their classes as the truth. The classes have so many."""
        class_key, lot_key = jax.random.split(key)
        chosen = data.member[jax.random.permutation(class_key, len(data.member))[: self.clusters]]
        lots = jnp.where(chosen >= 0, jax.random.uniform(lot_key, chosen.shape), -1.0)
        place = jax.lax.top_k(lots.ravel(), self.max_size)[1]
        component = place // chosen.shape[1]
        return SetTask(data.feature[chosen.ravel()[place]], None, Clustering(None, component.astype(jnp.int8)))

    def with_truth(self, task: SetTask) -> SetTask:
        """The task with the classes of the features that are left, and the mixture of their moments."""
        component = task.truth.component[: len(task.x)]
        own = component[:, None] == jnp.arange(self.clusters)
        own = jnp.float32(own if task.mask is None else own & task.mask[:, None])  # [N, K]
        number = jnp.maximum(own.sum(0), 1)[:, None]
        mean = jnp.einsum("nk,nd->kd", own, task.x, precision="highest") / number
        squares = (task.x - mean[component]) ** 2
        std = jnp.sqrt(jnp.einsum("nk,nd->kd", own, squares, precision="highest") / number)
        log_weight = jnp.log(jnp.maximum(own.sum(0), 1e-20) / own.sum())
        return task.replace(truth=Clustering(Mixture(log_weight, mean, jnp.maximum(std, _MIN_STD)), component))
