"""Operators as compiled programs, for the tests of operators."""

import jax
import numpy as np


def compiled(op, *static):
    """op as one program for each shape, from and to NumPy: op by op, the compiler takes most of the time."""
    jitted = jax.jit(op, static_argnames=static)
    return lambda *arrays, **options: np.asarray(jitted(*arrays, **options))
