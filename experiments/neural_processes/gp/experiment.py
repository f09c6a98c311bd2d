"""One-dimensional meta-regression (CMANP paper, Section 4.2, Table 4): trained on one kernel, judged on several.

The likelihood of every evaluation task stands beside that of the true kernel's posterior: of each target alone
(`marginal`, the metric of CNP to CMANP) and of all together (`joint`, the metric of TNP-A and the ND and AND models).
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.harness.size_classes import choose_classes
from experiments.neural_processes.predicting import curve, moments
from experiments.regression.experiment import initialiser, training
from experiments.tasks import has_oracle, oracle_log_likelihood
from experiments.tasks.gaussian_process import KERNELS, GaussianProcess
from kvq_jax.domains import Count, Increasing
from kvq_jax.models import Points, family
from kvq_jax.names import choose

SECTIONS = ("task", "model")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The config's `evaluation` section, without what all experiments share."""

    kernels: tuple[str, ...]  # names of KERNELS
    tasks: Count  # functions of each kernel
    batch_size: Count  # functions of each kernel evaluated at once
    example_counts: Increasing  # context sizes of the picture, increasing
    example_points: Count  # positions of its curves

    def __post_init__(self):
        for kernel in self.kernels:
            choose(KERNELS, kernel, "kernel")
        if not self.kernels:
            raise ValueError(f"kernels must be some of {', '.join(KERNELS)}, got none")
        if not self.example_counts:
            raise ValueError("example_counts must be numbers, got none")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(GaussianProcess, config.task, "config.task")
    model = settings.build_named(family("neural_process"), config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    judged = {kernel: dataclasses.replace(task, kernel=kernel) for kernel in evaluation.kernels}
    classes = choose_classes(task.law, config.train.size_classes)  # of the evaluation

    def evaluate(variables, test, key):
        def of_function(task_key, draws, slots, size):
            """All kernels share positions, numbers of points and draws; one call of the model judges all of them."""
            tasks = [gp.fill(draws, slots, size) for gp in judged.values()]
            context, target, _ = _stack(tasks)

            model_key = jax.random.split(jax.random.fold_in(task_key, 2))[0]
            found = model.apply(variables, context, target, key=model_key, method="log_likelihood")
            values = {f"{kernel}/target": value for kernel, value in zip(judged, found)}
            if not has_oracle(task):
                return values
            for (kernel, gp), sampled in zip(judged.items(), tasks):
                for kind, best in oracle_log_likelihood(gp, sampled).items():
                    gap = best - values[f"{kernel}/target"]
                    values |= {f"{kernel}/oracle_{kind}": best, f"{kernel}/gap_{kind}": gap}
            return values

        draw = lambda task_key: task.draw(jax.random.fold_in(task_key, 1), test)
        return classes.map(of_function, draw, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def predict(context, x):
            return curve(lambda x: model.apply(variables, context, x, key=key), x, task.most_targets)

        return _examples(task, evaluation, predict, key)

    trained = training(model, task, config.train.size_classes)
    return Experiment(initialiser(model, task, None), evaluate=evaluate, examples=examples, data=NO_DATA, **trained)


def _examples(task: GaussianProcess, evaluation: Evaluation, predict: Callable, key: jax.Array) -> dict[str, jax.Array]:
    """One function of each kernel K, seen through its first C[0], C[1], ... points, predicted at G positions.

    Returns counts [C], x [G], context_x and context_y [K, max C]; prediction and oracle [K, C, 2, G]: means and stds.
    """
    counts, most = jnp.asarray(evaluation.example_counts), evaluation.example_counts[-1]
    x = jnp.linspace(*task.position, evaluation.example_points)[:, None]
    masks = jnp.arange(most) < counts[:, None]

    def of_kernel(kernel):
        gp = dataclasses.replace(task, kernel=kernel)
        sampled = gp.sample(key, None, (most, task.min_targets))
        contexts = Points(*(jnp.broadcast_to(part, (len(counts), *part.shape)) for part in sampled.context[:2]), masks)

        def posterior(context):
            return moments(gp.oracle(sampled._replace(context=context), x), x.shape[:1])

        return contexts, jax.lax.map(posterior, contexts)

    context, oracle = _stack([of_kernel(kernel) for kernel in evaluation.kernels])
    prediction = predict(context, jnp.broadcast_to(x, (*context.x.shape[:2], *x.shape)))
    drawn = {"counts": counts, "x": x[:, 0], "context_x": context.x[:, 0, :, 0], "context_y": context.y[:, 0, :, 0]}
    return drawn | {"prediction": prediction, "oracle": oracle}


def _stack(trees: list):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
