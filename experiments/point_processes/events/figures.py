"""Pictures of marked event sequences from results: intensities, calibration, likelihood by the length of history."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.harness import drawing
from experiments.harness.experiment import DATA
from experiments.harness.results import Result, several
from experiments.point_processes.events import measures, tables
from experiments.point_processes.labels import LOOKS, TRUTH
from kvq_jax.models import EVENT_MODELS

CONFIGS = tables.CONFIGS
_SHOWN = 60.0  # of the time axis: gaps whose mean takes so many of them are drawn
_LEAST_SEQUENCES = 8  # that a mean by the length of history is over


def run_figure(result: Result, folder: Path) -> Path:
    """One run: its intensity along a test sequence, its calibration, and its likelihood by the length of history."""
    model = result.axes["model"]
    figure, (axes,) = drawing.new_figure(1, 3, width=3.6, height=2.8)
    own = _intensity(result)
    _draw_intensity(axes[0], *own, _top([own]))
    axes[0].set(xlabel=f"time, {result.content['facts']['unit']}", ylabel="intensity")
    _draw_calibration(axes[1], {model: result})
    _draw_history(axes[2], {model: result})
    place = result.axes["data"]
    heading = f"{EVENT_MODELS[model].label} on {tables.PLACES[place]}"
    figure.suptitle(f"{heading}, {_sequences([result])} ({drawing.EFFORTS[result.preset]})")
    _explain(figure, {model: result}, [_PROCESS] * ("oracle_time" in result.examples) + [_BAND])
    return drawing.save(figure, folder / "figure.png")


def intensities(results: Sequence[Result], folder: Path) -> Path:
    """Every model on one test sequence of each process (rows), with the true intensity."""
    cells = _required(results, "events/intensities", tables.PROCESSES)
    places = [place for place in tables.PROCESSES if any(place == its for _, its in cells)]
    models = [model for model in EVENT_MODELS if any(model == its for its, _ in cells)]
    figure, axes = drawing.new_figure(len(places), len(models), width=2.6, height=2.1, sharex="row", sharey="row")
    rows = []
    for line, place in zip(axes, places):
        own = {model: _intensity(cells[model, place]) for model in models if (model, place) in cells}
        top = _top(own.values())
        for axis, model in zip(line, models):
            if model in own:
                _draw_intensity(axis, *own[model], top)
                time, curves, _ = own[model]
                rows += [(place, model, *map(float, numbers)) for numbers in zip(time, *curves.values())]
            if line is axes[0]:
                axis.set_title(EVENT_MODELS[model].label)
            axis.set_ylabel(f"{tables.PROCESSES[place]}\nintensity" if axis is line[0] else "")
            axis.set_xlabel("time" if line is axes[-1] else "")
    preset = next(iter(cells.values())).preset
    figure.suptitle(f"Intensity before each moment, a test sequence of each process ({drawing.EFFORTS[preset]})")
    looks = [dict(color=drawing.RED, label="model"), TRUTH | dict(label="the process itself")]
    drawing.legend_below(figure, [*looks, dict(color=drawing.GREY, marker="|", linestyle="none", label="event")])
    columns = ["data", "model", "time", "intensity", "truth"]
    return drawing.save(figure, folder / "intensities.png", columns, rows)


def calibration(results: Sequence[Result], folder: Path) -> Path:
    """How often a forecast quantile holds the gap, less how often it should, of every model on each set of data."""
    title = "Calibration of the forecasts of the next time"
    return _by_data(results, folder, "calibration", _draw_calibration, title, [_BAND])


def history(results: Sequence[Result], folder: Path) -> Path:
    """Negative log-likelihood of the next time by the number of events before it, on each set of data."""
    title = "Forecasts of the next time by the length of history"
    return _by_data(results, folder, "history", _draw_history, title, [_PROCESS])


FIGURES = {"events/intensities": intensities, "events/calibration": calibration, "events/history": history}


_PROCESS = TRUTH | dict(label="the process itself")
_BAND = dict(color=drawing.FAINT, linewidth=6, label="95 of 100 calibrated samples of this size")


def _by_data(
    results: Sequence[Result], folder: Path, name: str, draw: Callable, title: str, others: Sequence[Mapping]
) -> Path:
    cells = _required(results, f"events/{name}", tables.PLACES)
    places = [place for place in tables.PLACES if any(place == its for _, its in cells)]
    figure, axes = drawing.new_figure(-(-len(places) // 3), min(3, len(places)), width=3.4, height=2.5)
    rows, all_models = [], {}
    for axis, place in zip((axis for line in axes for axis in line), places):
        own = {model: cells[model, place] for model in EVENT_MODELS if (model, place) in cells}
        all_models |= own
        rows += [(place, *row) for row in draw(axis, own)]
        axis.set_title(tables.PLACES[place])
    drawing.hide_after(len(places), axes)
    preset = next(iter(cells.values())).preset
    figure.suptitle(f"{title}, {_sequences(cells.values())} of each set of data ({drawing.EFFORTS[preset]})")
    _explain(figure, all_models, others)
    return drawing.save(figure, folder / f"{name}.png", ["data", "model", "x", "y"], rows)


def _sequences(results: Iterable[Result]) -> str:
    """'64 test sequences': how many a picture is made of, which are fewer than a table is."""
    return f"{several(len(result.examples['mask']) for result in results)} test sequences"


def _required(results: Sequence[Result], figure: str, places: Mapping[str, str]) -> dict[tuple[str, str], Result]:
    return drawing.required(tables.chosen_results(results, tuple(places)), f"{figure} needs results of {tables.CONFIG}")


Intensity = tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]


def _intensity(result: Result) -> Intensity:
    """Of the first sequence: times, the forecast intensity at them, and the true one where it is known; its events."""
    arrays = result.examples
    gap = arrays["gap"] if "gap" in arrays else arrays[f"{DATA}gap"]
    happened = np.cumsum(gap)[arrays["mask"][0]]
    time = arrays["time"]
    end = min(time[-1], _SHOWN * np.mean(np.diff(happened, prepend=0.0))) if len(happened) else time[-1]
    names = {"model": "trained/prediction_intensity", "truth": "oracle_intensity"}
    curves = {what: arrays[name][time <= end] for what, name in names.items() if name in arrays}
    return time[time <= end], curves, happened[happened <= end]


def _top(drawn: Iterable[Intensity]) -> float:
    return max(curve.max() for _, curves, _ in drawn for curve in curves.values())


def _draw_intensity(
    axis: Axes, time: np.ndarray, curves: Mapping[str, np.ndarray], events: np.ndarray, top: float
) -> None:
    """The forecast intensity, red, with the true one where it is known, and the events; the axis ends above `top`."""
    axis.plot(time, curves["model"], color=drawing.RED, linewidth=1.2)
    if "truth" in curves:
        axis.plot(time, curves["truth"], **TRUTH)
    axis.set_ylim(-0.12 * top, 1.05 * top)
    axis.plot(events, np.full(len(events), -0.06 * top), "|", color=drawing.GREY, markersize=6)


def _draw_calibration(axis: Axes, cells: Mapping[str, Result]) -> list[tuple]:
    """The distribution of F(gap) less the uniform one, by the level; grey: the band of calibrated forecasts."""
    rows = []
    level = np.linspace(0, 1, 101)
    counted = {model: result.examples["trained/prediction_pit"] for model, result in cells.items()}
    bound = measures.bound(min(counts.sum() for counts in counted.values()))
    axis.fill_between([0, 1], -bound, bound, color=drawing.FAINT, linewidth=0)
    for model, counts in counted.items():
        below = np.append(0.0, np.cumsum(counts) / max(counts.sum(), 1))
        found = np.interp(level, np.linspace(0, 1, len(below)), below) - level
        axis.plot(level, found, **LOOKS[model])
        rows += [(model, float(x), float(y)) for x, y in zip(level, found)]
    axis.set(xlabel="level of the forecast quantile", ylabel="share below, less the level")
    return rows


def _draw_history(axis: Axes, cells: Mapping[str, Result]) -> list[tuple]:
    """Mean negative log-likelihood of the time of event i + 1 by i, where enough sequences have one, smoothed."""
    rows, oracle = [], None
    for model, result in cells.items():
        arrays = result.examples
        rows += _history_line(axis, model, arrays["trained/prediction_time"], arrays["mask"], LOOKS[model])
        if "oracle_time" in arrays:
            oracle = arrays["oracle_time"], arrays["mask"]
    if oracle:
        rows += _history_line(axis, "process", *oracle, TRUTH)
    axis.set(xlabel="events before", ylabel="NLL of the next time", xscale="symlog")
    axis.set_xlim(left=0)
    drawing.plain_ticks(axis.xaxis, [tick for tick in (0, 1, 3, 10, 30, 100, 300) if tick <= axis.get_xlim()[1]])
    return rows


def _history_line(axis: Axes, name: str, found: np.ndarray, mask: np.ndarray, look: Mapping) -> list[tuple]:
    """A mean over sequences, and over bins of events that grow with their place: 0, 1, 2-3, 4-7, ..."""
    edges = [0, *(2**power for power in range(12) if 2**power < mask.shape[1]), mask.shape[1]]
    x, y = [], []
    for low, high in zip(edges, edges[1:]):
        inside = mask[:, low:high]
        if inside.any(1).sum() >= min(_LEAST_SEQUENCES, len(mask)):
            x.append((low + high - 1) / 2)
            y.append(-float(found[:, low:high][inside].mean()))
    axis.plot(x, y, marker="o", markersize=2.5, **look)
    return list(zip([name] * len(x), x, y))


def _explain(figure, cells: Mapping[str, Result], others: Sequence[Mapping]) -> None:
    looks = [LOOKS[model] | dict(label=EVENT_MODELS[model].label) for model in EVENT_MODELS if model in cells]
    drawing.legend_below(figure, [*looks, *others])
