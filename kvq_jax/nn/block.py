"""What all modules of the library have in common: how they hold their fields, and the dtypes that they compute in."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict
from jax import Array
from jax.typing import DTypeLike

from kvq_jax.fields import LIBRARY, Explained

_DTYPES = ("dtype", "param_dtype")


class Block(nn.Module):
    """A module with dtypes, whose fields may be dicts: they are frozen, so that it can be hashed. help() explains them.

    A module without a dtype of its own has that of the module around it. Linear layers and convolutions compute in
    `dtype`, operators and norms take and give it. Inside, operators use what their functions do: solves, softmax, the
    statistics of norms, alpha and densities are in float32 at least. A dtype is held as its name.

    Raises ValueError for a dtype that is not of floating-point numbers.
    """

    dtype: DTypeLike | None = dataclasses.field(default=None, kw_only=True, metadata=LIBRARY)
    param_dtype: DTypeLike | None = dataclasses.field(default=None, kw_only=True, metadata=LIBRARY)

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.__doc__ = Explained(vars(cls).get("__doc__"))

    @property
    def inits(self) -> dict[str, Any]:
        """The initialisers of its linear layers, for a block with fields of these names."""
        return dict(kernel_init=self.kernel_init, bias_init=self.bias_init)

    @property
    def dtypes(self) -> dict[str, str | None]:
        """The dtypes that hold here, its own or those of a module around it: for one that stands outside of it."""
        return {field: _inherited(self, field) for field in _DTYPES}

    @property
    def for_flax(self) -> dict[str, str | None]:
        """The dtypes as modules of Flax take them."""
        return self.dtypes | {"param_dtype": param_dtype(self)}

    @nn.nowrap
    def cast(self, *arrays: Array) -> tuple[Array, ...]:
        """The arrays in the dtype of computation; as they are where none is set."""
        dtype = _inherited(self, "dtype")
        return arrays if dtype is None else tuple(jnp.asarray(array, dtype) for array in arrays)

    @nn.nowrap
    def norm_layer(self, epsilon: float, name: str | None = None) -> nn.LayerNorm:
        """A LayerNorm of this block, with its dtypes."""
        return nn.LayerNorm(epsilon=epsilon, **self.for_flax, name=name)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name, None)
            if isinstance(value, Mapping):
                object.__setattr__(self, field.name, FrozenDict(value))
        for field in _DTYPES:
            if getattr(self, field) is not None:
                object.__setattr__(self, field, _name_of(getattr(self, field), field))
        super().__post_init__()


def param_dtype(module: Block) -> str:
    """The dtype of the parameters that `init` makes."""
    return _inherited(module, "param_dtype") or "float32"


def _inherited(module: nn.Module, field: str) -> str | None:
    """The dtype `field` of a block, or of the nearest block around it that has one."""
    while isinstance(module, nn.Module):
        if isinstance(module, Block) and getattr(module, field) is not None:
            return getattr(module, field)
        module = module.parent
    return None


def _name_of(dtype: DTypeLike, field: str) -> str:
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise ValueError(f"{field}={dtype!r} is no floating-point dtype: expected one such as 'float32' or 'bfloat16'")
    return found.name
