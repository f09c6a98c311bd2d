"""Memory and time of conditioning, querying and updating, for every model (CMANP paper, Tables 1, 2, 8, Figures 3 and 8).

Memory is the compiler's: what a program needs beside its arguments and its result. Whether it is constant, linear or quadratic is
read off the slope of its logarithm against that of the number of points; nothing is looked up. A model with a state of constant
size is conditioned in chunks; the others at once, and an update means for them to condition anew.

XLA may evaluate softmax attention of about a thousand keys or more without ever holding all scores, also on a CPU: there the
memory of EQTNP and TNP falls back to linear, and the time alone stays quadratic. The table measures below that.
"""
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import drawing, timing
from experiments.harness.results import Result
from experiments.harness.tables import Table
from experiments.neural_processes.published import MODELS
from kvq_jax.models.neural_processes import NEURAL_PROCESSES, NeuralProcess, Points, condition, has_state, sample

CHUNK = 64
_COLOURS = {"tnp_d": drawing.AMBER, "tnp_nd": drawing.AMBER, "eqtnp": drawing.VIOLET, "lbanp": drawing.BLUE, "lbanp_nd": drawing.BLUE,
            "cmanp": drawing.RED, "cmanp_and": drawing.RED}
_MARKS = ((0.3, "constant"), (1.4, "linear"), (math.inf, "quadratic"))  # largest slope of each


class Model(NamedTuple):
    """A model, with the shapes of its variables."""

    module: NeuralProcess
    variables: Any


class Program(NamedTuple):
    """A function and the shapes of its arguments."""

    run: Callable
    arguments: tuple


def build(name: str, **fields) -> Model:
    """The model with the published sizes, but for `fields`."""
    module = NEURAL_PROCESSES[name](**fields)
    points = _points(2)
    return Model(module, jax.eval_shape(functools.partial(module.init, key=jax.random.key(1)), jax.random.key(0), points, points.x))


def conditioning(model: Model, n: int) -> Program | None:
    """context [n] -> memory; None for a model that reads its context anew for each query."""
    if has_state(model.module, model.variables):
        return Program(lambda variables, context: condition(model.module, variables, context, CHUNK), (model.variables, _points(n)))

    def remember(variables, context):
        return model.module.apply(variables, context, key=jax.random.key(0), method="remember")

    program = Program(remember, (model.variables, _points(n)))
    try:
        jax.eval_shape(program.run, *program.arguments)
    except ValueError:  # the interface's way of saying no
        return None
    return program


def querying(model: Model, n: int, m: int) -> Program:
    """(memory of n points, or the points, targets [m]) -> moments at the targets, or a sample by blocks where the model has blocks."""
    x, key = _points(m).x, jax.random.key(0)
    remember = conditioning(model, n)
    if hasattr(model.module, "block_size"):
        def by_blocks(variables, state, x):
            seen = Points(*(jnp.zeros((0, 1)),) * 2)
            size = model.module.block_size
            return sample(model.module, variables, seen, x, key=key, block_size=size, num_samples=1, state=state)

        return Program(by_blocks, (model.variables, jax.eval_shape(remember.run, *remember.arguments), x))
    if remember is None:
        return Program(lambda variables, context, x: _moments(model.module.apply(variables, context, x, key=key)),
                       (model.variables, _points(n), x))
    memory = jax.eval_shape(remember.run, *remember.arguments)
    return Program(lambda variables, memory, x: _moments(model.module.apply(variables, memory, x, key=key, method="query")),
                   (model.variables, memory, x))


def updating(model: Model, n: int, u: int) -> Program | None:
    """(memory of n points, u more) -> memory of all; where there is no state, from all points."""
    remember = conditioning(model, n)
    if remember is None:
        return None
    if not has_state(model.module, model.variables):
        return conditioning(model, n + u)
    state = jax.eval_shape(remember.run, *remember.arguments)
    return Program(lambda variables, state, context: condition(model.module, variables, context, CHUNK, state=state),
                   (model.variables, state, _points(u)))


def judging(model: Model, n: int, m: int) -> Program:
    """(context [n], targets [m]) -> log-likelihood per target."""
    def log_likelihood(variables, context, target):
        return model.module.apply(variables, context, target, key=jax.random.key(0), method="log_likelihood")

    return Program(log_likelihood, (model.variables, _points(n), _points(m)))


def memory(program: Program) -> int:
    """Bytes that the compiled program needs beside its arguments and its result."""
    return jax.jit(program.run).lower(*program.arguments).compile().memory_analysis().temp_size_in_bytes


def growth(program_of: Callable[[int], Program | None], sizes: Sequence[int]) -> str:
    """'constant', 'linear', 'quadratic' or 'none': how memory grows between the last two of increasing sizes."""
    programs = [program_of(size) for size in sizes[-2:]]
    if None in programs:
        return "none"
    few, many = (max(memory(program), 1) for program in programs)
    slope = math.log(many / few) / math.log(sizes[-1] / sizes[-2])
    return next(mark for largest, mark in _MARKS if slope <= largest)


def table8(results: Sequence[Result], models: Sequence[str] = tuple(MODELS), sizes: Sequence[int] = (128, 512), fixed: int = 64) -> Table:
    """How the memory of every model grows with context, targets and new points; measured now, from no results.

    Tables 1 and 2 are rows of it. Layers and widths are small: they do not change what grows.
    """
    del results
    rows = []
    for name in models:
        model = build(name, **_small(name))
        rows.append((MODELS[name], [
            growth(lambda n: conditioning(model, n), sizes),
            growth(lambda n: querying(model, n, fixed), sizes),
            growth(lambda m: querying(model, fixed, m), sizes),
            growth(lambda n: updating(model, n, fixed), sizes),
            growth(lambda u: updating(model, fixed, u), sizes),
        ]))
    columns = ["model", "conditioning: context", "querying: context", "querying: targets", "updating: context", "updating: new points"]
    caption = (
        f"Growth of the compiler's temporary memory from {sizes[0]} to {sizes[-1]} points, {fixed} of the others: constant, linear or "
        "quadratic by its slope; none: the model has no such phase. A state of constant size takes its points in chunks of "
        f"{CHUNK}; CMANP-AND predicts by blocks. The paper prints marks for these cells, which our copy of it does not show."
    )
    return Table("Memory complexity of neural processes (CMANP paper, Table 8)", columns, rows, caption)


def figure3(results: Sequence[Result], folder: Path, sizes: Sequence[int] = (64, 256, 1024, 4096), fixed: int = 64, **fields) -> Path:
    """Memory of the joint models against targets, memory and time of the others against context (Figure 3)."""
    del results
    figure, axes = drawing.new_figure(1, 3, width=3.6, height=3.2)
    lines = []
    for name in ("tnp_nd", "lbanp_nd", "cmanp_and"):
        model = build(name, **fields)
        few = [m for m in sizes if m <= 1024]  # a joint covariance of more would not fit a small machine
        lines.append((axes[0][0], name, "memory", few, [memory(querying(model, fixed, m)) for m in few]))
    for name in ("tnp_d", "eqtnp", "lbanp", "cmanp"):
        model = build(name, **fields)
        lines.append((axes[0][1], name, "memory", sizes, [_whole_memory(model, n, fixed) for n in sizes]))
        lines.append((axes[0][2], name, "time", sizes, [seconds(querying(model, n, fixed)) for n in sizes]))
    axes[0][0].set(xlabel="targets", title=f"joint prediction, {fixed} context points")
    axes[0][1].set(xlabel="context points", title=f"conditioning and {fixed} targets")
    axes[0][2].set(xlabel="context points", title=f"querying {fixed} targets")
    return _drawn(figure, axes[0], lines, folder / "figure3")


def figure8(results: Sequence[Result], folder: Path, sizes: Sequence[int] = (64, 256, 1024, 4096), fixed: int = 64, **fields) -> Path:
    """Time of an update and of a query against the size of the context (Figure 8)."""
    del results
    figure, axes = drawing.new_figure(1, 2, width=4.2, height=3.2)
    lines = []
    for name in ("eqtnp", "lbanp", "cmanp"):
        model = build(name, **fields)
        lines.append((axes[0][0], name, "time", sizes, [seconds(updating(model, n, fixed)) for n in sizes]))
    lines.append((axes[0][0], "cmanp, anew", "time", sizes, [seconds(conditioning(model, n + fixed)) for n in sizes]))
    for name in ("tnp_d", "eqtnp", "lbanp", "cmanp"):
        model = build(name, **fields)
        lines.append((axes[0][1], name, "time", sizes, [seconds(querying(model, n, fixed)) for n in sizes]))
    axes[0][0].set(xlabel="context points before", title=f"update by {fixed} points")
    axes[0][1].set(xlabel="context points", title=f"query of {fixed} targets")
    return _drawn(figure, axes[0], lines, folder / "figure8")


def _whole_memory(model: Model, n: int, m: int) -> int:
    """Of conditioning or of querying, whichever needs more."""
    return max(memory(program) for program in (conditioning(model, n), querying(model, n, m)) if program)


def seconds(program: Program, turns: int = 5, budget_s: float = 0.3) -> float:
    """Time of a call, on arguments of ones."""
    arguments = jax.tree.map(_ones, program.arguments)
    return timing.seconds(timing.interleaved([functools.partial(jax.jit(program.run), *arguments)], turns, budget_s), 0)


def _drawn(figure, axes, lines, path: Path) -> Path:
    rows = []
    for axis, name, unit, sizes, values in lines:
        model, _, how = name.partition(", ")
        shown = [value / 2**20 for value in values] if unit == "memory" else [1e3 * value for value in values]
        axis.plot(sizes, shown, "o-" if not how else "o--", color=_COLOURS[model], markersize=3,
                  label=MODELS[model] + (f", {how}" if how else ""))
        axis.set(xscale="log", yscale="log", ylabel={"memory": "temporary memory, MiB", "time": "milliseconds"}[unit])
        rows += [(axis.get_title(), name, unit, size, value) for size, value in zip(sizes, shown)]
    for axis in axes:
        axis.legend(fontsize=8)
    drawing.save_numbers(path.with_suffix(".csv"), ["panel", "model", "what", "points", "MiB or ms"], rows)
    return drawing.save(figure, path.with_suffix(".png"))


def _moments(prediction) -> tuple[jax.Array, jax.Array]:
    return prediction.mean, prediction.variance


def _small(name: str) -> dict:
    """Few layers and narrow ones, for programs that are compiled by the hundred."""
    fields = NEURAL_PROCESSES[name].__dataclass_fields__
    sizes = dict(features=16, num_layers=2, num_latents=8, num_block_latents=8, latent=16, eval_samples=4, samples=4)
    if "features" not in fields:
        sizes |= dict(hidden=16, num_heads=2)
    return {key: value for key, value in sizes.items() if key in fields}


def _points(n: int) -> Points:
    shape = jax.ShapeDtypeStruct((n, 1), np.float32)
    return Points(shape, shape)


def _ones(shape):
    return shape if isinstance(shape, jax.Array) else jnp.ones(shape.shape, shape.dtype)
