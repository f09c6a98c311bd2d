"""How the results of the Set Transformer's experiments are named, and which of them stand beside each other."""

from experiments.harness.results import Result
from kvq_jax.models import SET_NETWORKS


def label(result: Result) -> str:
    """The network as the paper writes it: 'rFF + PMA'."""
    return label_of(result.axes["model"])


def label_of(model: str) -> str:
    """As `label`, for a row of SET_NETWORKS."""
    return SET_NETWORKS[model].label


def own_op(result: Result) -> bool:
    """Whether the network has the attention that it is published with."""
    return result.axes["op"] == "own"


# Axis -> its value in the first of the results that may stand in one table, for the configs that have it.
_FIRST = {"size": "small", "protocol": "paper", "rotations": "no", "form": "code"}
_KERNELS = "fan_in_uniform"  # PyTorch's
# Images, the papers' first.
_SOURCES = (
    *("celeba", "omniglot", "cifar100", "hdf5", "off"),
    *("mini_imagenet", "cifar_fs", "folders", "digits", "surfaces"),
)


def variant(result: Result) -> tuple[bool, ...]:
    """What results in one table have in common: small sets, the paper's protocol, the code's form and kernels first."""
    axes = (axis in result.axes and result.axes[axis] != first for axis, first in _FIRST.items())
    return (*axes, not own_kernels(result))


def own_kernels(result: Result) -> bool:
    """Whether kernels start as those of the released code do."""
    return result.config.get("model", {}).get("kernel_init", _KERNELS) == _KERNELS  # complexity has no model


def images(result: Result) -> tuple:
    """The images that a run saw, as a key to choose by; () where there are none."""
    own = [_SOURCES.index(result.axes[axis]) for axis in ("source", "data") if axis in result.axes]
    return (*own, result.content["facts"]["data"]) if own else ()


_WORDS = {
    "protocol": {"paper": "the paper's protocol", "code": "that of the released code", "demo": "that of its notebook"},
    "form": {"paper": "blocks of the paper", "code": "blocks of the released code"},
    "op": {"own": "softmax attention"},
}


def described(result: Result) -> str:
    """The axes that all results of a table share, and the model does not show."""
    shared = (in_words(result, axis) for axis in _WORDS if axis in result.axes)
    return ", ".join([f"Preset {result.preset}", *shared])


def in_words(result: Result, axis: str) -> str:
    """What a value of an axis means: 'blocks of the released code' for form=code; 'op=erf' says it itself."""
    value = result.axes[axis]
    return _WORDS[axis].get(value, f"{axis}={value}")
