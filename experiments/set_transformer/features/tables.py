"""The Set Transformer's table of clustering features of CIFAR-100, from results; and the table of one run."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.harness.results import Result, comparable, drawn, facts, seeds_by_name, steps_by_name
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.set_transformer.labels import described, images, label_of, own_op, variant
from experiments.set_transformer.paper_numbers import FEATURES, ORACLE, printed

CONFIG = "set_transformer/features"
CONFIGS = (CONFIG,)
_METRICS = ("ari0", "ari1")


def features(results: Sequence[Result], which: str = "seen") -> Table | None:
    """Every model: one preset, one kind of features, one form, test sets of one kind. None without results."""
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    own = [result for result in own if result.axes.get("images", "seen") == which]  # earlier results have no such axis
    found = comparable(own, CONFIG, lambda result: result.axes["model"], images, variant)
    return _table(found, [model for model in FEATURES if model != ORACLE]) if found else None


def run_table(result: Result) -> Table:
    """One run: its Rand indices beside the paper's."""
    return _table({result.axes["model"]: result}, [result.axes["model"]])


def _table(found: Mapping[str, Result], models: Sequence[str]) -> Table:
    columns, best = [], f"; {BEST}" if len(models) > 1 else ""
    for place, metric in enumerate(_METRICS):
        cells = [_cell(found.get(model), metric) for model in models]
        columns.append(mark_best(cells, smaller_is_better=False) if best else cells)
        columns.append([printed(FEATURES[model][place]) for model in models])
    own = list(found.values())
    first, told = own[0], facts(own, "trained/ari0")
    oracle, em = (_cell(first, f"ari_{name}") for name in ("oracle", "em"))
    rows = [
        ("the moments of the classes", [oracle, "(none)", "", ""]),
        ("EM, scikit-learn", [em, printed(FEATURES[ORACLE][0]), "", ""]),
        *((label_of(model), list(cells)) for model, *cells in zip(models, *columns)),
    ]
    task, known = first.config["task"], first.content["facts"]
    by_name, batch = {label_of(model): run for model, run in found.items()}, first.config["train"]["batch_size"]
    starts, sets = first.config["evaluation"]["em_starts"], first.metrics["trained/ari_em"]["n"]
    caption = (
        f"{described(first)}; {known['data']}, {_encoder(known)}; {task['min_size']} to {task['max_size']} images of "
        f"{task['clusters']} classes; {steps_by_name(by_name)} of {batch} sets. Adjusted Rand index of the network (0) "
        f"and after one step of EM (1): mean over {seeds_by_name(by_name)} ± standard error over {drawn(told)} sets"
        f"{best}. The first row is told the classes, and takes diagonal Gaussians of their moments; EM starts {starts} "
        f"times from k-means++, on {sets} of the sets.{_seen(first)} The paper's are of features of a VGG trained on "
        "CIFAR-100."
    )
    columns = ["model", "ARI0", "the paper's", "ARI1", "the paper's ARI1"]
    unseen = ", images that the encoder has not seen" if first.config["data"].get("test_images") == "test" else ""
    return Table(f"Amortised clustering of features{unseen}", columns, rows, caption, facts=told)


def _encoder(known: Mapping[str, Any]) -> str:
    """What made the features, and how often it is right where it was trained on the classes."""
    trained = known.get("trained")
    right = f", right on {trained['test_accuracy']:.1%} of the test images" if trained else ""
    return f"{known['features']}{right}"


def _seen(result: Result) -> str:
    """Whose images the test sets are, where an encoder was told classes."""
    if "trained" not in result.content["facts"]:
        return ""
    if result.config["data"]["test_images"] == "train":
        return " All sets are of training images, whose classes the encoder was told, as in the paper."
    return " Test sets are of test images, of which nobody was told a class."


def _cell(result: Result | None, metric: str) -> Cell:
    return measured(result and result.metrics[f"trained/{metric}"], decimals=4)


TABLES = {
    "set_transformer/features": features,
    "set_transformer/features_unseen": functools.partial(features, which="unseen"),
}
