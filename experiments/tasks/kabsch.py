"""The generalised Kabsch task (Intention paper, Section 5.4, Appendix 7): from five pairs of points to a whole map.

    v_i = a R k_i + w + noise,        asked: z_j = a R q_j + w

with a random rotation R, translation w and scale a for each task. Kabsch's algorithm finds R, Umeyama's (1991) also a
and w. The map is affine, so least squares of v on (k, 1), which is Intention on raw inputs with a column of ones, finds
it too, but takes more of the noise for a part of the map.
"""

import dataclasses

import jax
import jax.numpy as jnp

from experiments.tasks.base import Task
from kvq_jax.domains import Count, NotNegative, Positive, PositiveRange, Range
from kvq_jax.models.points import Points
from kvq_jax.ops import intention


@dataclasses.dataclass(frozen=True)
class Kabsch:
    """Similarity maps of the plane or of space. The paper gives no distribution; all of them are settings.

    k and q ~ N(0, point_std^2 I), w ~ N(0, translation_std^2 I), noise of the pairs N(0, noise_std^2 I); z has none.
    The scale a and the angle of R are uniform in their ranges; in three dimensions the axis of R is uniform on the
    sphere.
    """

    dimension: int  # 2 or 3
    pairs: Count
    queries: Count
    point_std: Positive
    angle: Range  # radians; (0, 2 pi) for all rotations of the plane
    scale: PositiveRange
    translation_std: NotNegative
    noise_std: NotNegative

    def __post_init__(self):
        if self.dimension not in (2, 3):
            raise ValueError(f"dimension is 2 or 3, not {self.dimension}")

    def sample(self, key: jax.Array, data: None) -> Task:
        """One map: N pairs as the context, M queries with their images as targets, all [., d]. `data` is not used."""
        point_key, map_key = jax.random.split(key)
        points = self.point_std * jax.random.normal(point_key, (self.pairs + self.queries, self.dimension))
        return self.task_of(map_key, points[: self.pairs], points[self.pairs :])

    def task_of(self, key: jax.Array, points: jax.Array, queries: jax.Array) -> Task:
        """The task of one map, drawn from `key`, on the given points [N, d] and queries [M, d]."""
        uniform_key, normal_key = jax.random.split(key)
        low, high = jnp.array([self.angle, self.scale]).T
        angle, scale = jax.random.uniform(uniform_key, (2,), minval=low, maxval=high)
        normal = jax.random.normal(normal_key, (2 + len(points), self.dimension))  # one draw: they are slow to compile
        axis, shift, noise = normal[0], self.translation_std * normal[1], self.noise_std * normal[2:]
        linear = scale * (_turn(angle) if self.dimension == 2 else _turn_about(axis, angle))
        images, answers = (jnp.matmul(x, linear.T, precision="highest") + shift for x in (points, queries))
        return Task(Points(points, images + noise), Points(queries, answers))

    def answers(self, task: Task) -> dict[str, jax.Array]:
        """Predictions [M, d] of the similarity and of the affine map that fit the pairs best in squared error."""
        fits = {"umeyama": umeyama, "affine": affine}
        return {name: fit(task.context.x, task.context.y, task.target.x) for name, fit in fits.items()}


def _turn(angle: jax.Array) -> jax.Array:
    """The rotation [2, 2] of the plane."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.array([[cos, -sin], [sin, cos]])


def _turn_about(axis: jax.Array, angle: jax.Array) -> jax.Array:
    """The rotation [3, 3] about an axis [3] of any length: Rodrigues' I + sin G + (1 - cos) G^2, G x = axis x x."""
    x, y, z = axis / jnp.linalg.norm(axis)
    cross = jnp.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return jnp.eye(3) + jnp.sin(angle) * cross + (1 - jnp.cos(angle)) * jnp.matmul(cross, cross, precision="highest")


def umeyama(points: jax.Array, images: jax.Array, queries: jax.Array) -> jax.Array:
    """The queries [M, d] under the similarity a R x + w, det R = 1, that fits the pairs [N, d] best (Umeyama 1991).

    With U S V' the singular value decomposition of the covariance of images and points, both less their means:
    R = U D V', where D is I but for its last entry, det(U) det(V); a = tr(S D) / var(points);
    w = mean(images) - a R mean(points).
    """
    x, y = points - points.mean(0), images - images.mean(0)
    left, strengths, right = jnp.linalg.svd(jnp.matmul(y.T, x, precision="highest"))
    signs = jnp.ones(len(strengths)).at[-1].set(jnp.linalg.det(left) * jnp.linalg.det(right))
    scale = jnp.sum(strengths * signs) / jnp.sum(x**2)
    rotation = jnp.matmul(left * signs, right, precision="highest")
    return scale * jnp.matmul(queries - points.mean(0), rotation.T, precision="highest") + images.mean(0)


def affine(points: jax.Array, images: jax.Array, queries: jax.Array) -> jax.Array:
    """The queries [M, d] under the affine map that fits the pairs [N, d] best: Intention on (x, 1), alpha = 0."""
    return intention(_with_one(queries), _with_one(points), images, alpha=0)


def _with_one(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x, jnp.ones_like(x[:, :1])], -1)
