"""The table of the time of blocks of the Set Transformer by the number of elements, and how their numbers grow."""

import math
from collections.abc import Sequence

from experiments.harness.results import Result, comparable
from experiments.harness.tables import MISSING, Cell, Table, measured
from experiments.set_transformer.labels import described, own_op, variant

CONFIG = "set_transformer/complexity"
CONFIGS = (CONFIG,)
SCALES = {"time": 1e3, "operations": 1e-9, "memory": 2**-20}  # to milliseconds, 10^9 operations, MiB
# Elements from which growth is read: below them what does not grow with n shows, and from about a thousand XLA hands
# attention on a CPU to another library as a whole, which takes longer.
_FIRST = 2000
CLOCKS = {"wall": "milliseconds", "processor": "milliseconds of the processor"}  # clock -> what it counts
_LABELS = {
    "sab": lambda section: "SAB",
    "isab": lambda section: f"ISAB ({section['num_inducing']})",
    "pma": lambda section: f"PMA ({section['num_seeds']})",
}


def complexity(results: Sequence[Result]) -> Table | None:
    """The table of the run that measured the published attention; None without one."""
    run = chosen_run(results)
    return run_table(run) if run else None


def chosen_run(results: Sequence[Result]) -> Result | None:
    """The run with the published attention, of the most serious preset there is; None without one."""
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    return comparable(own, CONFIG, lambda result: "", variant=variant).get("")


def blocks_of(run: Result) -> list[str]:
    """The blocks of a run, in the order of the paper."""
    order = list(_LABELS)
    return sorted(run.config["blocks"], key=lambda block: order.index(run.config["blocks"][block]["name"]))


def label_of(run: Result, block: str) -> str:
    """'ISAB (16)': a block with the number that its time depends on."""
    section = run.config["blocks"][block]
    return _LABELS[section["name"]](section)


def number(run: Result, quantity: str, phase: str, block: str, size: int) -> Cell:
    """A measured number in the unit of SCALES; missing where it did not fit in memory."""
    return measured(run.metrics.get(f"{quantity}/{phase}/{block}@{size}"), SCALES[quantity])


def ends(run: Result) -> tuple[int, int]:
    """The sizes between which growth is read: _FIRST elements, or the next that there is, and the last."""
    *before, last = run.config["measurement"]["sizes"]
    return min([size for size in before if size >= _FIRST] or before[-1:], default=last), last


def power(run: Result, quantity: str, phase: str, block: str) -> float | None:
    """p of a growth with n^p between `ends`; None where a number is missing, or is 0."""
    first, last = ends(run)
    cells = [number(run, quantity, phase, block, size) for size in (first, last)]
    if first == last or not all(cell.known and cell.mean > 0 for cell in cells):
        return None
    return math.log(cells[1].mean / cells[0].mean) / math.log(last / first)


def run_table(run: Result) -> Table:
    """One run: milliseconds at each size, and the power of n with which each quantity grows."""
    how = run.config["measurement"]
    rows = []
    for phase in how["phases"]:
        for block in blocks_of(run):
            times = [number(run, "time", phase, block, size) for size in how["sizes"]]
            powers = [power(run, quantity, phase, block) for quantity in SCALES]
            powers = [MISSING if found is None else Cell(found, decimals=2, run=run) for found in powers]
            rows.append((f"{label_of(run, block)}, {phase}", [*times, *powers]))
    first, last = ends(run)
    shape = run.config["blocks"][blocks_of(run)[0]]
    caption = (
        f"{CLOCKS[how['clock']].capitalize()} of one set of n elements of width {how['features']}, by blocks of width "
        f"{shape['dim']} with {shape['num_heads']} heads on {run.content['device']}, median of {how['turns']}. "
        f"{described(run)}. Beside the times p of a growth with n^p from n = {first} to {last}, of the time, the "
        "operations that the compiler counts, and the memory that the compiled program needs beside its arguments and "
        "its result. 'gradient' is that of the parameters, with the pass forward. Missing: it did not fit in memory."
    )
    heads = ["block", *(f"n = {size}" for size in how["sizes"]), *(f"p of {name}" for name in SCALES)]
    title = "Blocks of the Set Transformer by the number of elements"
    return Table(title, heads, rows, caption, facts={"preset": run.preset})


TABLES = {"set_transformer/complexity": complexity}
