"""Operators of KVQ space: pure functions op(query, key, value, *, mask=None, **options) -> output."""

from kvq_jax.ops.attention import (
    erf_attention,
    laplace_attention,
    linear_attention,
    softmax_attention,
    uniform_attention,
)
from kvq_jax.ops.constraints import constrained_intention, constrained_weights
from kvq_jax.ops.discriminants import lda, ls_svm, qda, within_class
from kvq_jax.ops.features import nystroem_intention, whitening
from kvq_jax.ops.grid import grid_attention
from kvq_jax.ops.intention import informer, intention, intention_weights, sigma_informer, sigma_intention
from kvq_jax.ops.kernels import KERNELS, kernel_intention
from kvq_jax.ops.operators import OPERATORS, OPS, Operator
from kvq_jax.ops.scaling import intention_map
from kvq_jax.ops.streaming import chunked

__all__ = [
    "KERNELS",
    "OPERATORS",
    "OPS",
    "Operator",
    "chunked",
    "constrained_intention",
    "constrained_weights",
    "erf_attention",
    "grid_attention",
    "informer",
    "intention",
    "intention_map",
    "intention_weights",
    "kernel_intention",
    "laplace_attention",
    "lda",
    "linear_attention",
    "ls_svm",
    "nystroem_intention",
    "qda",
    "sigma_informer",
    "sigma_intention",
    "softmax_attention",
    "uniform_attention",
    "whitening",
    "within_class",
]
