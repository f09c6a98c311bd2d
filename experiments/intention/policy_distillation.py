"""Policy distillation (Intention paper, Section 5.3, Appendix 6; Figures 8 and 9): a target from five distances to it.

An environment is a target t; an observation is a place o with its squared distance d = |o - t|^2. The paper gives a model the
observations alone and reads off w(K, V) ("E_Q := 0"), from which a network predicts t (`AtOnce`). In our other form this is
a few-shot regression: the context are the places with their distances, the prediction at query number j is the coordinate t_j.

    context (o, 1) -> d        query (e_j, 0) -> t_j

(o, 1) and (e_j, 0) are homogeneous coordinates, of a point and of the direction j. Why they are the right ones: with
|o - t|^2 - |o|^2 = -2 o.t + |t|^2 the answer is one linear regression away, w = (t, |t|^2) from keys (-2 o, 1), and the query
(e_j, 0) reads its row j. A model has to find this linearisation; given it, Intention needs no training
(`linearised_intention`).
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.intention import known_answers, policy_figures, regressors
from experiments.intention.tasks import RegressionTask
from kvq_jax.models import TARGET_REGRESSORS
from kvq_jax.ops import intention, intention_weights

SECTIONS = ("task", "model")


@dataclasses.dataclass(frozen=True)
class PolicyDistillation:
    """Targets t ~ N(0, target_std^2 I) and places o ~ N(0, place_std^2 I), in the plane.

    The paper's o ~ N(0, 1/4) is read as a variance, place_std = 0.5: it writes t ~ N(0, 1) in the same way.
    """

    observations: int
    target_std: float
    place_std: float
    linearised_alpha: float  # ridge of the untrained Intention that is given linearised inputs

    def __post_init__(self):
        if self.observations < 1 or not min(self.target_std, self.place_std, self.linearised_alpha) > 0:
            raise ValueError("observations, target_std, place_std and linearised_alpha must be positive")

    def sample(self, key: jax.Array, data: None) -> RegressionTask:
        """One environment: context_x [N, 3], context_y [N, 1], target_x [2, 3], target_y [2, 1]. `data` is not used."""
        normal = jax.random.normal(key, (1 + self.observations, 2))
        target, places = self.target_std * normal[0], self.place_std * normal[1:]
        distances = jnp.sum((places - target) ** 2, -1, keepdims=True)
        points = jnp.concatenate([places, jnp.ones_like(distances)], -1)
        return RegressionTask(points, distances, jnp.ones(self.observations, bool), jnp.eye(2, 3), target[:, None])

    def answers(self, task: RegressionTask) -> dict[str, jax.Array]:
        """Predictions [2, 1] without training: the exact one, and that of Intention on linearised inputs."""
        places = task.context_x[:, :2]
        linearised = intention(task.target_x, *_linearised(places, task.context_y), alpha=self.linearised_alpha)
        return {"trilateration": trilateration(places, task.context_y)[:, None], "linearised_intention": linearised}


def trilateration(places: jax.Array, distances: jax.Array) -> jax.Array:
    """The point [d] with squared distances [N, 1] to the places [N, d]: exact where these are N > d in general position.

    Less their means, the equations d_i - |o_i|^2 = -2 o_i.t + |t|^2 lose |t|^2 and leave t alone, by the pseudo-inverse.
    """
    key, value = _linearised(places, distances)
    return intention_weights(_centred(key[:, :-1]), _centred(value), alpha=0)[:, 0]


def _linearised(places: jax.Array, distances: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys (-2 o, 1) [N, d + 1] and values d - |o|^2 [N, 1], between which (t, |t|^2) is the linear map."""
    ones = jnp.ones_like(distances)
    return jnp.concatenate([-2 * places, ones], -1), distances - jnp.sum(places**2, -1, keepdims=True)


def _centred(x: jax.Array) -> jax.Array:
    return x - x.mean(0)


class AtOnce(nn.Module):
    """A network from places [..., N, 2] and distances [..., N, 1] to t [..., 2], with the call of a few-shot regressor."""

    network: nn.Module

    def __call__(self, context_x, context_y, context_mask, target_x):
        """[..., N, 3], [..., N, 1], [..., N], and queries, which it does not see -> [..., 2, 1]."""
        return self.network(context_x[..., :2], context_y, context_mask)[..., None]


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(PolicyDistillation, config.task, "config.task")
    model, printed = known_answers.build_model(config.model, TARGET_REGRESSORS)
    model = AtOnce(model) if printed else model
    evaluation = settings.build(TaskEvaluation, evaluation, "config.evaluation")

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            kept = {
                "places": sampled.context_x[:, :2],
                "distances": sampled.context_y[:, 0],
                "target": sampled.target_y[:, 0],
            }
            prediction = regressors.predict(model, variables, sampled)
            answers = {"prediction": prediction} | task.answers(sampled)
            return kept | {name: answer[:, 0] for name, answer in answers.items()}

        return over_tasks(one, key, evaluation.example_tasks, min(evaluation.batch_size, evaluation.example_tasks))

    return known_answers.experiment(task, model, evaluation, examples, policy_figures.run_figure)
