"""The ridge alpha as a module: a fixed number, a learnt one kept in its range, or a function of keys and values."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.names import choose
from kvq_jax.nn.block import Block, param_dtype
from kvq_jax.nn.mlp import MLP, Linear
from kvq_jax.nn.pooling import set_mean

THETA = "theta"  # the parameter of a learnt alpha, which weight decay leaves alone


class AlphaKind(NamedTuple):
    """alpha = squash(theta); no squash, no theta: alpha is the initial value."""

    squash: Callable[[Array], Array] | None
    inverse: Callable[[float], float] | None
    high: float = math.inf  # the values lie between 0 and this
    closed: bool = False  # 0 is one of them
    from_set: bool = False  # theta is a function of keys and values

    @property
    def interval(self) -> str:
        """Where the values lie, in words: [0, inf)."""
        return f"{'[' if self.closed else '('}0, {self.high:g})"

    def contains(self, a: float) -> bool:
        """Whether a value lies there."""
        return 0 < a < self.high or (self.closed and a == 0)


def _softplus_inverse(a: float) -> float:
    return a + math.log(-math.expm1(-a))


ALPHA_KINDS = {
    "fixed": AlphaKind(None, None, closed=True),
    "softplus": AlphaKind(jax.nn.softplus, _softplus_inverse),
    "sigmoid": AlphaKind(jax.nn.sigmoid, lambda a: math.log(a) - math.log1p(-a), high=1.0),
    "set": AlphaKind(jax.nn.softplus, _softplus_inverse, from_set=True),
}


class Alpha(Block):
    """The ridge alpha of an operator. Every kind starts at `initial`.

    - 'fixed': the number itself, without a parameter. It stays a Python number, so that 0 selects the pseudo-inverse.
    - 'softplus': softplus(theta) > 0. The Intention paper gives no alpha for regression; this is our default.
    - 'sigmoid': sigmoid(theta) in (0, 1), as in the Informer (Intention paper, Appendix 8); theta = 0 is 0.5.
    - 'set': softplus(MLP(mean_i [K_i, V_i])) > 0, the dashed path of Figure 12 (Intention paper, Appendix 1). The paper
      leaves this function of (K, V) open. Its last layer starts with zero weights, so that every set starts at
      `initial`.

    `shape` is () for one alpha, or (H,) for one in each head of a `MultiHead`, whose heads are a leading dimension of
    the op. The field is not called `init` because that is a method of every Flax module.

    Raises ValueError if the kind is unknown or `initial` is outside its range, and for 'set' without keys and values.
    """

    kind: str = "softplus"  # one of the four above
    initial: float = 1e-3  # where alpha starts
    shape: Sequence[int] = ()  # (): one alpha; (H,): one in each head
    features: Sequence[int] = (64,)  # hidden layers of 'set'

    @nn.compact
    def __call__(
        self, key: Array | None = None, value: Array | None = None, *, mask: Array | None = None
    ) -> Array | float:
        """-> alpha [*shape], float32. 'fixed' gives its number, 'set' [..., *shape]: one for each set.

        Only 'set' reads key [..., N, d], value [..., N, k] and mask [..., N], True = take part. With no key left their
        means are zero. A set's leading dimensions are the first of the op's: with heads, [batch, H].
        """
        kind = choose(ALPHA_KINDS, self.kind, "kind of alpha")
        if not kind.contains(self.initial):
            raise ValueError(f"a {self.kind} alpha starts in {kind.interval}, not at {self.initial}")
        if kind.squash is None:
            return self.initial
        start = nn.initializers.constant(kind.inverse(self.initial))
        if not kind.from_set:
            theta = self.param(THETA, start, tuple(self.shape), param_dtype(self))
            return kind.squash(theta.astype(jnp.float32))
        if key is None or value is None:
            raise ValueError(f"alpha of kind {self.kind!r} is a function of the set: call it with key and value")
        if mask is not None and mask.ndim not in (1, key.ndim - 1):
            raise ValueError(
                f"alpha of kind {self.kind!r} needs a mask [..., N] over keys {key.shape}, got {mask.shape}"
            )
        return kind.squash(self._of_set(key, value, mask, start))

    def _of_set(self, key, value, mask, start) -> Array:
        """theta [..., *shape]."""
        means = [set_mean(x, mask)[..., 0, :] for x in (key, value)]
        if self.features:
            means = [MLP(self.features, activate_final=True, name="hidden")(*means)]
        last = Linear(
            math.prod(self.shape), kernel_init=nn.initializers.zeros, bias_init=lambda fan_in: start, name="out"
        )
        theta = last(*means).astype(jnp.float32)
        return theta.reshape(*theta.shape[:-1], *self.shape)
