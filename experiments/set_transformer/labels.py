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


def variant(result: Result) -> tuple[bool, bool, bool]:
    """What results in one table have in common: small sets, the paper's protocol and the code's form come first."""
    axes = result.axes
    return axes.get("size", "small") != "small", axes["protocol"] != "paper", axes["form"] != "code"


def described(result: Result) -> str:
    """The axes that all results of a table share, and the model does not show."""
    axes = result.axes
    return f"Preset {axes['preset']}, protocol={axes['protocol']}, form={axes['form']}, op={axes['op']}"
