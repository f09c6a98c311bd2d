"""Randomness is (seed, purpose, step): one key for each, so a resumed run draws what the uninterrupted one would have."""

import jax

_PURPOSES = ("init", "train", "validate", "evaluate", "examples")


def stream(seed: int | jax.Array, purpose: str, step: int | jax.Array = 0) -> jax.Array:
    """The PRNG key of (seed, purpose, step). `purpose` is one of init, train, validate, evaluate, examples."""
    key = jax.random.fold_in(jax.random.key(seed), _PURPOSES.index(purpose))
    return jax.random.fold_in(key, step)
