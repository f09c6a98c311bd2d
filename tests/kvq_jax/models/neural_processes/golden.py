"""Published models as ours: those of tests/golden (see its README), and the fixtures at full width."""

import functools
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from kvq_jax.models import Points, neural_processes
from kvq_jax.models.neural_processes import NeuralProcess
from kvq_jax.models.torch_names import import_parameters

FILE = Path(__file__).parents[3] / "golden" / "golden.json"
FIELDS = dict(  # argument of a published class -> field of ours
    dim_y="dim_y",
    dim_hid="hidden",
    dim_lat="latent",
    enc_v_depth="value_depth",
    enc_qk_depth="key_depth",
    enc_pre_depth="pre_depth",
    enc_post_depth="post_depth",
    dec_depth="decoder_depth",
    d_model="features",
    emb_depth="embed_depth",
    dim_feedforward="hidden",
    nhead="num_heads",
    num_layers="num_layers",
    num_latents="num_latents",
    num_latents_per_layer="num_block_latents",
    num_std_layers="std_layers",
    cov_approx="covariance",
    prj_dim="rank",
    prj_depth="projector_depth",
    diag_depth="diagonal_depth",
    permute="permute",
    AND_block_size="block_size",
)
SINGLE = dict(dropout=0.0, norm_first=True, pretrain=False, CMAB_block_size=None)  # the one value that ours have


class Case(NamedTuple):
    """A published model: what it is made of, what it is given, and what it computes."""

    kind: str  # name of the published class, in lower case
    config: dict  # its arguments
    tensors: dict[str, np.ndarray]  # float64
    inputs: dict[str, np.ndarray]  # x, y, xc, yc, xt, yt and fixed draws
    outputs: dict[str, np.ndarray]
    norms: dict[str, float]  # of the training loss's gradient, by tensor


@functools.cache
def read() -> dict:
    return json.loads(FILE.read_text())


def formula(name: str, shape: list[int], number: int) -> np.ndarray:
    """The tensor at place `number` of its table, float64."""
    i = np.arange(np.prod(shape), dtype=np.int64)
    wave = np.sin(np.float64((i**3 + 7 * i * number + 19 * number + 5) % 1013))
    linear = len(shape) == 2
    values = 1.5 / np.sqrt(shape[1]) * wave if linear else 0.1 * wave + (not name.endswith("bias"))
    return np.float64(np.float32(values)).reshape(shape)


@functools.cache
def golden(name: str) -> Case:
    """The case `name` of the golden file. Raises AssertionError for a tensor that differs from its checksums."""
    case, tensors = read()["cases"][name], {}
    for number, (tensor, shape, total, squares) in enumerate(read()["tensors"][case["tensors"]]):
        values = tensors[tensor] = formula(tensor, shape, number)
        sums = [values.sum(), np.square(values).sum()]
        np.testing.assert_allclose(sums, [total, squares], rtol=1e-12, atol=1e-12, err_msg=tensor)
    assert sum(values.size for values in tensors.values()) == case["count"]
    inputs = {key: np.asarray(value) for key, value in (read()["data"][case["data"]] | case["random"]).items()}
    outputs = {key: np.asarray(value) for key, value in case["outputs"].items()}
    return Case(
        case["model"], case["config"], tensors, inputs, outputs, dict(zip(tensors, case["gradnorms"], strict=True))
    )


def full_width(folder: Path, name: str) -> Case:
    """The fixture <folder>/<name>.npz, whose configuration is in <name>.json.

    Without the rounding error that PyTorch's CMANP makes in an update.
    """
    told, fixture = json.loads((folder / f"{name}.json").read_text()), np.load(folder / f"{name}.npz")
    parts = {"param": {}, "in": {}, "out64": {}, "gradnorm64": {}}
    for key, value in fixture.items():
        part, _, entry = key.partition("/")
        if part in parts and entry != "update_max_abs_diff_vs_full":
            parts[part][entry] = np.float64(value) if value.dtype == np.float32 else value
    return Case(told["model"], told["config"], *parts.values())


def model_of(case: Case) -> NeuralProcess:
    """Our class with the case's arguments. Raises KeyError for an argument that is unknown."""
    cls = getattr(neural_processes, case.kind.upper())
    fields = {}
    for argument, value in case.config.items():
        if argument in SINGLE:
            assert value == SINGLE[argument], argument
        elif argument == "bound_std":
            joint = "bound" in cls.__dataclass_fields__
            fields |= dict(bound=True) if joint else dict(std_map="softplus", std_floor=0.05)
        elif argument != "dim_x":
            fields[FIELDS[argument]] = value
    return cls(**fields)


@functools.cache
def shapes(model: NeuralProcess, dim_x: int) -> dict:
    """The tree of our parameters' shapes."""
    x, y = np.zeros((3, dim_x)), np.zeros((3, model.dim_y))
    return jax.eval_shape(lambda key: model.init(key, Points(x, y), x, key=key), jax.random.key(0))["params"]


def imported(case: Case, tensors: dict[str, np.ndarray]) -> dict:
    """The tree of parameters that `tensors`, of the names and shapes of the case, become."""
    model = model_of(case)
    names = importlib.import_module(type(model).__module__).TORCH_NAMES
    return import_parameters(tensors, names, shapes(model, case.config["dim_x"]))


def norms_by_tensor(case: Case, gradient: dict) -> dict[str, float]:
    """L2 norms of a gradient in our tree, by published tensor; parts of a fused one are put together."""
    numbered = {name: np.full(tensor.shape, number) for number, (name, tensor) in enumerate(case.tensors.items())}
    places, squares = flatten_dict(imported(case, numbered)), np.zeros(len(numbered))
    for path, leaf in flatten_dict(gradient).items():
        squares[places[path].flat[0]] += np.square(leaf).sum()
    return dict(zip(numbered, np.sqrt(squares)))


def run(case: Case, program: Callable) -> Any:
    """program(apply, params), compiled; apply(params, method) is method(model, inputs) of the case."""
    model = model_of(case)

    def run(params, inputs):
        return program(lambda params, method: model.apply({"params": params}, inputs, method=method), params)

    compiled = jax.jit(run)
    return compiled(imported(case, case.tensors), case.inputs)
