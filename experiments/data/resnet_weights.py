"""From the tensors of a published PyTorch ResNet to our module and its variables."""

import re
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.errors import UserError
from experiments.harness.experiment import Variables
from kvq_jax.models.torch_names import Renaming, import_parameters
from kvq_jax.nn.resnet import RESNETS, ResNet

_BLOCK, _OURS = r"layer(\d)\.(\d+)\.", r"layer\1_\2/"
# torchvision's names of modules -> ours.
TORCH_NAMES: list[Renaming] = [
    (r"(conv1|bn1|fc)", r"\1"),
    (_BLOCK + r"((conv|bn)[12])", _OURS + r"\3"),
    (_BLOCK + r"downsample\.0", _OURS + "downsample_conv"),
    (_BLOCK + r"downsample\.1", _OURS + "downsample_bn"),
]
_STATISTICS = {"running_mean": "mean", "running_var": "var"}
_IGNORED = "num_batches_tracked"  # how many batches a running mean has seen: nothing computes with it
_SHOWN = 3  # problems in one message


def import_resnet(tensors: Mapping[str, np.ndarray]) -> tuple[ResNet, Variables]:
    """A ResNet of basic blocks with `tensors` (torchvision's name -> array) as its variables, each used exactly once.

    The numbers of stages, blocks, channels and classes follow from names and shapes; num_batches_tracked is ignored.

    Raises:
      UserError: tensors that have no place, are missing or differ in shape from what the others imply; names them.
    """
    tensors = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] != _IGNORED}
    statistics = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] in _STATISTICS}
    model = _sized(tensors)
    expected = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    given = {
        "params": {name: tensor for name, tensor in tensors.items() if name not in statistics},
        "batch_stats": {_renamed(name): tensor for name, tensor in statistics.items()},
    }
    variables, problems = {}, []
    for collection, own in given.items():
        try:
            variables[collection] = import_parameters(own, TORCH_NAMES, expected[collection])
        except ValueError as error:
            problems += str(error).split("; ")
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" * (len(problems) > _SHOWN)
        raise UserError(f"the tensors are not those of a ResNet of basic blocks: {'; '.join(problems[:_SHOWN])}{more}")
    return model, jax.tree.map(lambda array: np.asarray(array, np.float32), variables)


def network_name(model: ResNet) -> str:
    """'ResNet-34', or the blocks and width of a network that has no name."""
    named = {ResNet(blocks).blocks: name for name, blocks in RESNETS.items()} if model.width == ResNet.width else {}
    return named.get(tuple(model.blocks), f"ResNet of {model.blocks} blocks, width {model.width}")


def _sized(tensors: Mapping[str, np.ndarray]) -> ResNet:
    """The module whose sizes the tensors tell. Raises UserError for tensors of something else."""
    matches = [re.fullmatch(_BLOCK + r"conv1\.weight", name) for name in tensors]
    places = sorted((int(match[1]), int(match[2])) for match in matches if match)
    stages = sorted({stage for stage, _ in places})
    if "conv1.weight" not in tensors or not stages or stages != list(range(1, len(stages) + 1)):
        raise UserError("the tensors are not those of a ResNet: no conv1.weight, or no layer1.0.conv1.weight and so on")
    blocks = tuple(sum(place[0] == stage for place in places) for stage in stages)
    return ResNet(blocks, width=len(tensors["conv1.weight"]), classes=len(tensors.get("fc.weight", ())))


def _renamed(name: str) -> str:
    """'layer1.0.bn1.running_mean' -> 'layer1.0.bn1.mean', as Flax calls it."""
    module, _, own = name.rpartition(".")
    return f"{module}.{_STATISTICS[own]}"
