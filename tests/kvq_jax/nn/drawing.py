"""Arrays, parameters and compiled modules for the tests of blocks, made without compiling a program for each draw."""

import functools
import zlib

import jax
import numpy as np


def draw(*shape, seed=0):
    """N(0, 1), float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def start(module, *args, seed=0, scale=0.5, **kwargs):
    """Variables with every parameter drawn anew, norms and biases included, so that none is at a special value."""
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *args, **kwargs))
    leaves, tree = jax.tree.flatten(shapes)
    return tree.unflatten([scale * draw(*x.shape, seed=(seed, i)) for i, x in enumerate(leaves)])


def drawn(init, given):
    """init(given), the variables or the state of an experiment: parameters drawn, all else zeros."""

    def filled(path, leaf):
        if getattr(path[0], "key", getattr(path[0], "name", "")) != "params":
            return np.zeros(leaf.shape, leaf.dtype)
        rows = np.prod(leaf.shape[:-1]) if len(leaf.shape) > 1 else 16
        return draw(*leaf.shape, seed=zlib.crc32(jax.tree_util.keystr(path).encode())) / np.float32(rows**0.5)

    return jax.tree_util.tree_map_with_path(filled, jax.eval_shape(init, given))


def count(module, *args, **kwargs):
    """The number of parameters."""
    return sum(x.size for x in jax.tree.leaves(jax.eval_shape(lambda: module.init(jax.random.key(0), *args, **kwargs))))


@functools.cache
def compiled(module, method="__call__"):
    """module.apply as one program for each shape."""
    return jax.jit(functools.partial(module.apply, method=method))


def run(module, variables, *args, method="__call__", **kwargs):
    return compiled(module, method)(variables, *args, **kwargs)
