"""The fields of a class that its user sets, and what is said of them."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping

from flax import linen as nn

_OF_FLAX = ("parent", "name")  # what flax.linen adds to every module
# Metadata of a field that is set from Python only: configs, and so the hashes of their runs, do without it.
LIBRARY = {"library": True}
# What fields of one name have in common, where no comment stands behind the field.
_WORDS = {
    "activation": "function between layers",
    "activate_final": "whether the last layer of an encoder has its ReLU",
    "bias_init": "initialiser of biases, a name of kvq_jax.nn.BIAS_INITS",
    "block_size": "targets predicted jointly before they become context",
    "bound": "whether the diagonal of the covariance is limited",
    "copy_layers": "whether all layers of a stack start equal, as the released code makes them",
    "cross": "whether it attends to a context, else to its own input",
    "cross_op": "operator of the attention over the context; None: op",
    "depth": "linear layers",
    "decoder_depth": "layers of the decoder",
    "diagonal_depth": "layers that give the diagonal of a covariance of low rank",
    "dropout": "share of each branch that training drops",
    "dtype": "of computation, such as 'bfloat16'; None: of the module around it, without one of the parameters",
    "dim_y": "number of outputs of a point",
    "drop_y": "share of the context's outputs that the loss replaces by noise",
    "embed_features": "width of the layer that embeds the input",
    "embed_depth": "layers of the embedder of points",
    "encoder": "module that encodes images",
    "encoder_layers": "layers of the encoder",
    "encoder_features": "widths of the layers of the encoder",
    "epsilon": "added to the variance that a norm divides by",
    "eval_samples": "draws of a prediction, which is their mixture",
    "features": "width of the encodings",
    "first_order": "whether the outer gradient takes the inner ones for constants",
    "fourier_levels": "levels of position features of x: see kvq_jax.nn.fourier_features",
    "head_features": "width of a head",
    "hidden": "width of the hidden layers",
    "inner_rate": "step size of the adaptation to a task",
    "inner_steps": "steps of the adaptation to a task",
    "jitter": "added to the diagonal of the covariance's factor",
    "kernel_init": "initialiser of kernels, a name of kvq_jax.nn.KERNEL_INITS",
    "key_depth": "linear layers of keys and queries",
    "key_features": "widths of the layers that encode keys",
    "latent": "width of the latent",
    "layer_norm": "whether sums are normalised",
    "num_inducing": "learnt points that summarise the set",
    "num_marks": "kinds of events",
    "num_heads": "heads of attention",
    "input_dropout": "share of the inputs that training drops",
    "num_latents": "latents, the rows of a level",
    "num_layers": "layers of each stack",
    "num_outputs": "rows of the output",
    "op": "operator: a name, a function or dict(name=..., **options)",
    "num_queries": "learnt queries, the rows of the output",
    "out_features": "width of a row of the output",
    "param_dtype": "of the parameters that init makes; None: of the module around it, without one float32",
    "permute": "whether each sample draws the targets in an order of its own",
    "pre_depth": "linear layers before the mean",
    "post_depth": "linear layers after the mean",
    "projector_depth": "layers that give the factor of the covariance",
    "query_features": "widths of the layers that encode queries",
    "rank": "columns of the factor of the covariance, for each output",
    "residual": "how a branch is added, a name of the residuals of its module",
    "scaling": "factor on the queries, a name of kvq_jax.nn.SCALINGS",
    "samples": "functions drawn for a prediction, which is their mixture",
    "std_floor": "least standard deviation",
    "std_layers": "layers in which targets attend to one another before the covariance",
    "teacher_noise": "standard deviation of the noise on outputs that the loss shows",
    "stride": "pixels from a window to the next",
    "train_samples": "draws of the loss",
    "unused_predictor": "whether to keep parameters that the released code has and never uses",
    "use_bias": "whether projections have biases",
    "use_gap": "whether the embedding of an event also holds its log gap",
    "use_output": "whether a linear layer mixes the heads",
    "value_depth": "linear layers of values",
    "value_features": "widths of the layers that encode values",
}


def fields_of(cls: type) -> dict[str, dataclasses.Field]:
    """The fields of a dataclass or linen module that its constructor takes, by name, without those of Flax itself.

    Those set from Python only are the last.
    """
    skipped = _OF_FLAX if issubclass(cls, nn.Module) else ()
    fields = [field for field in dataclasses.fields(cls) if field.init and field.name not in skipped]
    return {field.name: field for field in sorted(fields, key=_of_library)}


def knobs_of(cls: type) -> dict[str, dataclasses.Field]:
    """As `fields_of`, of the fields that a config has."""
    return {name: field for name, field in fields_of(cls).items() if not _of_library(field)}


def _of_library(field: dataclasses.Field) -> bool:
    return LIBRARY.items() <= field.metadata.items()


class Explained:
    """A docstring that ends in a list of the fields of its class, made from comments when it is read: by help()."""

    def __init__(self, text: str | None):
        self._text = inspect.cleandoc(text or "")

    def __get__(self, instance: object, owner: type) -> str:
        told = explanations(owner)
        lines = [f"{name} = {_default(field)}: {told[name]}" for name, field in fields_of(owner).items()]
        listed = textwrap.indent("\n".join(lines), "    ")
        return f"{self._text}\n\nFields:\n\n{listed}" if lines else self._text


def explanations(cls: type) -> dict[str, str]:
    """Field -> the comment behind it, of the class that set it last with one, else what fields of its name share.

    A class without source (typed at a prompt) has no comments.
    """
    told = {}
    for base in reversed(cls.__mro__):
        if base.__module__ != nn.Module.__module__ and "__annotations__" in vars(base):
            told |= _comments(base)
    return {name: told.get(name) or _WORDS.get(name, "") for name in fields_of(cls)}


def _comments(cls: type) -> dict[str, str]:
    """Field -> the comment behind it, of the fields of this class alone that have one."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    lines = source.encode().splitlines()  # ast counts bytes
    fields = [node for node in ast.parse(source).body[0].body if isinstance(node, ast.AnnAssign)]
    behind = {node.target.id: lines[node.end_lineno - 1][node.end_col_offset :].decode() for node in fields}
    return {name: text.partition("#")[2].strip() for name, text in behind.items() if "#" in text}


def _default(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "(to be given)"
    return repr(dict(field.default) if isinstance(field.default, Mapping) else field.default)
