"""Any op inside Flax's own attention modules."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen, nnx
from jax import Array, random

from kvq_jax.names import choose
from kvq_jax.nn.mixer import Op, resolve
from kvq_jax.nn.multihead import SCALINGS
from kvq_jax.ops import masks
from kvq_jax.ops.operators import affine_form
from kvq_jax.ops.similarity import mix

_WEIGHTS = "attention_weights"  # as Flax calls them


def as_attention_fn(op: Op = "softmax", *, scaling: str = "head") -> Callable[..., Array]:
    """An op as the `attention_fn` of flax.linen.MultiHeadDotProductAttention and flax.nnx.MultiHeadAttention.

    Softmax with scaling='head', or with scaling='none' and scale=depth ** -0.5, equals
    flax.linen.dot_product_attention, and drops the same weights for the same random key. One thing differs: a query
    with no key left gets zeros, not the mean of the masked values. Of an op that is affine in the values, as nearly all
    are, op(query, key, I) - op(query, key, 0) is the matrix of weights. Dropout acts on that matrix, and
    `sow_weights=True` stores it under 'attention_weights'. The op computes in float32 at least: `dtype` and `precision`
    are those of Flax's projections.

    Args:
        op: a name, a function or dict(name=..., **options), as in kvq_jax.nn.Mixer. An option that is an array [H] has
            a value for each head. There are no parameters here, so alpha cannot be learnt.
        scaling: the factor on the query, a name of kvq_jax.nn.SCALINGS.

    Returns:
        attention_fn(query [..., M, H, d], key [..., N, H, d], value [..., N, H, k], mask=None, *, dropout_rng=None,
        dropout_rate=0.0, broadcast_dropout=True, deterministic=True, module=None, is_causal=False) -> [..., M, H, k].
        The mask broadcasts against [..., H, M, N]; what is not zero takes part (Flax makes masks of floats). With
        is_causal a query sees the keys up to its own place.

    Raises:
        ValueError: if a name or option is unknown, or for an alpha_kind; from attention_fn also if shapes do not fit,
            dropout lacks its random key, or weights are to be dropped or stored of an op that has none.
    """
    said, factor = resolve(op), choose(SCALINGS, scaling, "scaling")
    if said.alpha_kind is not None:
        raise ValueError("an attention_fn has no parameters: give alpha, without alpha_kind")

    def attention_fn(
        query,
        key,
        value,
        mask=None,
        *,
        dropout_rng=None,
        dropout_rate=0.0,
        broadcast_dropout=True,
        deterministic=True,
        module=None,
        dtype=None,
        precision=None,
        is_causal=False,
    ):
        heads, depth = query.shape[-2:]
        query, key, value = (jnp.swapaxes(x, -2, -3) for x in (factor(depth, heads) * jnp.asarray(query), key, value))
        if mask is not None:
            mask = jnp.asarray(mask, bool)
            mask = mask.reshape((1,) * (query.ndim - mask.ndim) + mask.shape)  # never mistaken for a mask of keys
        if is_causal:
            causal = jnp.tri(query.shape[-2], key.shape[-2], dtype=bool)
            mask = causal.reshape((1,) * (query.ndim - 2) + causal.shape) if mask is None else mask & causal

        def attend(value):
            return said.operator.function(query, key, value, mask=mask, **said.options)

        drop = dropout_rate > 0 and not deterministic
        if not drop and module is None:
            return jnp.swapaxes(attend(value), -2, -3)
        if not said.operator.affine:
            raise ValueError(f"op {said.name!r} has no weights to drop or to store: it is not affine in its values")
        weights, rest = affine_form(attend, value.shape[-2], value.dtype)
        if module is not None:
            module.sow("intermediates" if isinstance(module, linen.Module) else nnx.Intermediate, _WEIGHTS, weights)
        if drop:
            weights = _drop(weights, dropout_rng, dropout_rate, broadcast_dropout)
        _, held, spoilt = masks.absent(key, value, masks.resolve(query, key, value, mask))
        return jnp.swapaxes(masks.owe(mix(weights, held) + rest, spoilt).astype(value.dtype), -2, -3)

    return attention_fn


def _drop(weights: Array, rng: Array | None, rate: float, broadcast: bool) -> Array:
    """Flax's dropout of weights [..., H, M, N]: with `broadcast`, the same of them in every head and batch."""
    if rng is None:
        raise ValueError("dropout of attention weights needs dropout_rng")
    shape = (1,) * (weights.ndim - 2) + weights.shape[-2:] if broadcast else weights.shape
    return weights * random.bernoulli(rng, 1 - rate, shape) / (1 - rate)
