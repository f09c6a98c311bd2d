"""What the experiments of the Set Transformer share: networks on sets, and batches of one size or of several."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.experiment import NO_DATA
from experiments.harness.size_classes import Sizes, choose_classes
from experiments.tasks.sets import SetSampler
from kvq_jax.models import SET_NETWORKS, SetNetwork
from kvq_jax.models.set_networks import SetModel


def network(config: ConfigDict, table: Mapping[str, SetModel] = SET_NETWORKS) -> SetNetwork:
    """The network of the config's `model` section. Raises ConfigError."""
    return settings.build_named(table, config.model, "config.model")


def training(
    model: SetNetwork, task: SetSampler, shape: Sequence[int], size_classes: int, data: Mapping[str, Any] = NO_DATA
) -> dict[str, Any]:
    """Experiment.init, sample, sizes and data: elements have this shape and are drawn from keys and `data`.

    With size classes the sets of a batch share their number of elements; with 0 each has its own, and a mask.
    """

    def init(key):
        return model.lazy_init(key, jax.ShapeDtypeStruct((task.max_size, *shape), jnp.float32))

    if not size_classes:
        return dict(init=init, sample=task.sample, data=data)
    return dict(init=init, sample=task.draw, data=data, sizes=Sizes(choose_classes(task.law, size_classes), task.fill))
