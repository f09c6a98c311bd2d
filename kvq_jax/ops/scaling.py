"""The variance of the Intention map Z = Q K'[KK']^-1 and three ways to scale it.

Garnelo and Czarnecki 2023, Appendix 9, Figure 15. Optional: the authors trained modules of up to 4 to 6 layers
unscaled.
"""

import math
import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kvq_jax.names import choose
from kvq_jax.ops import linalg, masks
from kvq_jax.ops.linalg import matmul, transpose
from kvq_jax.ops.masks import Scalar

# Name -> (d, theta) -> (factor, share of the Gram matrix, ridge), for Z = factor Q K'[share KK' + ridge I]^-1.
MAP_SCALINGS: dict[str, Callable] = {
    "none": lambda d, theta: (1.0, 1.0, 0.0),
    "sqrt": lambda d, theta: (math.sqrt(d), 1.0, 0.0),
    "sigmoid": lambda d, theta: (0.5 * math.sqrt(d), jax.nn.sigmoid(theta), jax.nn.sigmoid(-theta)),
}


def intention_map(query: Array, key: Array, *, scaling: str = "none", theta: Scalar = 0.0) -> Array:
    """Z: Q K'[KK']^-1 ('none'), sqrt(d) times that ('sqrt'), or 0.5 sqrt(d) Q K'[s KK' + (1 - s) I]^-1 ('sigmoid').

    Garnelo and Czarnecki 2023, Appendix 9. Here s = sigmoid(theta) multiplies KK'; in the Informer (Appendix 8) 1 -
    alpha does. The two agree at theta = 0 and are opposite in the sign of theta. At theta = 0 the factor 0.5 cancels:
    sqrt(d) Q K'(KK' + I)^-1. Without a ridge the inverse is that of Moore and Penrose: Q K'(KK')^+ = Q K^+.
    `map_variance` is the variance of its entries.

    query [..., M, d], key [..., N, d] -> [..., M, N], in float32 at least. `theta` is that of 'sigmoid' and may be
    learnt, starting at 0. Raises ValueError for an unknown scaling, and if shapes do not fit.
    """
    masks.output_shape(query, key, key)
    scale = choose(MAP_SCALINGS, scaling, "scaling")
    _, compute = linalg.dtypes(query, key)
    query, key = jnp.asarray(query, compute), jnp.asarray(key, compute)
    theta = jnp.asarray(theta, compute)[..., None, None]
    factor, share, ridge = scale(key.shape[-1], theta)
    if isinstance(ridge, numbers.Real):
        return factor * matmul(query, linalg.pinv(key))
    system = share * linalg.gram(key) + ridge * jnp.eye(key.shape[-2], dtype=compute)
    return factor * transpose(linalg.solve(system, matmul(key, transpose(query))))


def map_variance(n: int | np.ndarray, d: int | np.ndarray) -> np.ndarray:
    """The variance of an entry of Z = Q K^+ for Q [M, d], K [N, d] of independent N(0, 1) entries; not in the paper.

    By the mean of an inverse Wishart matrix it is 1 / (d - N - 1) for d > N + 1, d / (N (N - d - 1)) for d < N - 1, and
    infinite between. Scaled by sqrt(d) it is d times that, which tends to 1 as d grows. With one key: E[1 / |k|^2] =
    1 / (d - 2). The explosion for small d in the paper's Figure 15 comes from inverting the singular KK' of d < N.

    The number of keys n and the dimension d are numbers or arrays; the result is float64 and has their common shape.
    """
    n, d = np.broadcast_arrays(np.asarray(n, float), np.asarray(d, float))
    wide, tall = d > n + 1, d < n - 1
    variance = np.full(n.shape, np.inf)
    variance[wide] = 1 / (d - n - 1)[wide]
    variance[tall] = (d / n)[tall] / (n - d - 1)[tall]
    return variance
