"""Policy distillation (Intention paper, Section 5.3, Appendix 6): a target from five distances to it.

An environment is a target t; an observation is a place o with its squared distance d = |o - t|^2. As a few-shot
regression, the context are the places with their distances, and the prediction at query number j is the coordinate t_j.

    context (o, 1) -> d        query (e_j, 0) -> t_j

(o, 1) and (e_j, 0) are homogeneous coordinates of a point and of the direction j. Why they are the right ones: with
|o - t|^2 - |o|^2 = -2 o.t + |t|^2 one linear regression gives the answer, w = (t, |t|^2) from keys (-2 o, 1), and the
query (e_j, 0) reads its row j. A model has to find this linearisation; given it, Intention needs no training
(`linearised_intention`).
"""

import dataclasses

import jax
import jax.numpy as jnp

from experiments.tasks.base import Task
from kvq_jax.domains import Count, Positive
from kvq_jax.models.points import Points
from kvq_jax.ops import intention, intention_weights


@dataclasses.dataclass(frozen=True)
class PolicyDistillation:
    """Targets t ~ N(0, target_std^2 I) and places o ~ N(0, place_std^2 I), in the plane.

    The paper's o ~ N(0, 1/4) is read as a variance, place_std = 0.5: it writes t ~ N(0, 1) in the same way.
    """

    observations: Count
    target_std: Positive
    place_std: Positive
    linearised_alpha: Positive  # ridge of the untrained Intention that is given linearised inputs

    def sample(self, key: jax.Array, data: None) -> Task:
        """One environment: context [N, 3] -> [N, 1], targets [2, 3] -> [2, 1]. `data` is not used."""
        normal = jax.random.normal(key, (1 + self.observations, 2))
        target, places = self.target_std * normal[0], self.place_std * normal[1:]
        distances = jnp.sum((places - target) ** 2, -1, keepdims=True)
        points = jnp.concatenate([places, jnp.ones_like(distances)], -1)
        return Task(Points(points, distances), Points(jnp.eye(2, 3), target[:, None]))

    def answers(self, task: Task) -> dict[str, jax.Array]:
        """Predictions [2, 1] without training: the exact one, and that of Intention on linearised inputs."""
        places, distances = task.context.x[:, :2], task.context.y
        linearised = intention(task.target.x, *_linearised(places, distances), alpha=self.linearised_alpha)
        return {"trilateration": trilateration(places, distances)[:, None], "linearised_intention": linearised}


def trilateration(places: jax.Array, distances: jax.Array) -> jax.Array:
    """The point [d] with squared distances [N, 1] to the places [N, d]: exact for N > d places in general position.

    Less their means, the equations d_i - |o_i|^2 = -2 o_i.t + |t|^2 lose |t|^2. The pseudo-inverse then gives t.
    """
    key, value = _linearised(places, distances)
    return intention_weights(_centred(key[:, :-1]), _centred(value), alpha=0)[:, 0]


def _linearised(places: jax.Array, distances: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys (-2 o, 1) [N, d + 1] and values d - |o|^2 [N, 1], between which (t, |t|^2) is the linear map."""
    ones = jnp.ones_like(distances)
    return jnp.concatenate([-2 * places, ones], -1), distances - jnp.sum(places**2, -1, keepdims=True)


def _centred(x: jax.Array) -> jax.Array:
    return x - x.mean(0)
