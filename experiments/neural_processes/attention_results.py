"""Results of configs/neural_processes/attention.py: ANP with each kind of attention, or with each operator."""

from collections.abc import Sequence

from experiments.harness.results import Result, comparable

CONFIG = "neural_processes/attention"
KINDS = ("uniform", "laplace", "dot_product", "multihead", "stacked_multihead")
_PROTOCOLS = ("slides", "code", "text")  # that of the slides, of functions alone, first


def of_anp(results: Sequence[Result], data: str, axis: str = "attention") -> dict[str, Result]:
    """'dot product' -> ANP's result on `data` with this attention, or operator (axis 'op'), in place of its own.

    All are of one protocol and, of functions, one head: see configs/neural_processes/gp.py.
    """
    (other,) = {"attention", "op"} - {axis}
    own = [result for result in results if result.name == CONFIG and result.axes["model"] == "anp"]
    own = [r for r in own if r.axes["data"] == data and r.axes[axis] != "own" and r.axes[other] == "own"]
    variant = lambda result: (_PROTOCOLS.index(result.axes["protocol"]), result.axes.get("std") == "same")
    cells = comparable(own, CONFIG, lambda result: result.axes[axis], variant=variant)
    order = {kind: number for number, kind in enumerate(KINDS)}
    return {cell.replace("_", " "): cells[cell] for cell in sorted(cells, key=lambda cell: (order.get(cell, 9), cell))}
