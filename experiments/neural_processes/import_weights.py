"""From tensors of the published PyTorch neural processes to the config section and the parameters of our models."""

import ast
import dataclasses
import keyword
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import settings, weights
from experiments.harness.errors import UserError
from experiments.harness.experiment import PyTree
from kvq_jax.fields import knobs_of
from kvq_jax.models import MODELS, IntentionANP, IntentionCMANP, NeuralProcess, Points, family
from kvq_jax.models.neural_processes import cmanp, latent, lbanp, tnp
from kvq_jax.models.neural_processes.encoder_decoder import Attentive, EncoderDecoder
from kvq_jax.models.torch_names import import_parameters
from kvq_jax.names import unknown
from kvq_jax.nn.np_encoders import SELF_ATTENTION_DEPTH

Tensors = Mapping[str, np.ndarray]
Size = Callable[[Tensors], Any]

# Name of a published model -> the renamings of its tensors, which stand in the file of its class.
TORCH_NAMES = {
    name: sys.modules[row.cls.__module__].TORCH_NAMES
    for name, row in family("neural_process").items()
    if row.cls not in (IntentionANP, IntentionCMANP)  # ours
}
_SHOWN = 3  # problems in one message
_PREFIX = "module."  # of all names in a file that torch.nn.DataParallel saved
# How a model is told that its deviations are bounded, as published for EMNIST: no tensor says so.
_BOUNDED = {"std_map": "softplus", "std_floor": 0.05}
_BOUNDED_JOINT = {"bound": True}
# Fields that change what a model computes and that no shape of a tensor tells -> why not.
UNTOLD = {
    "num_heads": "projections are as wide with any number of heads",
    "block_size": "the paper's; the released code never sets one",
}


def _rows(name: str) -> Size:
    """The number of rows of the tensor whose name matches."""
    return lambda tensors: len(_find(tensors, name))


def _layers(stack: str, more: int = 0) -> Size:
    """The number of modules '<stack>.<number>', plus `more`."""
    return lambda tensors: len(_numbers(tensors, stack)) + more


def _outputs(stack: str, each: int = 1) -> Size:
    """The outputs of the last layer of a stack over `each`."""
    return lambda tensors: len(_find(tensors, f"{stack}.{max(_numbers(tensors, stack))}.bias")) // each


# The published names of the encoders: enc1 and enc2 without a latent, denc and lenc with one.
_ENCODER, _POOLING = "(enc1|denc)", "(enc2|lenc)"
_POINT = f"(embedder|{_POOLING}.net_pre(.0)?).0.weight"  # the first layer that sees (x, y)
# Class -> its fields that tensors determine (None: they do not); the table of a subclass wins over those of its bases.
SIZES: dict[type[NeuralProcess], dict[str, Size]] = {
    EncoderDecoder: {
        "dim_y": _outputs("dec.mlp", each=2),
        "hidden": _rows("dec.fc.weight"),
        "pre_depth": _layers(f"{_POOLING}.net_pre"),
        "post_depth": _layers(f"{_POOLING}.net_post"),
        "decoder_depth": _layers("dec.mlp", more=1),
    },
    Attentive: {
        "pre_depth": _layers(f"{_POOLING}.net_pre.0", more=SELF_ATTENTION_DEPTH),
        "value_depth": _layers(f"{_ENCODER}.net_v", more=SELF_ATTENTION_DEPTH),
        "key_depth": _layers(f"{_ENCODER}.net_qk"),
    },
    latent.NP: {"latent": _outputs("lenc.net_post", each=2)},
    tnp.TransformerProcess: {
        "features": _rows("embedder.0.weight"),
        "embed_depth": _layers("embedder"),
        "hidden": _rows("encoder.layers.0.linear1.weight"),
        "num_layers": _layers("encoder.layers"),
    },
    tnp.PointwiseProcess: {"dim_y": _outputs("predictor", each=2)},
    lbanp.LevelProcess: {
        "dim_y": _outputs("predictor", each=2),
        "features": _rows("embedder.0.weight"),
        "embed_depth": _layers("embedder"),
        "hidden": _rows("predictor.0.weight"),
        "num_layers": _layers("decoder.layers"),
    },
    lbanp.LBANP: {"num_latents": _rows("latents")},
    cmanp.CMANP: {"num_latents": _rows("latents"), "num_block_latents": _rows("encoder.layers.0.latents")},
} | dict.fromkeys(
    (tnp.TNPND, lbanp.JointProcess),
    {
        "dim_y": _outputs("mean_net"),
        "hidden": _rows("mean_net.0.weight"),
        "std_layers": _layers("std_encoder.layers"),
        "rank": lambda tensors: _outputs("projector")(tensors) // _outputs("mean_net")(tensors),
        "projector_depth": _layers("projector"),
        "covariance": lambda tensors: "lowrank" if _has_diagonal(tensors) else "cholesky",
        "diagonal_depth": lambda tensors: _layers("diag_net")(tensors) if _has_diagonal(tensors) else None,
    },
)


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model, its config section and its parameters; `assumed`: the fields that have the published default."""

    module: NeuralProcess
    model: dict[str, Any]
    params: PyTree
    assumed: dict[str, Any]


def import_weights(name: str, tensors: Tensors, changes: Mapping[str, Any]) -> Imported:
    """The model `name` with published tensors as its parameters, each used exactly once.

    `name` is a key of TORCH_NAMES. `changes` are fields of the model; they win over what the tensors determine and over
    the published defaults. Raises UserError: an unknown name or field, a bad value, tensors of another model, too many
    or too few, or of another shape.
    """
    renamings, cls = settings.choose(TORCH_NAMES, name, "model"), MODELS[name].cls
    defaults = {field: given.default for field, given in knobs_of(cls).items()}
    for field in changes:
        if field not in defaults:
            raise UserError(unknown(f"field of {name}", field, defaults))
        if field in _BOUNDED and "bound" in bounded(name):
            raise UserError(f"{name} does not read {field}: its deviations are bounded by bound=True")
    tensors = _named_alike(tensors)
    for tensor, array in tensors.items():
        if not np.all(np.isfinite(array.astype(np.float64))):
            raise UserError(f"{tensor} holds numbers that are not finite")
    try:
        told = sizes(cls, tensors) | changes
        section = {"name": name} | defaults | told
        model = settings.build_named(MODELS, section, "model")
        expected = _shapes(model, dim_x=_find(tensors, _POINT).shape[1] - model.dim_y)
        params = weights.fit(import_parameters(tensors, renamings, expected), expected)
    except (IndexError, TypeError, ValueError) as error:
        raise UserError(f"the tensors do not fit {name}: {_shortened(str(error))}") from error
    return Imported(model, section, params, {field: value for field, value in defaults.items() if field not in told})


def bounded(name: str) -> dict[str, Any]:
    """The fields that make the deviations of the model `name` bounded; none of CNP to BANP: they have a floor."""
    cls = MODELS[name].cls
    if issubclass(cls, EncoderDecoder):
        return {}
    return _BOUNDED_JOINT if "bound" in knobs_of(cls) else _BOUNDED


def sizes(cls: type[NeuralProcess], tensors: Tensors) -> dict[str, Any]:
    """The fields of a model that published tensors determine. Raises ValueError where a tensor for one is missing."""
    table = {}
    for base in reversed(cls.__mro__):
        table |= SIZES.get(base, {})
    told = {field: size(tensors) for field, size in table.items()}
    return {field: value for field, value in told.items() if value is not None}


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """['field=value', ...] -> {field: value}; a value is a Python literal, or a word. Raises UserError."""
    changes = {}
    for text in texts:
        field, _, value = text.partition("=")
        is_word = value.isidentifier() and not keyword.iskeyword(value)
        try:
            changes[field] = value if is_word else ast.literal_eval(value)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
            raise UserError(f"--set {text}: expected field=value, the value a Python literal or a word") from error
    return changes


def _named_alike(tensors: Tensors) -> Tensors:
    """The tensors without the prefix that all their names have where torch.nn.DataParallel saved them."""
    if not all(name.startswith(_PREFIX) for name in tensors):
        return tensors
    return {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}


def _shapes(model: NeuralProcess, dim_x: int) -> PyTree:
    """The shapes of a model's parameters."""
    x, y = jnp.zeros((1, dim_x)), jnp.zeros((1, model.dim_y))
    return jax.eval_shape(lambda key: model.init(key, Points(x, y), x, key=key), jax.random.key(0))["params"]


def _find(tensors: Tensors, pattern: str) -> np.ndarray:
    for name, tensor in tensors.items():
        if re.fullmatch(pattern, name):
            return tensor
    raise ValueError(f"no tensor is named {pattern}")


def _has_diagonal(tensors: Tensors) -> bool:
    return any(name.startswith("diag_net.") for name in tensors)


def _numbers(tensors: Tensors, stack: str) -> set[int]:
    matches = (re.match(rf"{stack}\.(?P<number>\d+)\.", name) for name in tensors)
    numbers = {int(match["number"]) for match in matches if match}
    if not numbers:
        raise ValueError(f"no tensor is named {stack}.<number>")
    return numbers


def _shortened(message: str) -> str:
    """The first of the problems that `import_parameters` lists."""
    problems = message.split("; ")
    return "; ".join(problems[:_SHOWN]) + (f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else "")
