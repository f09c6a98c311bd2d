"""One layer of the Transformer's family: a block that mixes the elements of a set, and a network for each element."""

import functools
from collections.abc import Callable

from flax import linen as nn
from jax import Array

from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.mixer import Op
from kvq_jax.nn.mlp import MLP, BiasInit, KernelInit, Linear
from kvq_jax.nn.multihead import MultiHead
from kvq_jax.nn.stack import traced_once

# Name -> (x, branch, norm) -> x after its residual branch.
NORMS = {
    "post": lambda x, branch, norm: norm(x + branch(x)),  # Vaswani et al. 2017; Garnelo and Czarnecki 2023, Appendix 8
    "pre": lambda x, branch, norm: x + branch(norm(x)),
    "none": lambda x, branch, norm: x + branch(x),
}

# Name -> (kernel_init, bias_init of the layer) -> those of its heads.
HEADS_INITS = {
    "layer": lambda kernel_init, bias_init: dict(kernel_init=kernel_init, bias_init=bias_init),
    # PyTorch's nn.MultiheadAttention: Glorot's uniform over the fused [d, 3 d] projection, and zero biases.
    "fused": lambda kernel_init, bias_init: dict(
        kernel_init=kernel_init,
        bias_init="zeros",
        projection_init=nn.initializers.variance_scaling(0.5, "fan_avg", "uniform"),
    ),
}


class ResidualLayer(Block):
    """The frame around a block E_Z = mix(X) (Garnelo and Czarnecki 2023, arXiv 2305.10203, Appendix 8):

        O_1 = LayerNorm(E_Z + X),  O_2 = LayerNorm(e_O(O_1) + O_1)

    where e_O is an MLP with one hidden layer. That is norm='post'. With 'pre' each branch reads a normalised input and
    the sum is not normalised; 'none' has no LayerNorm. In training (deterministic=False) `dropout` acts on both
    branches, with the random stream 'dropout'. A masked element is absent: nobody attends to it, and its own row means
    nothing.
    """

    hidden: int = 2048
    norm: str = "post"  # a name of NORMS
    dropout: float = 0.0
    epsilon: float = 1e-5  # of LayerNorm
    activation: Callable[[Array], Array] = nn.relu
    kernel_init: KernelInit = "lecun_normal"
    bias_init: BiasInit = "zeros"

    def mix(self, x: Array, mask: Array | None, **options) -> Array:
        """x [..., N, d], mask [..., N], [..., N, N] or None -> [..., N, d]."""
        raise NotImplementedError

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None, deterministic: bool = True, **options) -> Array:
        """x [..., N, d], mask [..., N] or [..., N, N], True = take part -> [..., N, d]. `options` go to `mix`."""
        add = choose(NORMS, self.norm, "norm")
        drop = nn.Dropout(self.dropout, deterministic=deterministic)
        feed_forward = MLP((self.hidden, x.shape[-1]), self.activation, **self.inits, name="feed_forward")
        x = add(x, lambda x: drop(self.mix(x, mask, **options)), self.norm_layer(self.epsilon, "norm_mix"))
        return add(x, lambda x: drop(feed_forward(x)), self.norm_layer(self.epsilon, "norm_feed_forward"))


class TransformerLayer(ResidualLayer):
    """A layer around multi-head self-attention with any op: Transformer, Lin-Transformer, Informer, sigma-Informer.

        E_X = relu(e_X(X)),  E_Z = e_H(concatenate_h(op(s e_Q^h(E_X), e_K^h(E_X), e_V^h(E_X))))

    with linear maps e (Garnelo and Czarnecki 2023, Appendix 8, where E_K and E_V are printed as functions of
    themselves). embed_features is the width of E_X; None leaves E_X = X, which is Vaswani et al. 2017 with
    scaling='head' and op='softmax'. kvq_jax.nn.FORMERS has the layers of Appendix 8 with their sizes.
    """

    num_heads: int = 4
    head_features: int = 256
    op: Op = "softmax"
    embed_features: int | None = None
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS; Appendix 8 has 'none'
    heads_init: str = "layer"  # a name of HEADS_INITS

    def mix(
        self, x: Array, mask: Array | None, *, num_keys: int | None = None, position: Array | int | None = None
    ) -> Array:
        """Multi-head self-attention: x [..., N, d], mask [..., n] or [..., N, n] over the keys -> [..., N, d].

        Only the first n = num_keys elements are keys (None: all). The others see them, and are seen by nobody. With
        `position` keys arrive in parts, see kvq_jax.nn.MultiHead; n is then the number of rows of its cache.
        """
        embedded = x
        if self.embed_features is not None:
            embedded = nn.relu(Linear(self.embed_features, **self.inits, name="embed")(x))
        keys = embedded[..., :num_keys, :]
        heads_inits = choose(HEADS_INITS, self.heads_init, "heads_init")(self.kernel_init, self.bias_init)
        heads = MultiHead(
            self.num_heads, self.head_features, self.op, x.shape[-1], self.scaling, **heads_inits, name="heads"
        )
        return heads(embedded, keys, keys, mask=mask, position=position)


class TransformerEncoder(Block):
    """A stack of layers as in PyTorch's nn.TransformerEncoder, post-norm with ReLU and its initialisation, over any op.

    Heads share the width of the elements, features / num_heads each. With copy_layers all layers start equal, as in
    PyTorch, where they are deep copies of one. Raises ValueError if num_heads does not divide the width.
    """

    num_layers: int = 6
    num_heads: int = 4
    hidden: int = 128
    op: Op = "softmax"
    copy_layers: bool = True

    @nn.compact
    def __call__(
        self, x: Array, *, mask: Array | None = None, num_keys: int | None = None, position: Array | int | None = None
    ) -> Array:
        """x [..., N, features] -> [..., N, features]; options as in TransformerLayer.mix."""
        if x.shape[-1] % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} does not divide features={x.shape[-1]}")
        build = functools.partial(
            TransformerLayer,
            self.hidden,
            num_heads=self.num_heads,
            head_features=x.shape[-1] // self.num_heads,
            op=self.op,
            kernel_init="fan_in_uniform",
            bias_init="fan_in_uniform",
            heads_init="fused",
        )
        layers = [build(name=f"layer_{index}") for index in range(self.num_layers)]
        apply = traced_once(layers, self.copy_layers, num_keys=num_keys)
        for layer in layers:
            # With a position each layer has a cache of its own.
            cached = position is not None
            x = layer(x, mask=mask, num_keys=num_keys, position=position) if cached else apply(layer, x, mask=mask)
        return x
