"""Models in KVQ space, functions of keys, values and queries. `kvq_jax.OPS` names every operator."""
from kvq_jax.ops import (OPS, erf_attention, informer, intention, intention_weights, laplace_attention, linear_attention,
                         sigma_informer, sigma_intention, softmax_attention, uniform_attention)

__all__ = ["OPS", "erf_attention", "informer", "intention", "intention_weights", "laplace_attention", "linear_attention",
           "sigma_informer", "sigma_intention", "softmax_attention", "uniform_attention"]
