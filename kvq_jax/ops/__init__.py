"""Operators of KVQ space: pure functions op(query, key, value, *, mask=None, **options) -> output."""
from kvq_jax.ops.attention import erf_attention, laplace_attention, linear_attention, softmax_attention, uniform_attention
from kvq_jax.ops.intention import informer, intention, intention_weights, sigma_informer, sigma_intention

# The one table from name to function.
OPS = {
    "softmax": softmax_attention,
    "linear": linear_attention,
    "laplace": laplace_attention,
    "uniform": uniform_attention,
    "erf": erf_attention,
    "intention": intention,
    "sigma_intention": sigma_intention,
    "informer": informer,
    "sigma_informer": sigma_informer,
}

__all__ = ["OPS", "erf_attention", "informer", "intention", "intention_weights", "laplace_attention", "linear_attention",
           "sigma_informer", "sigma_intention", "softmax_attention", "uniform_attention"]
