"""Operators of KVQ space: pure functions of one signature

    op(query [..., M, d], key [..., N, d], value [..., N, k], *, mask=None, **options) -> [..., M, k]

Rows are points: Q K' is `query @ key.T`. Leading dimensions broadcast. `mask` is [..., N] or [..., M, N], True = take
part; a query without keys gets zeros: see kvq_jax.ops.masks. An option that is a `Scalar` is a number, or an array that
broadcasts against the leading dimensions ([H]: one for each head) and may be learnt. Everything is computed in float32
at least, without TF32 or bfloat16 passes on accelerators; the output has the inputs' dtype.

Every operator raises ValueError if shapes do not fit, for an unknown name (the error lists the known ones) and for a
number out of range. Docstrings name what else is raised.
"""

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
from kvq_jax.ops.operators import OPERATORS, OPS, Operator, affine_form
from kvq_jax.ops.scaling import intention_map
from kvq_jax.ops.streaming import chunked
