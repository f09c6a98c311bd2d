"""Which operators solve the tasks on sets: the Set Transformer with each of them where attention stood. Ours."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.harness.results import Result, comparable, facts, seeds_of, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.set_transformer.labels import images, in_words, label, own_op, variant
from kvq_jax.ops import OPERATORS

_MAX, _COUNTING, _CLUSTERING = (f"set_transformer/{name}" for name in ("max", "counting", "clustering"))
# Name of a config -> the model whose operator changes.
_MODEL = {_MAX: "sab_pma", _COUNTING: "sab_pma", _CLUSTERING: "isab16_pma"}


class Column(NamedTuple):
    """A metric of a config."""

    config: str
    metric: str
    smaller: bool = False  # whether smaller is better


COLUMNS = {
    "maximum, MAE": Column(_MAX, "mae", smaller=True),
    "counting, accuracy": Column(_COUNTING, "accuracy"),
    "clustering, LL0": Column(_CLUSTERING, "ll0"),
    "clustering, LL1": Column(_CLUSTERING, "ll1"),
    "clustering, ARI0": Column(_CLUSTERING, "ari0"),
}
OWN = "softmax"  # the operator of op=own


def operators(results: Sequence[Result]) -> Table | None:
    """Every operator but those of labels, by task. None without results."""
    found = {name: _by_op(results, name) for name in _MODEL}
    if not any(found.values()):
        return None
    ops = [name for name, operator in OPERATORS.items() if not operator.labels]
    columns = [
        mark_best([_cell(found[column.config].get(op), column.metric) for op in ops], column.smaller)
        for column in COLUMNS.values()
    ]
    caption = "; ".join(_told(name, own) for name, own in found.items() if own)
    every = [_facts(own) for own in found.values() if own]
    return Table(
        "Which operators solve tasks on sets",
        ["operator", *COLUMNS],
        [(op, list(cells)) for op, *cells in zip(ops, *columns)],
        f"{caption}. Mean ± standard error over sets, and over seeds where there are several; {BEST}. No paper has "
        "this table.",
        facts={fact: several(each[fact] for each in every) for fact in every[0]},
    )


def _by_op(results: Sequence[Result], name: str) -> dict[str, Result]:
    own = [result for result in results if result.name == name and result.axes["model"] == _MODEL[name]]
    return comparable(own, name, _op, images, variant)


def _op(result: Result) -> str:
    return OWN if own_op(result) else result.axes["op"]


def _cell(result: Result | None, metric: str) -> Cell:
    return measured(result and result.metrics[f"trained/{metric}"])


def _facts(own: Mapping[str, Result]) -> dict[str, str]:
    return facts(own.values(), next(iter(next(iter(own.values())).metrics)))


def _told(name: str, own: Mapping[str, Result]) -> str:
    first, runs = next(iter(own.values())), own.values()
    steps, told = several(run.steps for run in runs), _facts(own)
    setting = f"preset {first.preset}, {label(first)}, {in_words(first, 'form')}"
    return f"{name}: {setting}, {steps} steps, {seeds_of(told)}"


TABLES = {"set_transformer/operators": operators}
