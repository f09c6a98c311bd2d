"""The table of one run of the analyses of CMANP, and the results that its figures show beside each other."""

import dataclasses
import statistics
from collections.abc import Sequence

from experiments.harness.results import Result
from experiments.harness.tables import Table
from experiments.neural_processes.gp import tables as gp
from kvq_jax.models import MODELS

CONFIGS = ("neural_processes/analyses",)
SIZES = ("latents", "block_latents", "width")  # the axes that hold sizes


def run_table(result: Result) -> Table:
    """One run: the table of neural_processes/gp, and the likelihoods with blocks of each size."""
    table, evaluation = gp.run_table(result), result.config["evaluation"]
    rows = list(table.rows)
    for kernel in evaluation["kernels"]:
        for size in evaluation["block_sizes"]:
            target, gap = (gp.log_likelihood(result, f"{kernel}/{what}@{size}") for what in ("target", "gap_joint"))
            rows.append((f"{gp.KERNELS[kernel]}, blocks of {size}", [target, "", gap, ""]))
    return dataclasses.replace(table, rows=rows)


def curve(results: Sequence[Result], *varied: str) -> dict[int, Result]:
    """Size -> the CMANP with it on all the axes `varied`, its other sizes as in most cells; sizes increasing."""
    base = {"model": "cmanp", "study": "sizes"} | _base_sizes(results)
    found = {}
    for result in results:
        sizes = {result.axes[axis] for axis in varied}
        if len(sizes) == 1 and all(result.axes[axis] == value for axis, value in base.items() if axis not in varied):
            found[int(sizes.pop())] = result
    return dict(sorted(found.items()))


def study_of_blocks(results: Sequence[Result]) -> dict[str, Result]:
    """Model -> its result in the study of blocks."""
    base = {"study": "blocks"} | _base_sizes(results)
    found = {result.axes["model"]: result for result in results if base.items() <= result.axes.items()}
    return {model: found[model] for model in MODELS if model in found}


def _base_sizes(results: Sequence[Result]) -> dict[str, str]:
    return {axis: statistics.mode(result.axes[axis] for result in results) for axis in SIZES}
