"""Table 2 of the Set Transformer, counting unique characters, with its supplement; and the table of one run."""

from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, drawn, facts, overridden, seeds_by_name, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.set_transformer.labels import described, images, label_of, own_op, variant
from experiments.set_transformer.paper_numbers import COUNTING, printed

CONFIG = "set_transformer/counting"
CONFIGS = (CONFIG,)


def table2(results: Sequence[Result]) -> Table | None:
    """Every model of Table 2 and its supplement, then those of Figure 3 that there are. None without results."""
    found = by_model(results)
    return _table(found, [*COUNTING, *(model for model in found if model not in COUNTING)]) if found else None


def run_table(result: Result) -> Table:
    """One run: its accuracy beside the paper's."""
    return _table({result.axes["model"]: result}, [result.axes["model"]])


def by_model(results: Sequence[Result]) -> dict[str, Result]:
    """Model -> result with the attention that it is published with: one preset, one kind of images, one form."""
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    return comparable(own, CONFIG, lambda result: result.axes["model"], images, variant)


def accuracy(result: Result | None) -> Cell:
    """The share of sets whose characters a run counts right, with its standard error over them."""
    return measured(result and result.metrics["trained/accuracy"], decimals=4)


def _table(found: Mapping[str, Result], models: Sequence[str]) -> Table:
    cells = [accuracy(found.get(model)) for model in models]
    likelihoods = [
        measured(found[model].metrics["trained/log_likelihood"]) if model in found else Cell() for model in models
    ]
    best = ""
    if len(models) > 1:
        cells, likelihoods, best = mark_best(cells, False), mark_best(likelihoods, False), f"; {BEST}"
    rows = [
        (label_of(model), [own, printed(COUNTING.get(model)), likelihood])
        for model, own, likelihood in zip(models, cells, likelihoods)
    ]
    own = list(found.values())
    first, told = own[0], facts(own, "trained/accuracy")
    task, characters = first.config["task"], first.content["facts"]["characters"]
    turned = ", training characters turned by 90 degrees among them" if first.config["data"]["rotations"] else ""
    steps, batch = several(result.steps for result in own), first.config["train"]["batch_size"]
    by_name = {label_of(model): result for model, result in found.items()}
    seeds = seeds_by_name(by_name)
    caption = (
        f"{described(first)}; {first.content['facts']['data']} at {first.config['data']['size']} pixels, "
        f"{characters['train']} characters to train, {characters['validation']} to validate, {characters['test']} to "
        f"test{turned}; sets of {task['min_size']} to {task['max_size']} images; {steps} steps ('m of n': the weights "
        f"are those of step m, of the best validation loss) of {batch} sets{overridden(by_name)}. Mean over {seeds} ± "
        f"standard error over {drawn(told)} sets{best}. Accuracy: the share of sets whose number of characters is the "
        "mode of the predicted Poisson distribution; log-likelihood: of that number."
    )
    columns = ["model", "accuracy", "the paper's", "log-likelihood"]
    return Table("Counting unique characters", columns, rows, caption, facts=told)


TABLES = {"set_transformer/table2": table2}
