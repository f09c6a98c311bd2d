"""The ridge alpha of Intention as a module: a fixed number, or a learnable one kept in its range."""
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from kvq_jax.nn.names import choose


class AlphaKind(NamedTuple):
    """alpha = squash(theta); no squash, no theta: alpha is the initial value."""

    squash: Callable[[jax.Array], jax.Array] | None
    inverse: Callable[[float], float] | None
    contains: Callable[[float], bool]
    interval: str


ALPHA_KINDS = {
    "fixed": AlphaKind(None, None, lambda a: 0 <= a < math.inf, "[0, inf)"),
    "softplus": AlphaKind(
        jax.nn.softplus, lambda a: a + math.log(-math.expm1(-a)), lambda a: 0 < a < math.inf, "(0, inf)"),
    "sigmoid": AlphaKind(
        jax.nn.sigmoid, lambda a: math.log(a) - math.log1p(-a), lambda a: 0 < a < 1, "(0, 1)"),
}


class Alpha(nn.Module):
    """alpha, ready to be an op's `alpha=`. It starts at `initial`, whatever the kind.

    - 'fixed': the number itself, no parameter; a Python number, so that 0 selects an op's pseudo-inverse.
    - 'softplus': softplus(theta) > 0. The Intention paper gives no alpha for regression; this is our default.
    - 'sigmoid': sigmoid(theta) in (0, 1), the Informer's (Intention paper, Appendix 8); 0.5 is theta = 0.

    `shape` () is one alpha; (H,) one for each head of a `MultiHead`, whose heads are a leading dimension of the op.
    The field is not called `init` because that is a method of every Flax module.

    Raises ValueError if the kind is unknown or `initial` is outside its range.
    """

    kind: str = "softplus"
    initial: float = 1e-3
    shape: Sequence[int] = ()

    @nn.compact
    def __call__(self) -> jax.Array | float:
        """-> alpha [*shape], float32; the number of a 'fixed' alpha has no shape."""
        kind = choose(ALPHA_KINDS, self.kind, "kind of alpha")
        if not kind.contains(self.initial):
            raise ValueError(f"a {self.kind} alpha starts in {kind.interval}, not at {self.initial}")
        if kind.squash is None:
            return self.initial
        theta = nn.initializers.constant(kind.inverse(self.initial))
        return kind.squash(self.param("theta", theta, tuple(self.shape), jnp.float32))
