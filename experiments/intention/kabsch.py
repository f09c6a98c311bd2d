"""The generalised Kabsch task (Intention paper, Section 5.4, Appendix 7; Figures 10 and 11): from five pairs to a whole map.

    v_i = a R k_i + w + noise,        asked: z_j = a R q_j + w

with a random rotation R, translation w and scale a for each task. Kabsch's algorithm finds R, Umeyama's (1991) also a and w.
The map is affine, so least squares of v on (k, 1), which is Intention on raw inputs with a column of ones, finds it too, and
takes more of the noise for a part of the map.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.data import point_cloud
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.intention import kabsch_figures, known_answers, regressors
from experiments.intention.tasks import RegressionTask
from kvq_jax.models import MLPRegressor, NeuralProcessRegressor, PairRegressor
from kvq_jax.ops import intention

SECTIONS = ("task", "model")
# The models of Appendix 7.
PRINTED = {
    "intention": PairRegressor,
    "attention": PairRegressor,
    "neural_process": NeuralProcessRegressor,
    "mlp": MLPRegressor,
}


@dataclasses.dataclass(frozen=True)
class Kabsch:
    """Similarity maps of the plane or of space. The paper gives no distribution; all of them are settings.

    k and q ~ N(0, point_std^2 I), the angle of R, about an axis uniform on the sphere where there are three dimensions, and the
    scale a uniform in their ranges, w ~ N(0, translation_std^2 I), noise of the pairs N(0, noise_std^2 I); z has none.
    """

    dimension: int  # 2 or 3
    pairs: int
    queries: int
    point_std: float
    angle: tuple  # radians; (0, 2 pi) for all rotations of the plane
    scale: tuple
    translation_std: float
    noise_std: float

    def __post_init__(self):
        if self.dimension not in (2, 3):
            raise ValueError(f"dimension is 2 or 3, not {self.dimension}")
        if self.pairs < 1 or self.queries < 1:
            raise ValueError(f"pairs and queries must be at least 1, got {self.pairs} and {self.queries}")
        for name in ("angle", "scale"):
            if len(getattr(self, name)) != 2 or not getattr(self, name)[0] <= getattr(self, name)[1]:
                raise ValueError(f"{name} is (smallest, largest), got {getattr(self, name)}")

    def sample(self, key: jax.Array, data: None) -> RegressionTask:
        """One map: pairs context_x, context_y [N, d], queries target_x and their images target_y [M, d]. `data` is not used."""
        point_key, map_key = jax.random.split(key)
        points = self.point_std * jax.random.normal(point_key, (self.pairs + self.queries, self.dimension))
        return self.task_of(map_key, points[: self.pairs], points[self.pairs :])

    def task_of(self, key: jax.Array, points: jax.Array, queries: jax.Array) -> RegressionTask:
        """The task of one map, drawn from `key`, on the given points [N, d] and queries [M, d]."""
        uniform_key, normal_key = jax.random.split(key)
        low, high = jnp.array([self.angle, self.scale]).T
        angle, scale = jax.random.uniform(uniform_key, (2,), minval=low, maxval=high)
        normal = jax.random.normal(normal_key, (2 + len(points), self.dimension))  # one draw: they are slow to compile
        axis, shift, noise = normal[0], self.translation_std * normal[1], self.noise_std * normal[2:]
        linear = scale * (_turn(angle) if self.dimension == 2 else _turn_about(axis, angle))
        images, answers = (jnp.matmul(x, linear.T, precision="highest") + shift for x in (points, queries))
        return RegressionTask(points, images + noise, jnp.ones(len(points), bool), queries, answers)

    def answers(self, task: RegressionTask) -> dict[str, jax.Array]:
        """Predictions [M, d] of the similarity and of the affine map that fit the pairs best in squared error."""
        fits = {"umeyama": umeyama, "affine": affine}
        return {name: fit(task.context_x, task.context_y, task.target_x) for name, fit in fits.items()}


def _turn(angle: jax.Array) -> jax.Array:
    """The rotation [2, 2] of the plane."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.array([[cos, -sin], [sin, cos]])


def _turn_about(axis: jax.Array, angle: jax.Array) -> jax.Array:
    """The rotation [3, 3] about an axis [3] of any length, by Rodrigues' formula I + sin G + (1 - cos) G^2, G x = axis x x."""
    x, y, z = axis / jnp.linalg.norm(axis)
    cross = jnp.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return jnp.eye(3) + jnp.sin(angle) * cross + (1 - jnp.cos(angle)) * jnp.matmul(cross, cross, precision="highest")


def umeyama(points: jax.Array, images: jax.Array, queries: jax.Array) -> jax.Array:
    """The queries [M, d] under the similarity a R x + w, det R = 1, that fits the pairs [N, d] best (Umeyama 1991).

    With U S V' the singular value decomposition of the covariance of images and points, less their means: R = U D V', D = I
    but for its last entry, det(U) det(V); a = tr(S D) / var(points); w = mean(images) - a R mean(points).
    """
    x, y = points - points.mean(0), images - images.mean(0)
    left, strengths, right = jnp.linalg.svd(jnp.matmul(y.T, x, precision="highest"))
    signs = jnp.ones(len(strengths)).at[-1].set(jnp.linalg.det(left) * jnp.linalg.det(right))
    scale = jnp.sum(strengths * signs) / jnp.sum(x**2)
    rotation = jnp.matmul(left * signs, right, precision="highest")
    return scale * jnp.matmul(queries - points.mean(0), rotation.T, precision="highest") + images.mean(0)


def affine(points: jax.Array, images: jax.Array, queries: jax.Array) -> jax.Array:
    """The queries [M, d] under the affine map that fits the pairs [N, d] best: untrained Intention, alpha = 0, on (x, 1)."""
    return intention(_with_one(queries), _with_one(points), images, alpha=0)


def _with_one(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x, jnp.ones_like(x[:, :1])], -1)


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """The config's `evaluation` section, less what every experiment has. The example tasks are maps of the point cloud."""

    cloud: str  # 'rabbit', the drawn one, or a .obj, .ply or .npy file, its path absolute or relative to --data_dir
    cloud_points: int  # of the cloud, drawn without replacement


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and point_cloud.DataError."""
    task = settings.build(Kabsch, config.task, "config.task")
    model, _ = known_answers.build_model(config.model, PRINTED)
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    cloud = task.point_std * _cloud(evaluation, task, data_dir)

    def examples(variables, test, key):
        def one(task_key):
            pair_key, map_key = jax.random.split(task_key)
            pairs = jax.random.choice(pair_key, cloud, (task.pairs,), replace=False)
            sampled = task.task_of(map_key, pairs, cloud)
            kept = {"context_x": sampled.context_x, "context_y": sampled.context_y, "target": sampled.target_y}
            return kept | {"prediction": regressors.predict(model, variables, sampled)}

        return {"cloud": cloud} | over_tasks(one, key, evaluation.example_tasks, 1)

    return known_answers.experiment(task, model, evaluation, examples, kabsch_figures.run_figure)


def _cloud(evaluation: Evaluation, task: Kabsch, data_dir: str | None) -> jax.Array:
    """[cloud_points, dimension], centred, with a mean square of 1: a space cloud in the plane is seen along z."""
    if evaluation.cloud == "rabbit":
        points = point_cloud.rabbit(evaluation.cloud_points)
    else:
        points = point_cloud.read(Path(data_dir or "", evaluation.cloud))
    if not task.pairs <= evaluation.cloud_points <= len(points):
        raise ConfigError(
            f"config.evaluation.cloud_points: {evaluation.cloud_points} is not between the {task.pairs} observed pairs and the "
            f"{len(points)} points of {evaluation.cloud}"
        )
    chosen = np.random.default_rng(0).choice(len(points), evaluation.cloud_points, replace=False)
    centred = points[chosen, : task.dimension] - points[chosen, : task.dimension].mean(0)
    return jnp.asarray(centred / max(np.sqrt(np.mean(centred**2)), 1e-12))
