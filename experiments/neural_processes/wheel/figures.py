"""Figures of the wheel bandit from results."""

from pathlib import Path

import numpy as np
from matplotlib.patches import Circle

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.neural_processes.wheel import acting, tables
from experiments.tasks.wheel import Wheel
from kvq_jax.models import MODELS

CONFIGS = tables.CONFIGS
_COLOURS = np.array([drawing.GREY, drawing.RED, drawing.BLUE, drawing.GREEN, drawing.AMBER])  # of the arms


def run_figure(result: Result, folder: Path) -> Path:
    """One run, its first example seed: above, the rounds in the colours of the arms pulled; below, the regret."""
    arrays, deltas = result.examples, result.config["evaluation"]["deltas"]
    wheel, arms = Wheel(arrays["x"][0], arrays["reward"][0], arrays["best"][0]), arrays["trained/prediction"][0]
    regret = np.asarray(acting.regret(wheel, arms)).cumsum(-1)
    figure, axes = drawing.new_figure(2, len(deltas), width=2.4, height=2.4)
    for column, delta in enumerate(deltas):
        above, below = axes[0][column], axes[1][column]
        above.scatter(*wheel.x[column].T, c=_COLOURS[arms[column]], s=2, linewidths=0)
        above.add_patch(Circle((0, 0), delta, fill=False, color=drawing.INK, linewidth=0.8))
        above.set(aspect="equal", xticks=[], yticks=[], title=f"delta = {delta:g}")
        above.grid(False)
        below.plot(np.arange(1, regret.shape[-1] + 1), regret[column], color=drawing.INK)
        below.set(xlabel="round")
    axes[1][0].set_ylabel("cumulative regret")
    name = MODELS[result.axes["model"]].label
    figure.suptitle(f"{name}, {drawing.EFFORTS[result.preset]}: the arms pulled (grey: arm 0), and what they cost")
    return drawing.save(figure, folder / "figure.png")
