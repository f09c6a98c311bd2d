"""Amortised clustering (Set Transformer, Section 5.3, Table 3): from points to the mixture that they come from.

The network is trained on the likelihood of the points under the mixture that it predicts. It is judged by that of fresh
sets (ll0), that after one step of EM from there (ll1), that of the true mixture (ll_oracle), and by the adjusted Rand
index of each. Beside it stands EM by scikit-learn on the first of these sets.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.set_transformer.clustering import host
from experiments.set_transformer.networks import network, training
from experiments.tasks.labelled_features import LabelledFeatures
from experiments.tasks.mixtures import Mixtures
from kvq_jax.domains import Count
from kvq_jax.models import SetNetwork
from kvq_jax.models.mixture import Mixture, em_step, log_joint, log_likelihood, mixture_of

SECTIONS = ("task", "model")
_MIXTURES = ("0", "1", "_oracle")  # what the names of their metrics end in, in the order of `mixtures`


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """What this experiment adds to the config's `evaluation` section."""

    em_tasks: Count  # sets on which scikit-learn's EM runs, the first of `tasks`
    em_starts: Count  # of k-means++ on each, of which the best counts

    def __post_init__(self):
        if self.em_tasks > self.tasks:
            raise ValueError(f"em_tasks <= tasks does not hold for {self.em_tasks} and {self.tasks}")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(Mixtures, config.task, "config.task")
    return clustering(task, task.dimension, config, evaluation)


def clustering(
    task: Mixtures | LabelledFeatures, dimension: int, config: ConfigDict, evaluation: dict, **own: Any
) -> Experiment:
    """The clustering of sets of points [N, dimension] that `task` draws; own: `data` and `facts` of the Experiment.

    Raises ConfigError.
    """
    model = network(config)
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    _check_outputs(model, task.clusters, dimension)

    def predicted(variables, sets):
        there = sets.truth.there
        return mixture_of(model.apply(variables, sets.x, mask=sets.mask, seeds=there), dimension, there=there)

    def loss(variables, batch, key):
        return -log_likelihood(predicted(variables, batch), batch.x, batch.mask).mean(), ({}, {})

    def mixtures(variables, sets):
        """The network's mixture, that after a step of EM, and the true one."""
        first = predicted(variables, sets)
        return first, em_step(first, sets.x, sets.mask), sets.truth.mixture

    def evaluate(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            there = sampled.truth.there
            values = {"clusters": jnp.int32(task.clusters) if there is None else there.sum()}
            values |= {"x": sampled.x, "component": jnp.where(sampled.mask, sampled.truth.component, host.ABSENT)}
            for name, mixture in zip(_MIXTURES, mixtures(variables, sampled)):
                values[f"ll{name}"] = log_likelihood(mixture, sampled.x, sampled.mask)
                values[f"component{name}"] = log_joint(mixture, sampled.x).argmax(-1).astype(jnp.int8)
            return values

        found = over_tasks(one, key, evaluation.tasks, evaluation.batch_size)
        return found | {"x": found["x"][: evaluation.em_tasks]}

    def metrics(arrays):
        truth = arrays["component"]
        values = {f"ll{name}": arrays[f"ll{name}"] for name in _MIXTURES}
        values |= {f"ari{name}": host.rand_index(truth, arrays[f"component{name}"]) for name in _MIXTURES}
        # The same sets under every seed.
        clusters, component = (own[0, : evaluation.em_tasks] for own in (arrays["clusters"], truth))
        return values | host.em_metrics(arrays["x"][0], component, clusters, evaluation.em_starts)

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            first, second, truth = map(_table, mixtures(variables, sampled))
            shared = {"x": sampled.x, "there": sampled.mask, "truth": truth}
            return shared | {"prediction": first, "prediction_em": second}

        return over_tasks(one, key, evaluation.example_tasks, evaluation.batch_size)

    trained = training(model, task, (dimension,), config.train.size_classes) | own
    return Experiment(loss=loss, evaluate=evaluate, examples=examples, host=metrics, model=model, **trained)


def _check_outputs(model: SetNetwork, clusters: int, dimension: int) -> None:
    """Raises ConfigError where the rows of the model are not the components of a mixture."""
    if model.num_outputs != clusters:
        raise ConfigError(f"config.model.num_outputs: {model.num_outputs} of {clusters} clusters")
    try:
        rows = jax.ShapeDtypeStruct((model.num_outputs, model.out_features), jnp.float32)
        jax.eval_shape(lambda rows: mixture_of(rows, dimension), rows)
    except ValueError as error:
        raise ConfigError(f"config.model.out_features: {error}") from error


def _table(mixture: Mixture) -> jax.Array:
    """A mixture as rows of weight, mean and standard deviation, [K, 1 + 2 D]."""
    return jnp.concatenate([jnp.exp(mixture.log_weight)[..., None], mixture.mean, mixture.std], -1)
