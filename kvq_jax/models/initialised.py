"""The initialisers that the linear layers of a model share."""

from collections.abc import Sequence

from flax import linen as nn

from kvq_jax.nn import MLP, MultiHead
from kvq_jax.nn.block import Block


class Initialised(Block, kw_only=True):
    """A model whose linear layers have initialisers of kvq_jax.nn.mlp.KERNEL_INITS and BIAS_INITS, by name."""

    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"  # zero biases break untrained Intention: see kvq_jax.nn.MLP

    @nn.nowrap
    def mlp(self, features: Sequence[int], name: str, **options) -> MLP:
        """A part of the model, with these initialisers."""
        return MLP(features, **options, **self.inits, name=name)

    @nn.nowrap
    def attention(self, head_features: int) -> MultiHead:
        """The multi-head attention of a model that has `num_heads`, `op` and `scaling`."""
        return MultiHead(self.num_heads, head_features, self.op, scaling=self.scaling, **self.inits, name="attention")

    def check_count(self, network: str, count: int, width: int, others: int = 0) -> None:
        """Raises ValueError where `network`, which sees points side by side, was made for another number of them.

        `others` are the numbers that it sees beside `count` points of `width` numbers each.
        """
        if self.is_initializing():
            return
        rows = self.get_variable("params", network)["layer_0"]["kernel"].shape[0]
        if rows != count * width + others:
            known = (rows - others) // width
            raise ValueError(f"the first call fixed the number of context points at {known}: got {count}")
