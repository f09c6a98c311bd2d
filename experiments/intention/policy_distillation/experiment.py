"""Policy distillation (Intention paper, Section 5.3, Appendix 6; Figures 8 and 9): a target from five distances to it.

The paper gives a model the observations alone and reads off w(K, V) ("E_Q := 0"), from which a network predicts the
target: `form='paper'` in the config's model section, with the models of TARGET_REGRESSORS. Without it the model is one
of MODELS and the task a few-shot regression, as experiments.tasks.policy_distillation describes it.
"""

from flax import linen as nn
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.regression.experiment import regression
from experiments.regression.measures import predictor
from experiments.tasks.policy_distillation import PolicyDistillation
from kvq_jax.models import MODELS, TARGET_REGRESSORS, AtOnce

SECTIONS = ("task", "model")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(PolicyDistillation, config.task, "config.task")
    model = _model(dict(config.model))
    evaluation = settings.build(TaskEvaluation, evaluation, "config.evaluation")

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            found = task.answers(sampled)
            found["prediction"] = predictor(model, variables, sampled.target, task_key)(sampled.context)["prediction"]
            kept = {"places": sampled.context.x[:, :2], "distances": sampled.context.y[:, 0]}
            return kept | {"target": sampled.target.y[:, 0]} | {name: answer[:, 0] for name, answer in found.items()}

        return over_tasks(one, key, evaluation.example_tasks, min(evaluation.batch_size, evaluation.example_tasks))

    return regression(model, task, task, NO_DATA, evaluation, examples)


def _model(section: dict) -> nn.Module:
    if "form" not in section:
        return settings.build_named(MODELS, section, "config.model")
    table = settings.choose({"paper": TARGET_REGRESSORS}, section.pop("form"), "config.model.form")
    return AtOnce(settings.build_named(table, section, "config.model"))
