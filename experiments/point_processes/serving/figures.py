"""What an event costs by the number of events before it, drawn from results."""

from collections.abc import Sequence
from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.point_processes.labels import LOOKS
from experiments.point_processes.serving import tables
from kvq_jax.models import EVENT_MODELS

CONFIGS = tables.CONFIGS


def serving(results: Sequence[Result], folder: Path) -> Path:
    """A panel for each quantity, a line for each model."""
    needs = f"events/serving needs a result of {CONFIGS[0]}"
    return _drawn(drawing.required(tables.chosen_run(results), needs), folder / "serving.png")


def run_figure(run: Result, folder: Path) -> Path:
    """One run, as `serving`."""
    return _drawn(run, folder / "figure.png")


FIGURES = {"events/serving": serving}


def _drawn(run: Result, path: Path) -> Path:
    sizes, models = run.config["measurement"]["events"], tables.models_of(run)
    figure, (axes,) = drawing.new_figure(1, len(tables.QUANTITIES), width=3.1, height=2.7)
    rows = []
    for axis, (what, (name, unit, _)) in zip(axes, tables.QUANTITIES.items()):
        for model in models:
            found = [tables.number(run, what, model, size).mean for size in sizes]
            axis.plot(sizes, found, marker="o", markersize=3, **LOOKS[model])
            rows += [(what, model, size, value) for size, value in zip(sizes, found)]
        axis.set(title=name, xlabel="events before", ylabel=unit, xscale="log", yscale="log")
        drawing.plain_ticks(axis.xaxis, sizes)
        drawing.plain_ticks(axis.yaxis)
    drawing.legend_below(figure, [LOOKS[model] | dict(label=EVENT_MODELS[model].label) for model in models])
    return drawing.save(figure, path, ["what", "model", "events", "KiB, ms or MiB"], rows)
