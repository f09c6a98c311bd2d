"""Linear layers and multi-layer perceptrons whose bias initialiser is an argument."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.errors import ScopeParamShapeError
from jax import Array
from jax.nn import initializers

from kvq_jax.names import choose
from kvq_jax.nn.block import Block, param_dtype


def fan_in_uniform(fan_in: int) -> initializers.Initializer:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)): the biases of PyTorch's `nn.Linear`."""
    bound = 1 / math.sqrt(fan_in)

    def init(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


# Name -> (fan_in -> initialiser). A bias vector does not show its layer's fan-in, hence the function of it.
BIAS_INITS = {
    "zeros": lambda fan_in: initializers.zeros,
    "fan_in_uniform": fan_in_uniform,
    "normal": lambda fan_in: initializers.normal(1.0),
}

KERNEL_INITS = {
    "lecun_normal": initializers.lecun_normal(),
    "he_normal": initializers.he_normal(),
    "glorot_uniform": initializers.glorot_uniform(),
    "fan_in_uniform": initializers.variance_scaling(1 / 3, "fan_in", "uniform"),  # PyTorch's `nn.Linear`
}

KernelInit = str | initializers.Initializer
BiasInit = str | Callable[[int], initializers.Initializer]


class Linear(Block):
    """`concatenate(inputs) @ kernel + bias`, without forming the concatenation.

    Each input is multiplied by its own rows of the one kernel and the products are added, so inputs broadcast against
    each other: one vector [..., 1, a] beside M vectors [..., M, b] costs one row, not M. Computes in its dtype, or
    without one in that of its parameters, whatever the inputs are.
    """

    features: int
    use_bias: bool = True
    kernel_init: KernelInit = "lecun_normal"  # a name of KERNEL_INITS, or an initialiser
    bias_init: BiasInit = "fan_in_uniform"  # a name of BIAS_INITS, or a function fan_in -> initialiser

    @nn.compact
    def __call__(self, *inputs: Array) -> Array:
        """inputs [..., a], [..., b], ... -> [..., features]."""
        kernel_init, bias_init = self.kernel_init, self.bias_init
        if isinstance(kernel_init, str):
            kernel_init = choose(KERNEL_INITS, kernel_init, "kernel_init")
        if isinstance(bias_init, str):
            bias_init = choose(BIAS_INITS, bias_init, "bias_init")
        ends = [sum(x.shape[-1] for x in inputs[:count]) for count in range(1, len(inputs) + 1)]
        kernel = parameter(self, "kernel", kernel_init, (ends[-1], self.features))
        parts = zip(inputs, jnp.split(kernel, ends[:-1]), strict=True)
        output = sum(product(x.astype(kernel.dtype), rows) for x, rows in parts)
        if not self.use_bias:
            return output
        return output + parameter(self, "bias", bias_init(ends[-1]), (self.features,))


def parameter(module: Block, name: str, init: initializers.Initializer, shape: tuple[int, ...]) -> Array:
    """The parameter `name` of a module, as `module.param` gives it, in the module's dtype of computation.

    A parameter that is there is compared with `shape`; Flax traces its initialiser for that, which was a fifth of the
    time that tracing a model takes. Raises flax.errors.ScopeParamShapeError for another shape.
    """
    if not module.has_variable("params", name):
        return module.cast(module.param(name, init, shape, param_dtype(module)))[0]
    value = module.get_variable("params", name)
    if jnp.shape(value) != shape:
        raise ScopeParamShapeError(name, "/".join(module.path), jnp.shape(value), shape)
    return module.cast(value)[0]


def product(x: Array, kernel: Array) -> Array:
    """x [..., a] @ kernel [a, b] as one product of two matrices: its gradient is a third faster on a CPU."""
    return (x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) @ kernel).reshape(*x.shape[:-1], kernel.shape[-1])


class MLP(Block):
    """Linear layers of the given widths with an activation between them; several inputs are taken as one concatenation.

    The initial biases matter more to Intention than to anything else in KVQ space. With zero biases (the default of
    Flax and Haiku) a ReLU network is positively homogeneous, e(c x) = c e(x) for c > 0. Of a scalar input it then makes
    e(x) = |x| e(sign x): the features of any number of keys span two dimensions, and least squares on them fits a line
    with a kink at zero, however wide the network. On sine curves such an untrained Intention has a mean squared error
    of 3 to 5 with 50 context points. With biases from N(0, 1) its median is below 0.01, with the uniform ones of
    PyTorch below 0.1 (kernels 'lecun_normal', alpha 0.1). The curves of untrained Intention in the Intention paper
    (Section 5.1, Figures 6 and 7) need non-zero biases, or position features.

    Raises ValueError if there are no layers and not exactly one input too.
    """

    features: Sequence[int]
    activation: Callable[[Array], Array] = nn.relu
    activate_final: bool = False
    kernel_init: KernelInit = "lecun_normal"
    bias_init: BiasInit = "fan_in_uniform"

    @nn.compact
    def __call__(self, *inputs: Array) -> Array:
        """inputs [..., a], [..., b], ..., which broadcast -> [..., features[-1]]; no features: the identity."""
        if not self.features and len(inputs) != 1:
            raise ValueError(f"an MLP without layers takes one input, not {len(inputs)}")
        layer = functools.partial(Linear, kernel_init=self.kernel_init, bias_init=self.bias_init)
        for index, width in enumerate(self.features):
            hidden = layer(width, name=f"layer_{index}")(*inputs)
            final = index == len(self.features) - 1
            inputs = (hidden if final and not self.activate_final else self.activation(hidden),)
        return inputs[0]
