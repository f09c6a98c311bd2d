"""Points of parametric surfaces in random poses, to be classified: a stand-in for ModelNet that needs no data. Ours."""

import jax
import jax.numpy as jnp

Array = jax.Array
_TURN = 2 * jnp.pi


def _round(u: Array, radius: Array | float, height: Array | float) -> Array:
    """Points at the angle 2 pi u from an axis, [n, 3]."""
    radius, height = (jnp.broadcast_to(of, u.shape) for of in (radius, height))
    return jnp.stack([radius * jnp.cos(_TURN * u), radius * jnp.sin(_TURN * u), height], -1)


def _sphere(u: Array, v: Array, w: Array, form: Array) -> Array:
    z = 2 * v - 1  # uniform by area (Archimedes)
    return _round(u, jnp.sqrt(1 - z**2), z)


def _hemisphere(u: Array, v: Array, w: Array, form: Array) -> Array:
    return _round(u, jnp.sqrt(1 - v**2), v)


def _torus(u: Array, v: Array, w: Array, form: Array) -> Array:
    thin = 0.2 + 0.3 * form
    return _round(u, 1 + thin * jnp.cos(_TURN * v), thin * jnp.sin(_TURN * v))


def _cylinder(u: Array, v: Array, w: Array, form: Array) -> Array:
    return _round(u, 1.0, (1 + form) * (2 * v - 1))


def _cone(u: Array, v: Array, w: Array, form: Array) -> Array:
    radius = jnp.sqrt(v)  # uniform by area
    return _round(u, radius, (1 + form) * (1 - radius))


def _disc(u: Array, v: Array, w: Array, form: Array) -> Array:
    return _round(u, jnp.sqrt(v), 0.0)


def _helix(u: Array, v: Array, w: Array, form: Array) -> Array:
    return _round(2 * u, 1.0, (2 + form) * (u - 0.5))  # two turns


def _saddle(u: Array, v: Array, w: Array, form: Array) -> Array:
    x, y = 2 * u - 1, 2 * v - 1
    return jnp.stack([x, y, (0.5 + form) * (x**2 - y**2)], -1)


def _box(u: Array, v: Array, w: Array, form: Array) -> Array:
    """A face each, by its number 6 w; the third side is 1 + form times as long."""
    face = jnp.int32(6 * w)
    a, b, side = 2 * u - 1, 2 * v - 1, 2.0 * (face % 2) - 1
    around = jnp.stack([jnp.stack([side, a, b], -1), jnp.stack([a, side, b], -1), jnp.stack([a, b, side], -1)])
    return around[face // 2, jnp.arange(len(u))] * jnp.stack([1.0, 1.0, 1 + form])


def _tetrahedron(u: Array, v: Array, w: Array, form: Array) -> Array:
    corner = jnp.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    face = jnp.int32(4 * w)
    a, b, c = (corner[(face + place) % 4] for place in range(3))
    folded = (u + v > 1)[:, None]
    u, v = (jnp.where(folded, 1 - one[:, None], one[:, None]) for one in (u, v))
    return a + u * (b - a) + v * (c - a)


# Name of a class -> function(u, v, w, each uniform in (0, 1), [n]; form, uniform in (0, 1), []) -> points [n, 3].
SURFACES = {
    "sphere": _sphere,
    "hemisphere": _hemisphere,
    "torus": _torus,
    "cylinder": _cylinder,
    "cone": _cone,
    "disc": _disc,
    "helix": _helix,
    "saddle": _saddle,
    "box": _box,
    "tetrahedron": _tetrahedron,
}


def draw(key: Array, label: Array, points: int) -> Array:
    """`points` points [points, 3] of the surface with a number [], before pose and noise."""
    where, form = jax.random.split(key)
    lots, form = jax.random.uniform(where, (3, points)), jax.random.uniform(form)
    branches = [lambda lots, own=own: own(*lots, form) for own in SURFACES.values()]
    return jax.lax.switch(label, branches, lots)
