"""Figures 6, 7 and 13 of the Intention paper: few-shot regression of sine curves and of pixels (Section 5.1)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.results import Result, spread, steps_by_name
from experiments.intention.few_shot_regression.tables import MODELS, few_shot_results, task_name
from experiments.regression import figures as drawn
from experiments.regression.figures import colour, draw_image, example_of, image_side, line
from experiments.regression.labels import PHASES, by_count, label


def figure6(results: Sequence[Result], folder: Path) -> Path:
    """Sine curves: the truth, the context and every model's prediction, by number of observations (Section 5.1)."""
    chosen = drawing.required(few_shot_results(results, "sine"), "Figure 6 needs results of intention/sine")
    counts = next(iter(chosen.values())).examples["counts"]
    figure, axes = drawing.new_figure(1, len(counts), sharex=True, sharey=True)
    rows = []
    for column, (axis, count) in enumerate(zip(axes[0], counts)):
        examples = {model: example_of(result.examples, 0, column) for model, result in chosen.items()}
        for model, example in examples.items():
            x, y = example["target_x"][:, 0], example["target_y"][:, 0]
            for phase in PHASES:
                prediction = example[f"{phase}/prediction"][:, 0]
                axis.plot(x, prediction, **line(model, phase))
                rows += [(model, phase, int(count), *map(float, numbers)) for numbers in zip(x, y, prediction)]
        drawn.draw_truth(axis, next(iter(examples.values())))
        axis.set(title=f"{count} observations", xlabel="x")
    axes[0][0].set_ylabel("y")
    _legend(figure, chosen, *drawn.SEEN)
    figure.suptitle(_heading("Sine regression", chosen))
    rows.sort(key=lambda row: (list(chosen).index(row[0]), PHASES.index(row[1])))
    columns = ["model", "phase", "observations", "x", "y", "prediction"]
    return drawing.save(figure, folder / "figure6.png", columns, rows)


def figure7(results: Sequence[Result], folder: Path) -> Path:
    """MSE over the number of observations on sine curves and on pixels, trained and untrained (Section 5.1)."""
    panels = {name: chosen for name in ("sine", "pixels") if (chosen := few_shot_results(results, name))}
    drawing.required(panels, "Figure 7 needs results of intention/sine or intention/pixels")
    figure, axes = drawing.new_figure(1, len(panels), width=4.4, height=3.6)
    rows, numbers = [], ["mean", "sem", "median", "n"]
    for axis, chosen in zip(axes[0], panels.values()):
        for model, result in chosen.items():
            drawn.draw_errors(axis, model, result)
            for phase in PHASES:
                which, curve = (task_name(result), result.preset, model, phase), by_count(result, phase)
                rows += [(*which, count, *(of[number] for number in numbers)) for count, of in curve.items()]
        first = next(iter(by_count(result, PHASES[0])))
        told = spread(chosen.values(), f"{PHASES[0]}/mse@{first}", "tasks")
        axis.set_title(f"{_heading(task_name(result), chosen)}\nmean over {told}", fontsize=9)
        missing = [label(model) for model in MODELS if model not in chosen]
        if missing:
            where = dict(transform=axis.transAxes, ha="right", va="top", fontsize=7)
            axis.text(0.98, 0.98, "missing: " + ", ".join(missing), **where)
    _legend(figure, MODELS, dict(color=drawing.FAINT, linewidth=6, label="standard error"))
    columns = ["task", "preset", "model", "phase", "observations", *numbers]
    return drawing.save(figure, folder / "figure7.png", columns, rows)


def figure13(results: Sequence[Result], folder: Path) -> Path:
    """Completed digits: for each number of observed pixels, the context and every model's image (Appendix 4.2)."""
    chosen = drawing.required(few_shot_results(results, "pixels"), "Figure 13 needs results of intention/pixels")
    first = next(iter(chosen.values()))
    counts, tasks = first.examples["counts"], min(2, len(first.examples["target_y"]))
    names = ["observed", *(f"{label(model)}\n{phase}" for model in chosen for phase in PHASES), "truth"]
    figure, axes = drawing.new_figure(tasks * len(counts), len(names), width=0.95, height=0.95)
    rows = []
    for number, panels in enumerate(axes):
        task, column = divmod(number, len(counts))
        examples = {model: example_of(result.examples, task, column) for model, result in chosen.items()}
        predictions = {
            (model, phase): example[f"{phase}/prediction"] for model, example in examples.items() for phase in PHASES
        }
        shown = examples[next(iter(chosen))]
        draw_image(panels[0], drawn.observed_image(shown))
        for axis, image in zip(panels[1:], [*predictions.values(), shown["target_y"]]):
            draw_image(axis, image.reshape(image_side(shown), -1))
        panels[0].set_ylabel(f"{counts[column]}", rotation=0, ha="right", va="center")
        for (model, phase), image in predictions.items():
            mse = float(np.mean((image - examples[model]["target_y"]) ** 2))
            rows.append((model, phase, task, int(counts[column]), mse))
    for axis, name in zip(axes[0], names):
        axis.set_title(name, fontsize=6.5)
    figure.suptitle(
        _heading(
            f"{task_name(first)} from a number of observed pixels; blue: not observed; values cut to [0, 1]", chosen
        ),
        fontsize=9,
    )
    rows.sort(key=lambda row: (list(chosen).index(row[0]), PHASES.index(row[1])))
    return drawing.save(figure, folder / "figure13.png", ["model", "phase", "image", "observations", "mse"], rows)


def _heading(text: str, chosen: Mapping[str, Result]) -> str:
    """What is shown, of which preset, and where a command line changed a number of steps how many each model had."""
    steps = steps_by_name({label(model): result for model, result in chosen.items()})
    told = f"\n{steps}" if any("train.steps" in result.overrides for result in chosen.values()) else ""
    return f"{text} ({drawing.EFFORTS[next(iter(chosen.values())).preset]}){told}"


def _legend(figure, models, *others: dict) -> None:
    looks = [dict(color=colour(model), label=label(model)) for model in models]
    looks += [dict(color=drawing.GREY, linestyle=drawn.LINES[phase], label=phase) for phase in PHASES]
    drawing.legend_below(figure, [*looks, *others])


FIGURES = {"intention/figure6": figure6, "intention/figure7": figure7, "intention/figure13": figure13}
