"""Point clouds to be classified (Set Transformer, Section 5.5, Table 4)."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from experiments.tasks import surfaces
from experiments.tasks.sets import SetTask
from kvq_jax.domains import Count, NotNegative, PositiveRange

Array = jax.Array


class ResidentClouds(flax.struct.PyTreeNode):
    """Clouds of one split, on the device: points float32 [n, P, 3], label int32 [n]."""

    points: Array
    label: Array
    training: bool = flax.struct.field(pytree_node=False)


class Surfaces(flax.struct.PyTreeNode):
    """Clouds of one split that are drawn anew: points of experiments.tasks.surfaces."""

    training: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class Clouds:
    """`points` points of one shape, centred and scaled to variance 1; the truth is its class, [].

    A resident cloud is asked for or drawn uniformly, its points are drawn without replacement; those to train on are
    turned around the third axis, which is up, and scaled by a factor of each axis. Surfaces are in any pose or upright,
    and with noise.
    """

    points: Count
    noise: NotNegative  # standard deviation, of surfaces of size 1
    scale: PositiveRange  # least and largest factor of an axis
    turn: bool  # whether clouds to train on are turned
    upright: bool  # whether surfaces are turned around the third axis alone, too

    def sample(self, key: Array, data: ResidentClouds | Surfaces, number: Array | None = None) -> SetTask:
        """One cloud of a split; number: which of those that are resident."""
        return self._resident(key, data, number) if isinstance(data, ResidentClouds) else self._surface(key, data)

    def _surface(self, key: Array, data: Surfaces) -> SetTask:
        label_key, point_key, pose_key, scale_key, noise_key = jax.random.split(key, 5)
        label = jax.random.randint(label_key, (), 0, len(surfaces.SURFACES))
        x = surfaces.draw(point_key, label, self.points) * self._factors(scale_key)
        pose = upright_rotation(pose_key) if self.upright else rotation(pose_key)
        x = x @ pose + self.noise * jax.random.normal(noise_key, x.shape)
        return SetTask(standardised(x), None, label, data.training)

    def _resident(self, key: Array, data: ResidentClouds, number: Array | None) -> SetTask:
        cloud_key, point_key, turn_key, scale_key = jax.random.split(key, 4)
        number = jax.random.randint(cloud_key, (), 0, len(data.label)) if number is None else number
        chosen = jax.random.permutation(point_key, data.points.shape[1])[: self.points]
        x = standardised(data.points[number, chosen])
        if data.training and self.turn:
            x = x @ upright_rotation(turn_key) * self._factors(scale_key)
        return SetTask(x, None, data.label[number], data.training)

    def _factors(self, key: Array) -> Array:
        low, high = self.scale
        return jax.random.uniform(key, (3,), minval=low, maxval=high)


def standardised(x: Array) -> Array:
    """Points [n, 3] with mean 0, and mean square 1 over points and coordinates."""
    x = x - x.mean(0)
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).mean(), 1e-12))


def upright_rotation(key: Array) -> Array:
    """A rotation [3, 3] around the third axis, by an angle uniform among all."""
    angle = 2 * jnp.pi * jax.random.uniform(key)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])


def rotation(key: Array) -> Array:
    """A rotation [3, 3], uniform among all: that of a quaternion of four normals."""
    quaternion = jax.random.normal(key, (4,))
    w, x, y, z = quaternion / jnp.linalg.norm(quaternion)
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
