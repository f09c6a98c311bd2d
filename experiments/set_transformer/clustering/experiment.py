"""Amortised clustering (Set Transformer, Section 5.3, Table 3): from points to the mixture that they come from.

The network is trained on the likelihood of the points under the mixture that it predicts. It is judged by that of fresh
sets (ll0), that after one step of EM from there (ll1), that of the true mixture (oracle_ll), and by the adjusted Rand
index of each. Beside it stands EM by scikit-learn on the first of these sets.
"""

import dataclasses

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.set_transformer.clustering import host
from experiments.set_transformer.networks import network, training
from experiments.tasks.mixtures import Mixtures
from kvq_jax.models.mixture import em_step, log_joint, log_likelihood, mixture_of

SECTIONS = ("task", "model")


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """What this experiment adds to the config's `evaluation` section."""

    em_tasks: int  # sets on which scikit-learn's EM runs, the first of `tasks`
    em_starts: int  # of k-means++ on each, of which the best counts

    def __post_init__(self):
        if not 1 <= self.em_tasks <= self.tasks or self.em_starts < 1:
            raise ValueError(
                f"1 <= em_tasks <= tasks and em_starts >= 1 do not hold for {self.em_tasks}, {self.tasks} and "
                f"{self.em_starts}"
            )


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(Mixtures, config.task, "config.task")
    model = network(config)
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    if model.num_outputs != task.clusters:
        raise ConfigError(f"config.model.num_outputs: {model.num_outputs} of {task.clusters} clusters")

    def predicted(variables, sets):
        return mixture_of(model.apply(variables, sets.x, mask=sets.mask), task.dimension)

    def loss(variables, batch, key):
        return -log_likelihood(predicted(variables, batch), batch.x, batch.mask).mean(), ({}, {})

    def mixtures(variables, sets):
        """Name -> mixture: the network's, that after a step of EM, the true one."""
        first = predicted(variables, sets)
        return {"0": first, "1": em_step(first, sets.x, sets.mask), "oracle": sets.truth.mixture}

    def evaluate(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            values = {"x": sampled.x, "component": jnp.where(sampled.mask, sampled.truth.component, host.ABSENT)}
            for name, mixture in mixtures(variables, sampled).items():
                values[f"ll/{name}"] = log_likelihood(mixture, sampled.x, sampled.mask)
                values[f"component/{name}"] = log_joint(mixture, sampled.x).argmax(-1).astype(jnp.int8)
            return values

        found = over_tasks(one, key, evaluation.tasks, evaluation.batch_size)
        return found | {"x": found["x"][: evaluation.em_tasks]}

    def metrics(arrays):
        truth = arrays["component"]
        values = {}
        for mixture, name in {"0": "{}0", "1": "{}1", "oracle": "oracle_{}"}.items():
            values[name.format("ll")] = arrays[f"ll/{mixture}"]
            values[name.format("ari")] = host.rand_index(truth, arrays[f"component/{mixture}"])
        x, component = arrays["x"][0], truth[0, : evaluation.em_tasks]  # the same sets under every seed
        return values | host.em_metrics(x, component, task.clusters, evaluation.em_starts)

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            first, second, truth = map(_table, mixtures(variables, sampled).values())
            shared = {"x": sampled.x, "there": sampled.mask, "truth": truth}
            return shared | {"prediction": first, "prediction_em": second}

        return over_tasks(one, key, evaluation.example_tasks, evaluation.batch_size)

    trained = training(model, task, task.dimension, config.train.size_classes)
    made = Experiment(loss=loss, evaluate=evaluate, examples=examples, host=metrics, **trained)
    _check_width(predicted, made, task)
    return made


def _check_width(predicted, made: Experiment, task: Mixtures) -> None:
    """Raises ConfigError where the outputs of the model describe no component."""
    try:
        sets = jax.eval_shape(lambda key: task.sample(key, None), jax.random.key(0))
        jax.eval_shape(lambda key, sets: predicted(made.init(key), sets), jax.random.key(0), sets)
    except ValueError as error:
        raise ConfigError(f"config.model: {error}") from error


def _table(mixture):
    """A mixture as rows of weight, mean and standard deviation, [K, 1 + 2 D]."""
    return jnp.concatenate([jnp.exp(mixture.log_weight)[..., None], mixture.mean, mixture.std], -1)
