"""Memory and time of conditioning, querying and updating, for every model (CMANP paper, Tables 1, 2, 8, Figures 3 and 8).

Memory is the compiler's: what a program needs beside its arguments and its result; the numbers of a figure have the device's own
statistics beside it, where a device keeps any. Whether memory is constant, linear or quadratic is read off a fit of a + b n + c n^2
to what was measured; nothing is looked up. A model with a state of constant size is conditioned in chunks; the others at once, and
an update means for them to condition anew.

XLA may evaluate softmax attention of about a thousand keys or more, and with BANP's samples of about 500, without ever holding all
scores, also on a CPU: there memory falls back to linear, and the time alone stays quadratic. The table measures below that.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from matplotlib.axes import Axes

from experiments.harness import drawing, timing
from experiments.harness.results import Result
from experiments.harness.tables import Cell, Table
from experiments.neural_processes.published import MODELS
from kvq_jax.models.neural_processes import NEURAL_PROCESSES, NeuralProcess, Points, condition, has_state, sample

CHUNK = 64
_COLOURS = {
    "tnp_d": drawing.AMBER,
    "tnp_nd": drawing.AMBER,
    "eqtnp": drawing.VIOLET,
    "lbanp": drawing.BLUE,
    "lbanp_nd": drawing.BLUE,
    "cmanp": drawing.RED,
    "cmanp_and": drawing.RED,
}
_MARKS = ("constant", "linear", "quadratic")
_TURNS, _BUDGET_S = 5, 0.3  # of a timing
_SHARE = 0.4  # of the memory at the largest size: a term with less does not make a mark


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
    return Model(
        module,
        jax.eval_shape(functools.partial(module.init, key=jax.random.key(1)), jax.random.key(0), points, points.x),
    )


def conditioning(model: Model, n: int) -> Program | None:
    """context [n] -> memory; None for a model that reads its context anew for each query."""
    if has_state(model.module, model.variables):
        return Program(
            lambda variables, context: condition(model.module, variables, context, CHUNK), (model.variables, _points(n))
        )

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
        return Program(
            lambda variables, context, x: _moments(model.module.apply(variables, context, x, key=key)),
            (model.variables, _points(n), x),
        )
    memory = jax.eval_shape(remember.run, *remember.arguments)
    return Program(
        lambda variables, memory, x: _moments(model.module.apply(variables, memory, x, key=key, method="query")),
        (model.variables, memory, x),
    )


def updating(model: Model, n: int, u: int) -> Program | None:
    """(memory of n points, u more) -> memory of all; where there is no state, from all points."""
    remember = conditioning(model, n)
    if remember is None:
        return None
    if not has_state(model.module, model.variables):
        return conditioning(model, n + u)
    state = jax.eval_shape(remember.run, *remember.arguments)
    return Program(
        lambda variables, state, context: condition(model.module, variables, context, CHUNK, state=state),
        (model.variables, state, _points(u)),
    )


def judging(model: Model, n: int, m: int) -> Program:
    """(context [n], targets [m]) -> log-likelihood per target."""

    def log_likelihood(variables, context, target):
        return model.module.apply(variables, context, target, key=jax.random.key(0), method="log_likelihood")

    return Program(log_likelihood, (model.variables, _points(n), _points(m)))


def memory(program: Program) -> int:
    """Bytes that the compiled program needs beside its arguments and its result."""
    return jax.jit(program.run).lower(*program.arguments).compile().memory_analysis().temp_size_in_bytes


def device_peak() -> int | None:
    """The most bytes that the first device ever held in this process, where it keeps such statistics: a CPU does not."""
    statistics = jax.local_devices()[0].memory_stats()
    return statistics and statistics.get("peak_bytes_in_use")


def growth(program_of: Callable[[int], Program | None], sizes: Sequence[int]) -> str:
    """'constant', 'linear', 'quadratic' or 'none': how memory grows with three or more sizes."""
    programs = [program_of(size) for size in sizes]
    return "none" if None in programs else mark([memory(program) for program in programs], sizes)


def mark(measured: Sequence[float], sizes: Sequence[int]) -> str:
    """The highest power of n with a share in a + b n + c n^2 at the largest n, fitted by non-negative least squares."""
    terms = np.vander(np.asarray(sizes) / sizes[-1], 3, increasing=True)
    shares, _ = scipy.optimize.nnls(terms, np.asarray(measured, float))
    return _MARKS[max((power for power in (1, 2) if shares[power:].sum() > _SHARE * shares.sum()), default=0)]


def table8(
    results: Sequence[Result],
    models: Sequence[str] = tuple(MODELS),
    sizes: Sequence[int] = (128, 256, 384),
    fixed: int = 64,
) -> Table:
    """How the memory of every model grows with context, targets and new points; measured now, from no results.

    Tables 1 and 2 are rows of it. Layers and widths are small: they do not change what grows.
    """
    del results
    rows = []
    for name in models:
        model = build(name, **_small(name))
        rows.append(
            (
                MODELS[name],
                [
                    growth(lambda n: conditioning(model, n), sizes),
                    growth(lambda n: querying(model, n, fixed), sizes),
                    growth(lambda m: querying(model, fixed, m), sizes),
                    growth(lambda n: updating(model, n, fixed), sizes),
                    growth(lambda u: updating(model, fixed, u), sizes),
                ],
            )
        )
    columns = [
        "model",
        "conditioning: context",
        "querying: context",
        "querying: targets",
        "updating: context",
        "updating: new points",
    ]
    caption = (
        f"Growth of the compiler's temporary memory from {sizes[0]} to {sizes[-1]} points, {fixed} of the others: constant, linear or "
        f"quadratic, the highest power with more than {_SHARE:.0%} of it in a fit; none: the model has no such phase. A "
        f"state of constant size takes its points in chunks of {CHUNK}; CMANP-AND predicts by blocks. The paper prints marks for "
        "these cells, which our copy of it does not show."
    )
    return Table("Memory complexity of neural processes (CMANP paper, Table 8)", columns, rows, caption)


def times(
    results: Sequence[Result], models: Sequence[str] = tuple(MODELS), few: int = 128, many: int = 1024, **fields
) -> Table:
    """How long every model takes to condition, query and update, for few and many points; measured now, from no results."""
    del results
    phases = {
        f"conditioning: {few}": lambda model: conditioning(model, few),
        f"{many}": lambda model: conditioning(model, many),
        f"querying: {few} of {few}": lambda model: querying(model, few, few),
        f"{few} of {many}": lambda model: querying(model, many, few),
        f"{many} of {few}": lambda model: querying(model, few, many),
        f"updating: {few} after {few}": lambda model: updating(model, few, few),
        f"{few} after {many}": lambda model: updating(model, many, few),
    }
    rows = []
    for name in models:
        model = build(name, **_some(name, eval_samples=4, samples=4, **fields))
        programs = [program_of(model) for program_of in phases.values()]
        rows.append((MODELS[name], [Cell(1e3 * seconds(program)) if program else "none" for program in programs]))
    caption = (
        f"Milliseconds of a call on one {jax.devices()[0].device_kind} device, median of {_TURNS}. Conditioning by context "
        "points; querying of targets of context points; updating by new points after context points. Published sizes, but 4 samples "
        "where a model draws some; none: the model has no such phase. CMANP-AND draws one sample by blocks when it is queried."
    )
    return Table(
        "Time of neural processes (beside the CMANP paper, Figures 3 and 8)", ["model", *phases], rows, caption
    )


def figure3(
    results: Sequence[Result], folder: Path, sizes: Sequence[int] = (64, 256, 1024, 4096), fixed: int = 64, **fields
) -> Path:
    """Memory of the joint models against targets, memory and time of the others against context (Figure 3)."""
    del results
    figure, axes = drawing.new_figure(1, 3, width=3.6, height=3.2)
    few = [m for m in sizes if m <= 1024]  # a joint covariance of more would not fit a small machine
    lines = []
    for name in ("tnp_nd", "lbanp_nd", "cmanp_and"):
        model = build(name, **fields)
        lines.append(Line(axes[0][0], name, "memory", few, [memory(querying(model, fixed, m)) for m in few]))
    for name in ("tnp_d", "eqtnp", "lbanp", "cmanp"):
        model = build(name, **fields)
        lines.append(Line(axes[0][1], name, "memory", sizes, [_whole_memory(model, n, fixed) for n in sizes]))
        lines.append(_timed(axes[0][2], name, sizes, lambda n: querying(model, n, fixed)))
    axes[0][0].set(xlabel="targets", title=f"joint prediction, {fixed} context points")
    axes[0][1].set(xlabel="context points", title=f"conditioning and {fixed} targets")
    axes[0][2].set(xlabel="context points", title=f"querying {fixed} targets")
    return _drawn(figure, axes[0], lines, folder / "figure3")


def figure8(
    results: Sequence[Result], folder: Path, sizes: Sequence[int] = (64, 256, 1024, 4096), fixed: int = 64, **fields
) -> Path:
    """Time of an update and of a query against the size of the context (Figure 8)."""
    del results
    figure, axes = drawing.new_figure(1, 2, width=4.2, height=3.2)
    models = {name: build(name, **fields) for name in ("tnp_d", "eqtnp", "lbanp", "cmanp")}
    lines = [
        _timed(axes[0][0], name, sizes, lambda n: updating(models[name], n, fixed))
        for name in ("eqtnp", "lbanp", "cmanp")
    ]
    lines.append(_timed(axes[0][0], "cmanp, anew", sizes, lambda n: conditioning(models["cmanp"], n + fixed)))
    lines += [_timed(axes[0][1], name, sizes, lambda n: querying(model, n, fixed)) for name, model in models.items()]
    axes[0][0].set(xlabel="context points before", title=f"update by {fixed} points")
    axes[0][1].set(xlabel="context points", title=f"query of {fixed} targets")
    return _drawn(figure, axes[0], lines, folder / "figure8")


def _whole_memory(model: Model, n: int, m: int) -> int:
    """Of conditioning or of querying, whichever needs more."""
    return max(memory(program) for program in (conditioning(model, n), querying(model, n, m)) if program)


def seconds(program: Program) -> float:
    """Time of a call, on arguments of ones."""
    arguments = jax.tree.map(_ones, program.arguments)
    return timing.seconds(
        timing.interleaved([functools.partial(jax.jit(program.run), *arguments)], _TURNS, _BUDGET_S), 0
    )


class Line(NamedTuple):
    """A line of a figure: bytes or seconds for each size, and what `device_peak` said after each was timed."""

    axis: Axes
    name: str  # of a model, or 'model, how'
    what: str  # memory or time
    sizes: Sequence[int]
    values: Sequence[float]
    peaks: Sequence[int | None] = ()


def _timed(axis: Axes, name: str, sizes: Sequence[int], program_of: Callable[[int], Program]) -> Line:
    measured = [(seconds(program_of(size)), device_peak()) for size in sizes]
    return Line(axis, name, "time", sizes, *zip(*measured))


def _drawn(figure, axes: Sequence[Axes], lines: Sequence[Line], path: Path) -> Path:
    rows = []
    for line in lines:
        model, _, how = line.name.partition(", ")
        label, factor = {"memory": ("temporary memory, MiB", 2**-20), "time": ("milliseconds", 1e3)}[line.what]
        shown = [factor * value for value in line.values]
        line.axis.plot(
            line.sizes,
            shown,
            "o--" if how else "o-",
            color=_COLOURS[model],
            markersize=3,
            label=MODELS[model] + (f", {how}" if how else ""),
        )
        line.axis.set(xscale="log", yscale="log", ylabel=label)
        peaks = ["" if peak is None else peak * 2**-20 for peak in line.peaks or [None] * len(shown)]
        rows += [(line.axis.get_title(), line.name, line.what, *row) for row in zip(line.sizes, shown, peaks)]
    for axis in axes:
        axis.legend(fontsize=8)
    figure.supxlabel("Above a thousand keys XLA may evaluate attention without holding all scores.", fontsize=8)
    drawing.save_numbers(
        path.with_suffix(".csv"), ["panel", "model", "what", "points", "MiB or ms", "device peak, MiB"], rows
    )
    return drawing.save(figure, path.with_suffix(".png"))


def _moments(prediction) -> tuple[jax.Array, jax.Array]:
    return prediction.mean, prediction.variance


def _small(name: str) -> dict:
    """Few layers and narrow ones, for programs that are compiled by the hundred."""
    sizes = dict(features=16, num_layers=2, num_latents=8, num_block_latents=8, latent=16, eval_samples=4, samples=4)
    if "features" not in NEURAL_PROCESSES[name].__dataclass_fields__:
        sizes |= dict(hidden=16, num_heads=2)
    return _some(name, **sizes)


def _some(name: str, **fields) -> dict:
    """Those of the fields that the model has."""
    return {key: value for key, value in fields.items() if key in NEURAL_PROCESSES[name].__dataclass_fields__}


def _points(n: int) -> Points:
    shape = jax.ShapeDtypeStruct((n, 1), np.float32)
    return Points(shape, shape)


def _ones(shape):
    return shape if isinstance(shape, jax.Array) else jnp.ones(shape.shape, shape.dtype)
