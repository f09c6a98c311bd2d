"""Tables of the memory and time of neural processes, from results (CMANP paper, Table 8)."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.optimize

from experiments.harness.results import Result, comparable, several
from experiments.harness.tables import MISSING, Cell, Table, measured
from kvq_jax.models import MODELS

CONFIGS = ("neural_processes/complexity",)
SCALES = {"memory": 2**-20, "time": 1e3}  # from bytes to MiB, from seconds to milliseconds
_MARKS = ("constant", "linear", "quadratic")
_SHARE = 0.4  # of the memory at the largest size: a term with less does not make a mark
_COLUMNS_8 = {
    "conditioning_context": "conditioning: context",
    "querying_context": "querying: context",
    "querying_points": "querying: targets",
    "updating_context": "updating: context",
    "updating_points": "updating: new points",
}
# Phase -> head of a column, by its numbers of context points and of others.
_HEADS = {
    "conditioning": "{context}",
    "querying": "{points} of {context}",
    "updating": "{points} after {context}",
    "anew": "{points} after {context}",
    "judging": "{points} of {context}",
    "training": "{points} of {context}",
}


def chosen_run(results: Sequence[Result], what: str) -> Result | None:
    """The run that measured `what`, of the most serious preset there is; None without one."""
    own = [result for result in results if result.name == CONFIGS[0] and result.axes["what"] == what]
    return comparable(own, CONFIGS[0], lambda result: what).get(what)


def models_of(run: Result) -> list[str]:
    """The models of a run, in the order of tables."""
    return [model for model in MODELS if model in run.config["models"]]


def number(run: Result, series: str, size: int, model: str) -> Cell | str:
    """A measured number in MiB or milliseconds; 'none': the model has no such phase; a dash: not in the series."""
    section = run.config["series"][series]
    if model not in section["models"]:
        return "-"
    if f"{series}/{model}" in run.content["facts"]["absent"]:
        return "none"
    return measured(run.metrics.get(f"{series}/{model}@{size}"), SCALES[section["quantity"]])


def growth(run: Result, series: str, model: str) -> str:
    """'constant', 'linear' or 'quadratic' in three or more sizes of a series; 'none' or 'missing' without them."""
    sizes = run.config["series"][series]["sizes"]
    cells = [number(run, series, size, model) for size in sizes]
    if isinstance(cells[0], str):
        return cells[0]
    return mark([cell.mean for cell in cells], sizes) if all(cell.known for cell in cells) else MISSING


def mark(values: Sequence[float], sizes: Sequence[int]) -> str:
    """The highest power of n with a share in a + b n + c n^2 at the largest n, fitted by non-negative least squares."""
    terms = np.vander(np.asarray(sizes) / sizes[-1], 3, increasing=True)
    shares, _ = scipy.optimize.nnls(terms, np.asarray(values, float))
    return _MARKS[max((power for power in (1, 2) if shares[power:].sum() > _SHARE * shares.sum()), default=0)]


def table8(results: Sequence[Result]) -> Table | None:
    """How the memory of every model grows with context, targets and new points; Tables 1 and 2 are rows of it."""
    run = chosen_run(results, "memory")
    if run is None:
        return None
    sizes, fixed = (run.config["series"]["querying_context"][key] for key in ("sizes", "fixed"))
    rows = [(MODELS[model].label, [growth(run, series, model) for series in _COLUMNS_8]) for model in models_of(run)]
    caption = (
        f"Growth of the compiler's temporary memory from {sizes[0]} to {sizes[-1]} points, {fixed} of the others: "
        f"constant, linear or quadratic, the highest power with more than {_SHARE:.0%} of it in a fit; none: the model "
        f"has no such phase. Preset {run.preset}; layers and widths do not change what grows. A state of constant size "
        f"takes its points in chunks of {run.config['measurement']['chunk']}; CMANP-AND predicts by blocks. The paper "
        "prints marks for these cells, which our copy of it does not show."
    )
    title = "Memory complexity of neural processes (CMANP paper, Table 8)"
    return Table(title, ["model", *_COLUMNS_8.values()], rows, caption, facts={"preset": run.preset})


def times(results: Sequence[Result]) -> Table | None:
    """How long every model takes to condition, query and update, for few and many points."""
    run = chosen_run(results, "times")
    if run is None:
        return None
    samples = several(
        section[field]
        for section in run.config["models"].values()
        for field in ("eval_samples", "samples")
        if field in section
    )
    caption = (
        f"Milliseconds of a call on {run.content['device']}, median of {run.config['measurement']['turns']}. "
        "Conditioning by context points; querying of targets of context points; updating by new points after context "
        f"points. Preset {run.preset}, {samples} samples where a model draws some; none: the model has no such phase. "
        "CMANP-AND draws one sample by blocks when it is queried."
    )
    title = "Time of neural processes (beside the CMANP paper, Figures 3 and 8)"
    return dataclasses.replace(run_table(run), title=title, caption=caption)


def run_table(run: Result) -> Table:
    """One run: all its numbers, a column for each size of each series."""
    columns = [(name, size) for name, series in run.config["series"].items() for size in series["sizes"]]
    rows = [(MODELS[model].label, [number(run, *column, model) for column in columns]) for model in models_of(run)]
    caption = f"Memory in MiB, time in milliseconds on {run.content['device']}; preset {run.preset}."
    heads = ["model", *(_head(run, *column) for column in columns)]
    title = f"Complexity of neural processes: {run.axes['what']}"
    return Table(title, heads, rows, caption, facts={"preset": run.preset})


def _head(run: Result, name: str, size: int) -> str:
    """'querying: 128 of 1024': the first word of a series, and its numbers of points."""
    series = run.config["series"][name]
    points = {"context": series["fixed"], "points": series["fixed"]} | {series["vary"]: size}
    other = "" if series["vary"] in ("context", "points") else f", {series['vary']} {size}"
    return f"{name.split('_')[0]}: {_HEADS[series['phase']].format(**points)}{other}"


TABLES = {"cmanp/table8": table8, "cmanp/times": times}
