"""Table 5 of the Set Transformer, set anomalies, from results; and the table of one run."""

from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, drawn, facts, seeds_of, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.set_transformer.labels import described, images, label_of, own_op, variant
from experiments.set_transformer.paper_numbers import ANOMALY, CHANCE, printed

CONFIG = "set_transformer/anomaly"
CONFIGS = (CONFIG,)
_AREAS = ("auroc", "aupr")


def anomaly(results: Sequence[Result]) -> Table | None:
    """Every model: one preset, one kind of images, one form. None without results."""
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    found = comparable(own, CONFIG, lambda result: result.axes["model"], images, variant)
    return _table(found, [*ANOMALY, *(model for model in found if model not in ANOMALY)]) if found else None


def run_table(result: Result) -> Table:
    """One run: its areas beside the paper's."""
    return _table({result.axes["model"]: result}, [result.axes["model"]])


def _table(found: Mapping[str, Result], models: Sequence[str]) -> Table:
    columns, best = [], f"; {BEST}" if len(models) > 1 else ""
    for area in _AREAS:
        for metric in (area, f"{area}_of_set"):
            cells = [_cell(found.get(model), metric) for model in models]
            columns.append(mark_best(cells, smaller_is_better=False) if best else cells)
        columns.append([printed(ANOMALY.get(model, {}).get(area)) for model in models])
    columns.append(
        [measured(found[model].metrics["trained/accuracy"], 100) if model in found else Cell() for model in models]
    )
    own = list(found.values())
    first, told = own[0], facts(own, "trained/accuracy")
    size = first.config["task"]["set_size"]
    expected = {"auroc": (0.5, 0.5), "aupr": (1 / size, sum(1 / rank for rank in range(1, size + 1)) / size)}
    chance = [cell for area in _AREAS for cell in (*(Cell(mean, decimals=4) for mean in expected[area]), CHANCE[area])]
    rows = [
        ("chance", [*chance, Cell(100 / size)]),
        *((label_of(model), list(cells)) for model, *cells in zip(models, *columns)),
    ]
    steps, batch = several(result.steps for result in own), first.config["train"]["batch_size"]
    shared, together = first.config["task"]["shared"], first.config["evaluation"]["together"]
    curves = facts(own, "trained/auroc")["n"]
    caption = (
        f"{described(first)}; {first.content['facts']['data']} at {first.config['data']['size']} pixels; sets of "
        f"{size} images, all but one with {shared} attribute(s) in common; {steps} steps ('m of n': the weights are "
        f"those of step m, of the best validation loss) of {batch} sets. Areas under the receiver operating "
        f"characteristic (AUROC) and the curve of precision and recall (AUPR) over the images of {together} sets at "
        "once, and of each set by itself (of a set), and the share of sets whose anomaly is found, in percent: mean "
        f"over {seeds_of(told)} ± standard error over {drawn(told)} sets, for areas over several sets over their "
        f"{curves} curves{best}. The paper's numbers are of 200 sets of faces of CelebA with two attributes; it does "
        "not say whether its areas are of a set or of all."
    )
    heads = ["AUROC", "AUROC of a set", "the paper's", "AUPR", "AUPR of a set", "the paper's AUPR", "found, %"]
    return Table("Set anomalies", ["model", *heads], rows, caption, facts=told)


def _cell(result: Result | None, metric: str) -> Cell:
    return measured(result and result.metrics.get(f"trained/{metric}"), decimals=4)  # older results lack some


TABLES = {"set_transformer/anomaly": anomaly}
