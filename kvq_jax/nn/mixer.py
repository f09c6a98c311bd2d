"""An operator as a module that owns its options and its learnt alpha. Every block that mixes a set has one."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jax import Array

from kvq_jax.names import choose, unknown
from kvq_jax.nn.alpha import ALPHA_KINDS, Alpha
from kvq_jax.nn.block import Block
from kvq_jax.ops import OPERATORS, Operator
from kvq_jax.ops.operators import check_stream_options, keywords
from kvq_jax.ops.streaming import Stream

# A name of kvq_jax.ops.OPERATORS; a function (query, key, value, *, mask) -> output; or dict(name=either, **options).
Op = str | Mapping[str, Any] | Callable[..., Array]

# Domain of a learnt alpha -> its upper end; the lower end is 0.
DOMAINS = {"positive": float("inf"), "unit": 1.0}


class Resolved(NamedTuple):
    """What an `Op` says."""

    name: str
    operator: Operator
    options: dict[str, Any]  # of the function
    alpha_kind: str | None = None  # a name of kvq_jax.nn.ALPHA_KINDS; None: alpha is an option like all others
    initial: float | None = None  # the alpha it starts at


def resolve(op: Op, *, streams: bool = False) -> Resolved:
    """The operator, options and learnt alpha of an op. With `streams` the options of its stream are options too.

    Raises ValueError, one line: for an unknown op, option or kind of alpha (the nearest is named), for an alpha_kind of
    an operator without alpha, and for a kind whose alpha could leave the operator's domain.
    """
    given = dict(op) if isinstance(op, Mapping) else {"name": op}
    if "name" not in given:
        raise ValueError(f"an op that is a dict has a name: dict(name='intention', ...), not {given}")
    name = given.pop("name")
    if isinstance(name, str):
        operator = choose(OPERATORS, name, "op")
    else:  # a function; its row, if it has one
        rows = {row.function: (known, row) for known, row in OPERATORS.items()}
        name, operator = rows[name] if name in rows else (getattr(name, "__name__", str(name)), Operator(name))
    learns, kind = "alpha_kind" in given, given.pop("alpha_kind", None)
    ours = operator.options + (operator.stream_options if streams else ())
    known = (*ours, *(("alpha_kind",) if operator.alpha else ()))
    if learns and not operator.alpha:
        raise ValueError(f"{name} has no alpha: alpha_kind={kind!r} is for ops that have one")
    for option in given:
        if option not in known and option in operator.stream_options:
            raise ValueError(f"{option} is an option of the stream of {name}: only blocks that stream take it")
        if option not in known:
            raise ValueError(unknown(f"option of {name}", option, known))
    if not learns:
        return Resolved(name, operator, given)
    found = choose(ALPHA_KINDS, kind, "kind of alpha")
    if found.squash is not None and found.high > DOMAINS[operator.alpha]:
        domain = f"(0, {DOMAINS[operator.alpha]:g})"
        raise ValueError(f"a {kind} alpha lies in {found.interval}, that of {name} in {domain}: take 'sigmoid'")
    initial = given.pop("alpha") if "alpha" in given else keywords(operator.function)["alpha"]
    return Resolved(name, operator, given, kind, initial)


class Mixer(Block):
    """output = op(query, key, value), with options and, where asked for, a learnt alpha.

        Mixer("softmax")                                                  # the operator's defaults, nothing learnt
        Mixer(dict(name="nystroem_intention", landmarks=32))              # an option
        Mixer(dict(name="informer", alpha=0.5, alpha_kind="sigmoid"))     # a parameter that starts at 0.5
        Mixer(dict(name="intention", forgetting=0.99))                    # of its stream: only `stream` takes it

    `alpha_kind` is a name of kvq_jax.nn.ALPHA_KINDS. The learnt alpha starts at `alpha`, by default the operator's own.
    Kind 'set' makes alpha a function of keys and values: one for each set and head, by one MLP.

    Raises ValueError as `resolve`, if alpha starts outside its range, and if the operator has no stream or weights.
    """

    op: Op = "softmax"
    shape: Sequence[int] = ()  # of the learnt alpha; (H,) where heads are the last leading dimension

    def setup(self):
        said = resolve(self.op, streams=True)
        if said.alpha_kind is not None:
            shape = () if ALPHA_KINDS[said.alpha_kind].from_set else self.shape
            self.alpha = Alpha(said.alpha_kind, said.initial, shape)

    def __call__(self, query: Array, key: Array, value: Array, *, mask: Array | None = None) -> Array:
        """query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k]."""
        said, (query, key, value) = resolve(self.op), self.cast(query, key, value)
        return said.operator.function(query, key, value, mask=mask, **self._options(said, key, value, mask))

    def weights(self, key: Array, value: Array, *, mask: Array | None = None) -> Array:
        """w [..., d, k] with output = query @ w, for ops that are linear in the query: Intention and its kin."""
        said, (key, value) = resolve(self.op), self.cast(key, value)
        make = _part(said, "weights", "weights")
        return make(key, value, mask=mask, **self._options(said, key, value, mask))

    def stream(self, query: Array | None = None) -> Stream:
        """The op as a stream, at query [..., M, d] or, if None, at queries that come at `read`."""
        said = resolve(self.op, streams=True)
        make = _part(said, "stream", "streaming state")
        if query is None and self.serves_its_queries():
            raise ValueError(
                f"a state of {said.name} belongs to the queries it was made for: no constant size serves any query"
            )
        options = self._options(said)
        check_stream_options(said.name, make, options)
        return make(query, **options)

    def serves_its_queries(self) -> bool:
        """Whether a state of the stream holds a part for each query, and serves no other."""
        make = _part(resolve(self.op, streams=True), "stream", "streaming state")
        return inspect.signature(make).parameters["query"].default is inspect.Parameter.empty

    def _options(self, said: Resolved, key=None, value=None, mask=None) -> dict[str, Any]:
        if said.alpha_kind is None:
            return said.options
        return said.options | {"alpha": self.alpha(key, value, mask=mask)}


def _part(said: Resolved, field: str, what: str) -> Callable[..., Any]:
    """A field of the operator's row that not every operator has."""
    part = getattr(said.operator, field)
    if part is None:
        have = ", ".join(name for name, row in OPERATORS.items() if getattr(row, field))
        raise ValueError(f"{said.name} has no {what}: expected one of {have}")
    return part
