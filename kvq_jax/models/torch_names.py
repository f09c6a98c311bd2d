"""From the parameter names of published PyTorch code to ours.

Each family of models lists its renamings, TORCH_NAMES, as (pattern, path or paths): a regular expression for a module
of the published code, and the path of ours, with '/' between levels. With several paths the rows of the tensor are
split evenly over them (a fused in_proj). The last part of the name follows from the tensor: a `weight` of two or more
dimensions is a kernel, whose axes are put in Flax's order, inputs and outputs last; a `weight` of one dimension is the
scale of a normalisation; `bias` and free parameters keep their names.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

Renaming = tuple[str, str | tuple[str, ...]]


def import_parameters(tensors: Mapping[str, np.ndarray], renamings: Sequence[Renaming], expected) -> dict:
    """The parameter tree of a model, like `expected`, with the values and dtypes of published tensors.

    Args:
      tensors: published name -> array.
      renamings: the first pattern that matches a name without its last part wins.
      expected: the model's own tree of parameters, or of their shapes (jax.eval_shape of init).

    Raises:
      ValueError: it names each tensor without a place, each parameter with none or two, and each shape that differs, in
        the order of axes of the file.
    """
    wanted = {"/".join(path): tuple(leaf.shape) for path, leaf in flatten_dict(expected).items()}
    found, problems = {}, []
    for name, tensor in tensors.items():
        paths = _paths(name, tensor.ndim, renamings)
        if paths is None:
            problems.append(f"{name}: unknown name")
            continue
        if len(paths) > 1 and (tensor.ndim == 0 or len(tensor) % len(paths)):
            problems.append(f"{name}: shape {tensor.shape}, whose rows {len(paths)} parameters do not share")
            continue
        for path, part in zip(paths, np.split(tensor, len(paths)) if len(paths) > 1 else [tensor]):
            part = np.moveaxis(part, (0, 1), (-1, -2)) if path.endswith("/kernel") and part.ndim > 1 else part
            if path not in wanted:
                problems.append(f"{name}: the model has no {path}")
            elif path in found:
                problems.append(f"{name}: {path} is given twice")
            elif part.shape != wanted[path]:
                own = _in_their_order(path, wanted[path])
                expected = (len(paths) * own[0], *own[1:])
                problems.append(f"{name}: shape {tensor.shape} where {path} takes {expected}")
            found[path] = part
    problems += [f"{path}: no tensor" for path in wanted if path not in found]
    if problems:
        raise ValueError("; ".join(problems))
    return unflatten_dict({tuple(path.split("/")): array for path, array in found.items()})


def encoder_names(theirs: str, ours: str) -> list[Renaming]:
    """Renamings of an nn.TransformerEncoder whose names match `theirs` to the TransformerEncoder at the path `ours`."""
    layer, path = rf"{theirs}\.layers\.(\d+)\.", rf"{ours}/layer_\1/"
    return [(layer + r"self_attn\.in_proj", tuple(f"{path}heads/{part}" for part in ("query", "key", "value")))] + [
        (layer + name, path + place)
        for name, place in (
            (r"self_attn\.out_proj", "heads/out"),
            ("linear1", "feed_forward/layer_0"),
            ("linear2", "feed_forward/layer_1"),
            ("norm1", "norm_mix"),
            ("norm2", "norm_feed_forward"),
        )
    ]


def mlp_names(theirs: str, ours: str, first: int = 0, depth: int = 8) -> list[Renaming]:
    """Renamings of an nn.Sequential of Linear layers with ReLUs between them, the first Linear at the index `first`.

    `ours` may refer to groups of `theirs`.
    """
    return [(rf"{theirs}\.{first + 2 * index}", f"{ours}/layer_{index}") for index in range(depth)]


def _in_their_order(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the tensor that a parameter is made of, in the order of axes of the published file."""
    return (shape[-1], shape[-2], *shape[:-2]) if path.endswith("/kernel") else shape


def _paths(name: str, ndim: int, renamings: Sequence[Renaming]) -> list[str] | None:
    """The paths of the parameters that the tensor `name` fills; None for an unknown name."""
    module, _, own = name.rpartition(".")
    if own.startswith("in_proj_"):
        own = own.removeprefix("in_proj_")
        module += ".in_proj"
    leaf = own if own != "weight" else "scale" if ndim == 1 else "kernel"
    for pattern, replacement in renamings:
        match = re.fullmatch(pattern, module)
        if match:
            replacements = (replacement,) if isinstance(replacement, str) else replacement
            return ["/".join(filter(None, (match.expand(each), leaf))) for each in replacements]
    return None
