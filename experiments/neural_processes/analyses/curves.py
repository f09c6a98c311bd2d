"""The three functions of Figures 9 and 10 of the CMANP paper, with contexts from all of their range or a part."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvq_jax.models.points import Points


class Function(NamedTuple):
    """A function, and the intervals in which the context of Figure 10 lies."""

    name: str
    of: Callable
    part: tuple[tuple[float, float], ...]


FUNCTIONS = (
    # Printed as sin(x) + sin(10/3)*x, which is a line beside a sine.
    Function("sin(x) + sin(10x/3)", lambda x: jnp.sin(x) + jnp.sin(10 / 3 * x), ((-1.0, 2.0),)),
    Function("exp(-x) sin(πx) / 2", lambda x: jnp.exp(-x) * jnp.sin(jnp.pi * x) / 2, ((-2.0, 1.0),)),
    Function("-x sin(3x)", lambda x: -x * jnp.sin(3 * x), ((-2.0, -1.0), (1.0, 2.0))),
)
PLACES = ("all of the range", "a part of the range")  # where the context lies


def predicted(predict: Callable, points: int, x: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    """The F functions without noise, predicted at x [G] from a context in each of the PLACES.

    `predict` is (context [2, F, points, 1], x [2, F, G, 1]) -> means and standard deviations [2, F, 2, G]. x increases,
    from one end of the range of training to the other. Returns x [G], truth [F, G], context_x and context_y
    [2, F, points], prediction [2, F, 2, G].
    """
    places = [[((x[0], x[-1]),) for _ in FUNCTIONS], [function.part for function in FUNCTIONS]]
    keys = jax.random.split(key, len(FUNCTIONS))
    context_x = jnp.stack([jnp.stack([_uniform(*given, points) for given in zip(keys, place)]) for place in places])
    context_y = jnp.stack([function.of(context_x[:, i]) for i, function in enumerate(FUNCTIONS)], 1)
    target_x = jnp.broadcast_to(x[:, None], (*context_x.shape[:2], len(x), 1))
    prediction = predict(Points(context_x[..., None], context_y[..., None]), target_x)
    truth = jnp.stack([function.of(x) for function in FUNCTIONS])
    return {"x": x, "truth": truth, "context_x": context_x, "context_y": context_y, "prediction": prediction}


def _uniform(key: jax.Array, intervals: tuple, points: int) -> jax.Array:
    """Positions [points], uniform on a union of intervals."""
    low, high = jnp.asarray(intervals).T
    ends = jnp.cumsum(high - low)
    along = jax.random.uniform(key, (points,)) * ends[-1]
    which = jnp.searchsorted(ends, along)
    return high[which] - (ends[which] - along)
