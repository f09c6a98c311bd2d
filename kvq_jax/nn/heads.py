"""Ops by name, their ridge, and the split into heads: what every block that mixes the elements of a set shares."""

import inspect
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from kvq_jax.nn.alpha import Alpha
from kvq_jax.nn.names import choose
from kvq_jax.ops import OPS

Op = str | Callable[..., jax.Array]  # a name of kvq_jax.ops.OPS, or op(query, key, value, *, mask, **options)


def find_op(op: Op) -> Callable[..., jax.Array]:
    """The function that `op` names; a function is itself.

    Raises ValueError if the name is unknown.
    """
    return choose(OPS, op, "op") if isinstance(op, str) else op


class Ridge(nn.Module):
    """The option `alpha` of an op that has one, as a module; no option and no parameter for the others.

    kind None leaves the op its own default. Otherwise see kvq_jax.nn.Alpha; `shape` (H,) is one alpha for each head, as in
    the Informer (Garnelo and Czarnecki 2023, arXiv 2305.10203, Appendix 8: kind 'sigmoid', initial 0.5).

    Raises ValueError if the op or the kind is unknown, or `initial` is outside the kind's range.
    """

    op: Op
    kind: str | None = None
    initial: float = 0.5
    shape: Sequence[int] = ()

    @nn.compact
    def __call__(
        self, key: jax.Array | None = None, value: jax.Array | None = None, *, mask: jax.Array | None = None
    ) -> dict[str, jax.Array | float]:
        """-> {} or {'alpha': [*shape]}, keyword arguments for the op. The set matters to kind 'set' alone: see kvq_jax.nn.Alpha."""
        if self.kind is None or "alpha" not in inspect.signature(find_op(self.op)).parameters:
            return {}
        return {"alpha": Alpha(self.kind, self.initial, self.shape, name="alpha")(key, value, mask=mask)}


def split_heads(x: jax.Array, num_heads: int) -> jax.Array:
    """[..., N, H d] -> [..., H, N, d]: heads are contiguous slices of the features, and a leading dimension of the op.

    Raises ValueError if num_heads does not divide the width.
    """
    if x.shape[-1] % num_heads:
        raise ValueError(f"{num_heads} heads do not divide a width of {x.shape[-1]}")
    return jnp.swapaxes(x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads), -2, -3)


def merge_heads(x: jax.Array) -> jax.Array:
    """[..., H, N, d] -> [..., N, H d], the inverse of `split_heads`."""
    x = jnp.swapaxes(x, -2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def mask_of_heads(mask: jax.Array | None, key: jax.Array) -> jax.Array | None:
    """A mask for key [..., N, H d] as a mask for its heads [..., H, N, d]: [..., 1, N] or [..., 1, M, N]; [N] as it is."""
    if mask is None or mask.ndim == 1:
        return mask
    return jnp.expand_dims(mask, -2 if mask.ndim == key.ndim - 1 else -3)


def attend(
    op: Op,
    num_heads: int,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    mask: jax.Array | None = None,
    **options,
) -> jax.Array:
    """concatenate_h(op(Q_h, K_h, V_h)): the op on contiguous slices of features that are already projected.

    Args:
        op: a name of kvq_jax.ops.OPS, or a function of that signature.
        num_heads: H.
        query: [..., M, H d].
        key: [..., N, H d].
        value: [..., N, H k].
        mask: [..., N] or [..., M, N], True = take part.
        options: keyword arguments of the op; an array [H] differs between heads.

    Returns:
        [..., M, H k]; zeros where no key is left.

    Raises:
        ValueError: if the op is unknown, shapes do not fit, or num_heads does not divide a width.
    """
    heads = (split_heads(x, num_heads) for x in (query, key, value))
    return merge_heads(find_op(op)(*heads, mask=mask_of_heads(mask, key), **options))
