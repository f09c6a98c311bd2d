"""Kernels, and Intention with them: kernel ridge regression (Garnelo and Czarnecki 2023, Section 3.1).

A kernel is a positive definite function (x [..., M, d], y [..., N, d]) -> [..., M, N]. The names of KERNELS have a
width, gamma > 0, a `Scalar`; or a name of BANDWIDTHS, a rule that sets it from the keys. The paper (arXiv 2305.10203,
Section 5.2) prints the Gaussian kernel without its minus and gives no gamma.

Distances are sums of squared differences, not |x|^2 - 2 x'y + |y|^2: rounding there would be as large as the distance
between near points, and kernel matrices would be indefinite. Gradients are finite for duplicate points; the derivative
of a cusp at distance 0 (laplacian, matern12) is taken as 0.
"""

import math
import numbers
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from kvq_jax.names import choose
from kvq_jax.ops import least_squares, linalg
from kvq_jax.ops.linalg import matmul, transpose
from kvq_jax.ops.masks import Mask, Scalar
from kvq_jax.ops.similarity import absolute_distance, scores, squared_distance


def linear(x: Array, y: Array) -> Array:
    """x'y: [..., M, d], [..., N, d] -> [..., M, N]."""
    return scores(x, y)


def polynomial(x: Array, y: Array, gamma: Scalar, *, degree: int = 3, offset: Scalar = 1.0) -> Array:
    """(gamma x'y + offset)^degree: [..., M, d], [..., N, d] -> [..., M, N]. `degree` is a whole number, offset >= 0."""
    return (gamma * linear(x, y) + offset) ** degree


def gaussian(x: Array, y: Array, gamma: Scalar) -> Array:
    """exp(-gamma |x - y|^2): [..., M, d], [..., N, d] -> [..., M, N].

    Garnelo and Czarnecki 2023, Section 5.2, with the minus that is missing there.
    """
    return jnp.exp(-gamma * squared_distance(x, y))


def laplacian(x: Array, y: Array, gamma: Scalar) -> Array:
    """exp(-gamma |x - y|_1), the sum of absolute differences: [..., M, d], [..., N, d] -> [..., M, N]."""
    return jnp.exp(-gamma * absolute_distance(x, y))


def matern(x: Array, y: Array, gamma: Scalar, *, twice_nu: int) -> Array:
    """Matern kernel of smoothness nu = 1/2, 3/2 or 5/2: [..., M, d], [..., N, d] -> [..., M, N].

    With u = sqrt(2 nu) |x - y| / length and length = 1 / sqrt(2 gamma): exp(-u) times 1, 1 + u or 1 + u + u^2 / 3
    (Rasmussen and Williams 2006, Eq. 4.17). For nu to infinity it becomes `gaussian` of the same gamma. Where x = y the
    first derivative is right and the second is taken as 0.
    """
    u = jnp.sqrt(twice_nu * 2 * gamma) * least_squares.root(squared_distance(x, y))
    return MATERN[twice_nu](u) * jnp.exp(-u)


MATERN = {1: lambda u: 1.0, 3: lambda u: 1 + u, 5: lambda u: 1 + u + u**2 / 3}


class Kernel(NamedTuple):
    """A kernel, and what the rules for its width need."""

    call: Callable[[Array, Array, Scalar], Array]
    by_variance: Callable[[int, Array], Array | float] | None  # (d, variance of a coordinate) -> gamma; None: no width
    distance: Callable[[Array, Array], Array] | None = None
    by_distance: Callable[[Array], Array] | None = None  # typical distance -> gamma


def _radial(call: Callable) -> Kernel:
    return Kernel(call, lambda d, variance: 1 / (d * variance), squared_distance, lambda square: 1 / (2 * square))


KERNELS: dict[str, Kernel] = {
    "linear": Kernel(lambda x, y, gamma: linear(x, y), None),
    "polynomial": Kernel(polynomial, lambda d, variance: 1 / (d * variance)),
    "gaussian": _radial(gaussian),
    "laplacian": Kernel(
        laplacian, lambda d, variance: 1 / (d * jnp.sqrt(variance)), absolute_distance, lambda distance: 1 / distance
    ),
    "matern12": _radial(lambda x, y, gamma: matern(x, y, gamma, twice_nu=1)),
    "matern32": _radial(lambda x, y, gamma: matern(x, y, gamma, twice_nu=3)),
    "matern52": _radial(lambda x, y, gamma: matern(x, y, gamma, twice_nu=5)),
}


def by_variance(kernel: Kernel, key: Array, keep: Array | None) -> Array | float:
    """gamma = 1 / (d var), with var the keys' variance, averaged over coordinates.

    1 / (d sqrt(var)) for the laplacian kernel. It is scikit-learn's 'scale' for keys whose coordinates have one mean;
    ours does not change when the keys are moved together.
    """
    variance, square = (
        least_squares.mean(jnp.square(x), keep).mean(-1, keepdims=True)
        for x in (key - least_squares.mean(key, keep), key)
    )
    # Keys of one point are as far from their mean as rounding puts it.
    spread = jnp.where(variance > (4 * jnp.finfo(key.dtype).eps) ** 2 * square, variance, 0)
    return kernel.by_variance(max(key.shape[-1], 1), least_squares.positive(spread))


def by_median(kernel: Kernel, key: Array, keep: Array | None) -> Array | float:
    """The median heuristic over pairs i < j: gamma = 1 / (2 median |k_i - k_j|^2).

    For the laplacian kernel 1 / median |k_i - k_j|_1.
    """
    if kernel.distance is None:
        raise ValueError("the median heuristic is for kernels of a distance; use gamma='variance' or a number")
    n = key.shape[-2]
    pairs = jnp.triu(jnp.ones((n, n), bool), 1)
    pairs = pairs if keep is None else pairs & (keep > 0) & transpose(keep > 0)
    distance = jnp.where(pairs, kernel.distance(key, key), jnp.inf)
    distance = jnp.sort(distance.reshape(*distance.shape[:-2], n * n), axis=-1)
    count = jnp.broadcast_to(pairs.sum((-2, -1)), distance.shape[:-1])[..., None]
    middle = jnp.stack([jnp.maximum(count - 1, 0) // 2, count // 2], -1)[..., 0, :]
    median = jnp.take_along_axis(distance, middle, axis=-1).mean(-1)[..., None, None]
    return kernel.by_distance(least_squares.positive(jnp.where(jnp.isfinite(median), median, 0)))


BANDWIDTHS = {"variance": by_variance, "median": by_median}


def bind(
    kernel: str | Callable, gamma: Scalar | str, key: Array, keep: Array | None
) -> Callable[[Array, Array], Array]:
    """A kernel (x, y) -> [..., M, N] from a name and a width.

    Rules for the width see the keys [..., N, d] that keep [..., N, 1] (None: all) counts; where these are one point
    its variance, or its typical distance, counts as 1. An array gamma is [..., 1, 1]. A callable is itself the kernel.
    Raises ValueError for an unknown kernel or rule, or a number gamma that is not positive.
    """
    if callable(kernel):
        return kernel
    row = choose(KERNELS, kernel, "kernel")
    if row.by_variance is None:
        gamma = None
    elif isinstance(gamma, str):
        gamma = choose(BANDWIDTHS, gamma, "rule")(row, key, keep)
    elif isinstance(gamma, numbers.Real) and not 0 < gamma < math.inf:
        raise ValueError(f"gamma must be positive, got {gamma}")
    return lambda x, y: row.call(x, y, gamma)


def kernel_intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    kernel: str | Callable = "gaussian",
    gamma: Scalar | str = "variance",
) -> Array:
    """k(Q, K) (k(K, K) + alpha I)^-1 V: Intention with a kernel, Garnelo and Czarnecki 2023, Section 3.1, Eq. 4.

    Kernel ridge regression, and the posterior mean of a Gaussian process with noise variance alpha. It equals Intention
    on the features of `kvq_jax.ops.features.whitening`. With the linear kernel it is `intention`.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k]. Under a mask
    [..., M, N] every query has a regression of its own.

    Args:
        alpha: a number >= 0, or an array > 0. 0 is Moore-Penrose: eigenvalues of k(K, K) below 1000 eps of the largest
            count as zero, however many keys are masked.
        kernel: a name of KERNELS, or a function (x [..., M, d], y [..., N, d]) -> [..., M, N].
        gamma: > 0, or a name of BANDWIDTHS. Not used by the linear kernel, nor with a function.
    """
    route = least_squares.checked_route(alpha, "auto")

    def run(query, key, value, keep, alpha, gamma):
        k = bind(kernel, gamma, key, keep)
        gram, cross = k(key, key), k(query, key)
        if keep is not None:
            there = transpose(keep > 0)
            gram, cross = jnp.where(there & (keep > 0), gram, 0), jnp.where(there, cross, 0)
        if route == "pinv":
            return matmul(cross, matmul(linalg.pinv(gram, cut=1000), value))
        gram = gram + alpha * jnp.eye(gram.shape[-1], dtype=gram.dtype)
        if value.shape[-1] <= query.shape[-2]:
            return matmul(cross, linalg.solve(gram, value))
        return matmul(transpose(linalg.solve(gram, transpose(cross))), value)

    return least_squares.fit(run, query, key, value, mask, scalars=(alpha, gamma))
