"""Models in KVQ space: functions of keys, values and queries.

The operators are the library's face; modules are in kvq_jax.nn and kvq_jax.models.
"""

from kvq_jax.ops import *
