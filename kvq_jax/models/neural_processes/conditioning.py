"""Conditioning on a long context in constant memory, and sampling from any neural process.

A model with a state of constant size is itself a stream of points: see `as_stream`. kvq_jax.ops.streaming can fold it
in chunks, give all prefixes, and merge it over devices.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kvq_jax.models.neural_processes.base import NeuralProcess
from kvq_jax.models.points import Points, as_floats, join, whole_mask
from kvq_jax.ops.streaming import Stream, fold, fold_made

Array = jax.Array


def as_stream(model: NeuralProcess, variables: Any) -> Stream:
    """A model as a stream: `update(state, x, y, mask)` takes points, `read(state, target_x)` gives the prediction."""
    apply = functools.partial(model.apply, variables)
    return Stream(
        init=lambda dx, dy, *, batch=(): apply(batch, method="init_state"),
        update=lambda state, x, y, mask=None: apply(state, Points(x, y, mask), method="update"),
        merge=lambda state, other: apply(state, other, method="merge"),
        finish=lambda state: apply(state, method="finish"),
        answer=lambda memory, target_x: apply(memory, target_x, method="query"),
    )


def has_state(model: NeuralProcess) -> bool:
    """Whether the model has a state of constant size."""
    return _has(model, "init_state")


def has_cache(model: NeuralProcess) -> bool:
    """Whether the model can keep a growing context in a cache."""
    return _has(model, "init_cache", 1)


def _has(model: NeuralProcess, method: str, *arguments: Any) -> bool:
    try:
        jax.eval_shape(lambda key: model.init(key, (), *arguments, method=method), jax.random.key(0))
    except ValueError:  # the interface's way of saying no
        return False
    return True


def condition(model: NeuralProcess, variables: Any, context: Points, chunk_size: int, *, state: Any = None) -> Any:
    """The state after a long context, chunk by chunk: CMANP (Feng et al. 2023, arXiv 2305.14567), Section 3.1.2.

    Each chunk of `chunk_size` points (the last may have fewer) is embedded inside the scan: beside the points it needs
    memory for one chunk only. The gradient computes each chunk again and keeps at most one state per chunk.

    The state starts at `state`, or at no context, and has the leading dimensions of the context. Raises ValueError if
    the model has no state, chunk_size is not positive, or shapes do not fit.
    """
    stream = as_stream(model, variables)
    if state is None:
        state = stream.init(context.x.shape[-1], context.y.shape[-1], batch=context.x.shape[:-2])
    return fold(stream, state, *context, chunk_size=chunk_size)


def condition_made(
    model: NeuralProcess,
    variables: Any,
    make_chunk: Callable[[Array], Points],
    count: int,
    *,
    batch: tuple[int, ...] = (),
    state: Any = None,
) -> Any:
    """The state after `count` chunks that are made inside the scan, in memory that does not depend on their number.

    make_chunk(i) gives chunk i, an int32 scalar, with the leading dimensions `batch`. The state starts at `state`, or
    at no context. Raises ValueError if the model has no state, or shapes do not fit.
    """
    if state is None:
        state = model.apply(variables, batch, method="init_state")

    def masked(i):
        points = make_chunk(i)
        return points._replace(mask=whole_mask(points))

    return fold_made(as_stream(model, variables), state, masked, count)


def in_blocks(points: Points, size: int) -> Points:
    """Points [..., M, d] as blocks [blocks, ..., size, d] in order, with a mask. Absent points fill up the last block.

    Raises ValueError if size is not positive.
    """
    if size < 1:
        raise ValueError(f"a block has at least 1 point, not {size}")
    total = points.x.shape[-2]
    size = min(size, max(total, 1))
    fill = -total % size

    def split(array, axis):
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, fill)
        array = jnp.pad(array, widths)
        axis %= array.ndim
        return jnp.moveaxis(array.reshape(*array.shape[:axis], -1, size, *array.shape[axis + 1 :]), axis, 0)

    mask = jnp.broadcast_to(whole_mask(points), points.x.shape[:-1])
    return Points(split(points.x, -2), split(points.y, -2), split(mask, -1))


class Rollout(NamedTuple):
    """How draws become context: what is seen at the start, how to predict from it, and how to add a drawn block."""

    start: Any
    query: Callable[[Any, Points, Array], Any]  # (seen, block, key) -> predictive distribution at block.x
    absorb: Callable[[Any, Points, Array], Any]  # (seen, block, index of the block) -> seen


def sample(
    model: NeuralProcess,
    variables: Any,
    context: Points,
    target_x: Array,
    target_mask: Array | None = None,
    *,
    key: Array,
    block_size: int,
    num_samples: int,
    use_state: bool | None = None,
    state: Any = None,
) -> Array:
    """Functions drawn block by block, each block of targets given the context and the blocks before it.

    A joint predictive distribution with one block gives its own samples. A factorised one with blocks of one point
    gives the autoregressive samples of Bruinsma et al. 2023 (arXiv 2303.14468). In between is Section 3.3.1 of CMANP
    (Feng et al. 2023, arXiv 2305.14567).

    Args:
      model, variables: any neural process.
      context, target_x, target_mask: [..., N], [..., M, dx], [..., M]. Targets are drawn in the order given; an absent
        one is never conditioned on, and its sample means nothing.
      key: of the draws, and of models that draw.
      block_size: targets drawn at once.
      num_samples: number of functions; the result is [num_samples, ..., M, dy].
      use_state: True adds draws by `update`, False conditions anew on a context that grows; None: by the cheapest that
        the model has, a state of constant size, a cache, or anew. The results are the same.
      state: what the model has seen before the context, which may then have no points; implies use_state.

    Raises:
      ValueError: if block_size is not positive, use_state=True and the model has no state, or shapes do not fit.
    """
    if use_state is False and state is not None:
        raise ValueError("a state is given, so use_state=False has no context to condition on")
    if use_state or state is not None or (use_state is None and has_state(model)):
        start = functools.partial(_by_state, state=state)
    else:
        start = _by_cache if use_state is None and has_cache(model) else _by_context
    context = context._replace(y=as_floats(context.y))
    targets = jnp.zeros((*target_x.shape[:-1], context.y.shape[-1]), context.y.dtype)
    blocks = in_blocks(Points(target_x, targets, target_mask), block_size)
    rollout, count = start(model, variables, context, blocks), blocks.x.shape[0]

    def draw(seen, step):
        index, key, block = step
        of_model, of_sample = jax.random.split(key)
        y = rollout.query(seen, block, of_model).sample(of_sample).reshape(block.y.shape).astype(block.y.dtype)
        return rollout.absorb(seen, block._replace(y=y), index), y

    def one(key):
        _, drawn = lax.scan(draw, rollout.start, (jnp.arange(count), jax.random.split(key, count), blocks))
        return _side_by_side(drawn)[..., : target_x.shape[-2], :]

    return jax.vmap(one)(jax.random.split(key, num_samples))


def _by_state(model: NeuralProcess, variables: Any, context: Points, blocks: Points, state: Any) -> Rollout:
    """Draws enter the model's state: memory O(1) in the number of points."""
    stream = as_stream(model, variables)
    return Rollout(
        condition(model, variables, context, max(context.x.shape[-2], 1), state=state),
        lambda state, block, key: model.apply(
            variables, stream.finish(state), block.x, block.mask, key=key, method="query"
        ),
        lambda state, block, index: stream.update(state, *block),
    )


def _by_cache(model: NeuralProcess, variables: Any, context: Points, blocks: Points) -> Rollout:
    """Draws enter the model's cache, which has room for all targets."""
    apply = functools.partial(model.apply, variables)
    seen, (count, size) = context.x.shape[-2], (blocks.x.shape[0], blocks.x.shape[-2])
    empty = apply(context.x.shape[:-2], seen + count * size, method="init_cache")
    return Rollout(
        apply(empty, context, 0, method="extend"),
        lambda cache, block, key: apply(
            apply(cache, method="finish_cache"), block.x, block.mask, key=key, method="query"
        ),
        lambda cache, block, index: apply(cache, block, seen + size * index, method="extend"),
    )


def _by_context(model: NeuralProcess, variables: Any, context: Points, blocks: Points) -> Rollout:
    """Draws enter the context itself, which has absent places for all targets."""
    x, y = _side_by_side(blocks.x), _side_by_side(blocks.y)
    places = join(context, Points(x, y, jnp.zeros(x.shape[:-1], bool)))
    seen, size = context.x.shape[-2], blocks.x.shape[-2]

    def absorb(points, block, index):
        at = seen + size * index
        y = lax.dynamic_update_slice_in_dim(points.y, block.y, at, -2)
        mask = lax.dynamic_update_slice_in_dim(points.mask, block.mask, at, points.mask.ndim - 1)
        return points._replace(y=y, mask=mask)

    query = lambda points, block, key: model.apply(variables, points, block.x, block.mask, key=key)
    return Rollout(places, query, absorb)


def _side_by_side(blocks: Array) -> Array:
    """[blocks, ..., size, d] -> [..., blocks size, d]."""
    blocks = jnp.moveaxis(blocks, 0, -3)
    return blocks.reshape(*blocks.shape[:-3], -1, blocks.shape[-1])
