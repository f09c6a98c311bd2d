"""The table of operators, one row each, and its view as functions."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from kvq_jax.names import unknown
from kvq_jax.ops import attention
from kvq_jax.ops.constraints import constrained_intention, constrained_weights
from kvq_jax.ops.discriminants import lda, ls_svm, qda, within_class
from kvq_jax.ops.features import nystroem_intention
from kvq_jax.ops.intention import informer, intention, intention_weights, sigma_informer, sigma_intention
from kvq_jax.ops.kernels import kernel_intention
from kvq_jax.ops.streaming_attention import erf_stream, laplace_stream, softmax_stream
from kvq_jax.ops.streaming_intention import informer_stream, intention_stream, linear_stream, uniform_stream


class Operator(NamedTuple):
    """What there is to know of an operator."""

    function: Callable[..., Any]  # (query, key, value, *, mask=None, **options) -> output
    stream: Callable[..., Any] | None = None  # (query, **options) -> kvq_jax.ops.streaming.Stream, of constant size
    weights: Callable[..., Any] | None = None  # (key, value, *, mask=None, **options) -> w, output = query @ w
    alpha: str | None = None  # the domain of a learnt `alpha`: 'positive' or 'unit', (0, 1); None: no such option
    labels: bool = False  # values must be labels of classes
    affine: bool = True  # in the values: it has weights, see `affine_form`

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the function's options, without `mask`."""
        return tuple(keywords(self.function))

    @property
    def stream_options(self) -> tuple[str, ...]:
        """Names of options that the stream has and the function has not, such as `forgetting`."""
        return tuple(name for name in keywords(self.stream) if name not in self.options) if self.stream else ()


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only arguments of a function and their defaults, without `mask`."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "mask"}


def check_stream_options(name: str, stream: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises ValueError for an option that the stream of the operator `name` does not have."""
    known = keywords(stream)
    for option in options:
        if option not in known:
            raise ValueError(unknown(f"option of the stream of {name}", option, known))


def affine_form(attend: Callable[[Array], Array], points: int, dtype: DTypeLike = float) -> tuple[Array, Array]:
    """The weights W [..., M, N] and the rest b [..., M, 1] of an affine operator: attend(value) = W value + b.

    The rest is that of a value of zeros, and is zero for nearly all operators; LS-SVM has one.

    Args:
      attend: value [N, k] -> output [..., M, k], affine in the value, and the same in each of its columns.
      points: N.
      dtype: of the values.
    """
    rest = attend(jnp.zeros((points, 1), dtype))
    return attend(jnp.eye(points, dtype=dtype)) - rest, rest


informer_weights = functools.partial(intention_weights, alpha=0.5, form="informer")

OPERATORS: dict[str, Operator] = {
    "softmax": Operator(attention.softmax_attention, softmax_stream),
    "linear": Operator(attention.linear_attention, linear_stream),
    "laplace": Operator(attention.laplace_attention, laplace_stream),
    "uniform": Operator(attention.uniform_attention, uniform_stream),
    "erf": Operator(attention.erf_attention, erf_stream),
    "intention": Operator(intention, intention_stream, intention_weights, alpha="positive"),
    "sigma_intention": Operator(sigma_intention, alpha="positive"),
    "informer": Operator(informer, informer_stream, informer_weights, alpha="unit"),
    "sigma_informer": Operator(sigma_informer, alpha="unit"),
    "kernel_intention": Operator(kernel_intention, alpha="positive"),
    "nystroem_intention": Operator(nystroem_intention, alpha="positive"),
    "constrained_intention": Operator(
        constrained_intention, weights=constrained_weights, alpha="positive", affine=False
    ),
    "ls_svm": Operator(ls_svm, alpha="positive"),
    "lda": Operator(lda, alpha="positive", labels=True, affine=False),
    "within_class": Operator(within_class, alpha="positive", labels=True, affine=False),
    "qda": Operator(qda, alpha="positive", labels=True, affine=False),
}


class _Functions(Mapping[str, Callable[..., Any]]):
    """The functions of OPERATORS by name, live: a row added later is here too."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in OPERATORS:
            raise KeyError(unknown("op", name, OPERATORS))
        return OPERATORS[name].function

    def __iter__(self) -> Iterator[str]:
        return iter(OPERATORS)

    def __len__(self) -> int:
        return len(OPERATORS)


OPS: Mapping[str, Callable[..., Any]] = _Functions()
