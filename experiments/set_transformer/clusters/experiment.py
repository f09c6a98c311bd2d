"""Amortised clustering of sets with different numbers of clusters, which the network is told. Ours.

Everything else is as in experiments/set_transformer/clustering. The network has a seed for each of the most clusters;
those of clusters that are not asked for are masked: no other looks at them, and they weigh nothing.
"""

from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.experiment import Experiment
from experiments.set_transformer.clustering.experiment import clustering
from experiments.tasks.mixtures import VaryingMixtures

SECTIONS = ("task", "model")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(VaryingMixtures, config.task, "config.task")
    return clustering(task, task.dimension, config, evaluation)
