"""Models in KVQ space: functions of keys, values and queries.

The operators are the library's face; modules are in kvq_jax.nn and kvq_jax.models, and `load` gives trained ones.
"""

from kvq_jax.ops import *
from kvq_jax.saved import load, save

__version__ = "0.1.0"
