"""Flax modules that own the parameters around an op."""
from kvq_jax.nn.alpha import ALPHA_KINDS, Alpha
from kvq_jax.nn.mlp import BIAS_INITS, KERNEL_INITS, MLP, Linear
from kvq_jax.nn.multihead import SCALINGS, MultiHead
from kvq_jax.nn.names import choose
from kvq_jax.nn.positions import fourier_features

__all__ = ["ALPHA_KINDS", "Alpha", "BIAS_INITS", "KERNEL_INITS", "Linear", "MLP", "MultiHead", "SCALINGS", "choose",
           "fourier_features"]
