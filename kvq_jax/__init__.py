"""Models in KVQ space: functions of keys, values and queries."""

from kvq_jax.ops import *  # noqa: F403  the operators are the library's face; modules are in kvq_jax.nn and kvq_jax.models
from kvq_jax.ops import __all__ as __all__
