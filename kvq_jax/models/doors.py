"""What a model is given is looked at where it comes in: a mistake is one line that names the argument.

Broadcasting would hide most of them. A model of one output would train on two as if they were one.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from kvq_jax.models.event_processes.events import Events
from kvq_jax.models.points import Points
from kvq_jax.nn.block import Block

# The methods that a user calls, and their arguments: points (inputs with outputs), inputs alone, or events.
_DOORS = (
    "__call__",
    "loss",
    "loss_of_points",
    "log_likelihood",
    "remember",
    "update",
    "extend",
    "update_many",
    "query",
)
_POINTS, _INPUTS, _EVENTS = ("context", "target", "points"), "target_x", "events"


class Guarded(Block):
    """A model whose doors raise ValueError, one line, for arguments that do not fit it or each other.

    Guarded are those methods of _DOORS that the class or a subclass defines, by the names of their arguments. Shapes
    and types are looked at, never numbers. Where `empties` is set, points and target_x hold zeros behind the doors in
    places that their mask says are absent: no layer norm squares what is there.
    """

    empties = False

    def __init_subclass__(cls, **options):
        for name in _DOORS:
            if name in vars(cls):
                setattr(cls, name, _guarded(vars(cls)[name]))
        super().__init_subclass__(**options)


def _guarded(method: Callable) -> Callable:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self, *arguments, **options):
        bound = signature.bind(self, *arguments, **options)
        for complaint in _complaints(bound.arguments, getattr(self, "dim_y", None)):
            raise ValueError(complaint)
        if self.empties:
            bound.arguments.update(_emptied(bound.arguments))
        return method(*bound.args, **bound.kwargs)

    return checked


def _emptied(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that have a mask, without what their absent places hold."""
    points = {name: given[name] for name in _POINTS if name in given and given[name].mask is not None}
    found = {name: Points(*(_there(of, each.mask) for of in each[:2]), each.mask) for name, each in points.items()}
    mask = given.get("target_mask")
    return found if mask is None or _INPUTS not in given else found | {_INPUTS: _there(given[_INPUTS], mask)}


def _there(rows: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask[..., None], rows, 0)


def _complaints(given: dict[str, Any], dim_y: int | None) -> Iterator[str]:
    """What is wrong with the arguments of a door, by their names."""
    points = {name: given[name] for name in _POINTS if name in given}
    for name, value in points.items():
        if not isinstance(value, Points):
            yield f"{name} is a {type(value).__name__}: expected kvq_jax.models.Points(x, y) or Points(x, y, mask)"
        yield from _of_array(f"{name}.x", value.x)
        yield from _of_array(f"{name}.y", value.y)
        yield from _of_points(name, value)
        if dim_y is not None and value.y.shape[-1] != dim_y:
            yield f"{name}.y has {value.y.shape[-1]} outputs, the model dim_y={dim_y}: {name}.y {value.y.shape}"
    inputs = {f"{name}.x": value.x for name, value in points.items()}
    if _INPUTS in given:
        yield from _of_array(_INPUTS, given[_INPUTS])
        inputs[_INPUTS] = given[_INPUTS]
        yield from _of_mask("target_mask", given.get("target_mask"), _INPUTS, given[_INPUTS])
    yield from _of_pairs(inputs, "more than the number of points", lambda x: (x.shape[:-2], x.shape[-1]))
    outputs = {f"{name}.y": value.y for name, value in points.items()}
    yield from _of_pairs(outputs, "the number of outputs", lambda y: y.shape[-1])
    if _EVENTS in given:
        yield from _of_events(given[_EVENTS])
    if "gap" in given and "mark" in given:  # one event of each sequence
        mask = given.get("mask")
        yield from _of_fields(
            {name: given[name] for name in ("gap", "mark")} | ({} if mask is None else {"mask": mask})
        )


def _of_array(name: str, value: Any) -> Iterator[str]:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        yield f"{name} is a {type(value).__name__}: expected an array [..., points, features]"
    if len(value.shape) < 2:
        hint = f"; for points of one feature {name}[:, None]" if len(value.shape) == 1 else ""
        yield f"{name} has shape {value.shape}: expected [..., points, features]{hint}"


def _of_points(name: str, points: Points) -> Iterator[str]:
    x, y, mask = points
    if x.shape[:-1] != y.shape[:-1]:
        yield f"{name}.x and {name}.y differ before their last dimension: {name}.x {x.shape}, {name}.y {y.shape}"
    yield from _of_mask(f"{name}.mask", mask, f"{name}.x", x)


def _of_mask(name: str, mask: Any, of: str, x: Any) -> Iterator[str]:
    if mask is None:
        return
    if not hasattr(mask, "shape") or not jnp.issubdtype(mask.dtype, jnp.bool_):
        yield f"{name} is boolean (True = there), not {getattr(mask, 'dtype', type(mask).__name__)}"
    if mask.shape not in (x.shape[:-1], x.shape[-2:-1]):
        yield f"{name} {mask.shape} is not {of} without its last dimension, nor one for all tasks: {of} {x.shape}"


def _of_pairs(arrays: dict[str, jax.Array], what: str, key: Callable[[jax.Array], Any]) -> Iterator[str]:
    if len(set(map(key, arrays.values()))) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        yield f"{' and '.join(arrays)} differ in {what}: {shapes}"


def _of_events(events: Any) -> Iterator[str]:
    if not isinstance(events, Events):
        yield f"events is a {type(events).__name__}: expected kvq_jax.models.Events(gap, mark, mask, rest)"
    fields = {f"events.{name}": value for name, value in events._asdict().items() if value is not None}
    rest = {"events.rest": fields.pop("events.rest", None)}
    yield from _of_fields(fields)
    if not events.gap.shape or not events.gap.shape[-1]:
        yield f"events.gap has shape {events.gap.shape}: expected [..., events], of one event at least, there or absent"
    yield from _of_fields(rest)
    if events.rest.shape != events.gap.shape[:-1]:
        yield f"events.rest {events.rest.shape} is not events.gap {events.gap.shape} without its last dimension"


# Field of an event -> the kind of number it is, and its name.
_KINDS = {
    "gap": (jnp.floating, "real numbers"),
    "mark": (jnp.integer, "integers"),
    "mask": (jnp.bool_, "booleans (True = there)"),
    "rest": (jnp.floating, "real numbers"),
}


def _of_fields(fields: dict[str, Any]) -> Iterator[str]:
    """What is wrong with fields of events, by their names: their kinds of numbers, and shapes that differ."""
    for name, value in fields.items():
        kind, said = _KINDS[name.rpartition(".")[-1]]
        if not hasattr(value, "shape") or not jnp.issubdtype(value.dtype, kind):
            yield f"{name} is {getattr(value, 'dtype', f'a {type(value).__name__}')}: expected an array of {said}"
    yield from _of_pairs(fields, "shape", lambda array: array.shape)
