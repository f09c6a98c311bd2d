"""The table of one run of the analyses of CMANP."""

import dataclasses
from collections.abc import Sequence

from experiments.harness.results import Result
from experiments.harness.tables import Table
from experiments.neural_processes.gp import tables as gp

CONFIGS = ("neural_processes/analyses",)


def run_table(results: Sequence[Result]) -> Table:
    """One run: the table of neural_processes/gp, and the likelihoods with blocks of each size."""
    (result,) = results
    table, evaluation = gp.run_table(results), result.config["evaluation"]
    rows = list(table.rows)
    for kernel in evaluation["kernels"]:
        for size in evaluation["block_sizes"]:
            target, gap = (gp.log_likelihood(result, f"{kernel}/{what}@{size}") for what in ("target", "gap_joint"))
            rows.append((f"{gp.KERNELS[kernel]}, blocks of {size}", [target, "", "", gap, ""]))
    return dataclasses.replace(table, rows=rows)
