"""A head that predicts all targets jointly, one multivariate normal: TNP-ND, LBANP-ND and CMANP-AND."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.util import not_jax_tracer

from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.mixer import Op
from kvq_jax.nn.mlp import MLP
from kvq_jax.nn.predictions import JointNormal, LowRankNormal, at_least_float32
from kvq_jax.nn.transformer import TransformerEncoder
from kvq_jax.ops.similarity import scores

BOUND = (0.05, 0.95)  # bounded diagonals are floor + scale * tanh


def cholesky(
    mean: Array, factor: Array, log_variance: Callable[[], Array], there: Array | None, bound: bool, jitter: float
) -> dist.Distribution:
    """N(mean, L L') with L = tril(P P') and its diagonal |p_i|^2 or, if `bound`, 0.05 + 0.95 tanh |p_i|^2.

    `jitter` is added to the diagonal of L. L L' is not P P'. It depends on the order of the targets, so this is no
    function of a set.
    """
    diagonal = jnp.sum(jnp.square(factor), -1)
    if bound:
        diagonal = BOUND[0] + BOUND[1] * jnp.tanh(diagonal)
    diagonal = diagonal + jitter
    scale_tril = jnp.tril(scores(factor, factor), -1)
    if there is not None:
        scale_tril = jnp.where(there[..., :, None] & there[..., None, :], scale_tril, 0)
        diagonal = jnp.where(there, diagonal, 1)
    identity = jnp.eye(mean.shape[-1], dtype=mean.dtype)
    scale_tril = scale_tril + diagonal[..., None] * identity
    return JointNormal(mean, scale_tril=scale_tril, validate_args=not_jax_tracer(mean))


def low_rank(
    mean: Array, factor: Array, log_variance: Callable[[], Array], there: Array | None, bound: bool, jitter: float
) -> dist.Distribution:
    """N(mean, P P' + diag(exp(log_variance) + jitter)), in O(M rank^2) by Woodbury's identity."""
    if bound:
        raise ValueError("bound limits the diagonal of a Cholesky factor: covariance='lowrank' has none")
    variance = jnp.exp(log_variance()) + jitter
    if there is not None:
        factor, variance = jnp.where(there[..., None], factor, 0), jnp.where(there, variance, 1)
    return LowRankNormal(mean, factor, variance, validate_args=not_jax_tracer(mean))


# Name -> (mean [..., n], P [..., n, rank], () -> log variance [..., n], there [..., n] or None, bound, jitter).
COVARIANCES = {"cholesky": cholesky, "lowrank": low_rank}


class CovarianceHead(Block):
    """Encodings of M targets -> a multivariate normal of their M dy outputs, index = target * dy + output.

    Nguyen and Grover 2022, TNP (arXiv 2207.04179), TNP-ND. An MLP maps each target's encoding to its mean. A
    TransformerEncoder lets targets attend to one another, and an MLP gives each output `rank` numbers, the rows of
    P [M dy, rank]. The covariance is one of COVARIANCES:

        'cholesky'  Sigma = L L', L = tril(P P')            what all published regression results used
        'lowrank'   Sigma = P P' + diag(exp(e))             e an MLP of the encodings

    The paper's text derives the low-rank form. The Cholesky form has full rank and depends on the order of the targets.
    `bound` limits its diagonal to [0.05, 1), as published for EMNIST. No jitter is published; give some where Sigma
    grows.

    An absent target is independent of all others and has variance 1: see
    kvq_jax.models.neural_processes.predictive.log_prob.

    Raises ValueError if num_heads does not divide the width, or 'lowrank' is to be bounded, too.
    """

    dim_y: int = 1
    features: int = 64
    num_layers: int = 2
    num_heads: int = 4
    hidden: int = 128
    rank: int = 20
    projector_depth: int = 4
    diagonal_depth: int = 4
    covariance: str = "cholesky"  # a name of COVARIANCES
    bound: bool = False
    jitter: float = 0.0  # added to the diagonal of L, or of Sigma if 'lowrank'
    op: Op = "softmax"
    copy_layers: bool = True

    def setup(self):
        mlp = functools.partial(MLP, kernel_init="fan_in_uniform")
        self.mean_net = mlp((self.hidden, self.dim_y))
        self.std_encoder = TransformerEncoder(self.num_layers, self.num_heads, self.hidden, self.op, self.copy_layers)
        self.projector = mlp((self.hidden,) * (self.projector_depth - 1) + (self.rank * self.dim_y,))
        self.diag_net = mlp((self.hidden,) * (self.diagonal_depth - 1) + (self.dim_y,))  # has parameters if 'lowrank'

    def __call__(self, targets: Array, mask: Array | None = None) -> dist.Distribution:
        """Encodings of targets [..., M, features], mask [..., M] (True = there) -> batch [...], event [M dy]."""
        if targets.shape[-1] != self.features:
            raise ValueError(f"expected targets [..., M, {self.features}], got {targets.shape}")
        build = choose(COVARIANCES, self.covariance, "covariance")

        def of_outputs(rows, *width):  # [..., M, dy * width] -> [..., M dy, width]
            rows = at_least_float32(rows)
            return rows.reshape(*rows.shape[:-2], targets.shape[-2] * self.dim_y, *width)

        factor = of_outputs(self.projector(self.std_encoder(targets, mask=mask)), self.rank)
        there = None if mask is None else jnp.repeat(mask, self.dim_y, axis=-1)
        mean, log_variance = of_outputs(self.mean(targets)), lambda: of_outputs(self.diag_net(targets))
        return build(mean, factor, log_variance, there, self.bound, self.jitter)

    def mean(self, targets: Array) -> Array:
        """Encodings [..., M, features] -> means [..., M, dy]; each is of its own encoding only."""
        return self.mean_net(targets)
