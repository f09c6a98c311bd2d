"""Random keys: one for each (seed, purpose, step), so a resumed run draws what the uninterrupted run draws."""

import jax

PURPOSES = ("init", "train", "validate", "evaluate", "examples", "sizes")


def key_of(seed: int | jax.Array, purpose: str, step: int | jax.Array = 0) -> jax.Array:
    """The key of (seed, purpose, step). `purpose` is one of PURPOSES; ValueError for any other."""
    key = jax.random.fold_in(jax.random.key(seed), PURPOSES.index(purpose))
    return jax.random.fold_in(key, step)
