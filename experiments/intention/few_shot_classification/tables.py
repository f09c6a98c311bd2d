"""Tables 1 and 2 of the Intention paper: accuracy of few-shot classification, ours beside the paper's."""

import functools
from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, drawn, facts, seeds_of
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from kvq_jax.models import CLASSIFIERS

EXPERIMENT = "intention/few_shot_classification"
CONFIGS = (EXPERIMENT,)
# The encoders of each table, the paper's own first: it does not say which ResNet-12 it is.
ENCODERS = {"table1": ("conv4",), "table2": ("resnet12", "resnet12_512")}
ENCODER_NAMES = {"conv4": "the encoder of matching networks", "resnet12": "a ResNet-12", "resnet12_512": "a ResNet-12"}
SECOND_ORDER = "maml_second_order"  # a model of its own in tables

Row = tuple[str, str, str, str]  # model, covariance, kernel, op


def _row(model: str, covariance: str = "ls_svm", kernel: str = "linear", op: str = "own") -> Row:
    return model, covariance, kernel, op


INTENTION, KERNEL = _row("intention"), _row("intention", kernel="gaussian")
WITHIN_CLASS = _row("intention", covariance="within_class")
# Rows in the order of tables, and names that are not those of models and axes.
ORDER = (
    *map(_row, ("attention", "neural_process", "maml", SECOND_ORDER, "prototypes")),
    *(WITHIN_CLASS, INTENTION, KERNEL),
)
NAMES = {
    _row(SECOND_ORDER): "MAML, second order",
    WITHIN_CLASS: "Intention, within-class scatter (the paper's QDA)",
    INTENTION: "Intention",
    KERNEL: "Intention, Gaussian kernel",
}
# Table -> row -> the paper's accuracy and 95 % interval in percent; None for a row that only our table has.
PAPER = {
    "table1": {
        _row("attention"): (54.26, 0.51),
        _row("neural_process"): (60.10, 0.51),
        _row("maml"): (63.15, 0.91),
        _row("prototypes"): None,
        INTENTION: (67.30, 0.51),
    },
    "table2": {WITHIN_CLASS: (66.27, 5.81), INTENTION: (70.05, 0.51), KERNEL: (70.43, 0.52)},
}
_NOTES = {
    "table1": "It quotes first-order MAML from Finn et al. 2017, who have 84x84 pixels, 64 classes to train on, 20 to "
    "test, and 32 filters; second-order MAML has 63.11 ± 0.92 there. It has no prototypical networks.",
    "table2": "The ± 5.81 of the paper's QDA is too wide for the mean of 1000 episodes: a standard deviation, "
    "or a misprint.",
}
# Sources of images, the paper's first.
_SOURCES = ("mini_imagenet_80", "mini_imagenet", "cifar_fs", "omniglot", "folders", "digits")
_SIZE = 28  # of the paper's images
_EPISODE = {"way": 5, "shot": 5, "query": 15}  # the paper's


def row_of(result: Result) -> Row:
    """The row of a table that a run fills."""
    model, *others = (result.axes[axis] for axis in ("model", "covariance", "kernel", "op"))
    second_order = model == "maml" and not result.config["model"]["first_order"]
    return _row(SECOND_ORDER if second_order else model, *others)


def row_name(row: Row) -> str:
    """The name in NAMES, else that of the model, with the axes that have other values than usual."""
    if row in NAMES:
        return NAMES[row]
    model, covariance, kernel, op = row
    name = CLASSIFIERS[model].label if model in CLASSIFIERS else model
    own = {"covariance": covariance} if model == "intention" else {}
    own |= {axis: value for axis, value, usual in (("kernel", kernel, "linear"), ("op", op, "own")) if value != usual}
    return ", ".join([name, *(f"{axis} {value}" for axis, value in own.items())])


def chosen(results: Sequence[Result], encoders: Sequence[str]) -> dict[tuple[Row, str], Result]:
    """(row, latent) -> result: one preset, one kind of data and episodes, and the first of `encoders` that has any."""
    own = [result for result in results if result.name == EXPERIMENT and result.axes["encoder"] in encoders]

    def data(result: Result) -> tuple:
        return _SOURCES.index(result.config["data"]["source"]), result.content["facts"]["data"]

    def variant(result: Result) -> tuple:
        config, size = result.config, result.config["data"]["size"]
        statistics, episode = config["encoder"]["statistics"], [config["task"][name] for name in _EPISODE]
        others = [number != usual for number, usual in zip(episode, _EPISODE.values())]
        usual = statistics != "transductive", size != _SIZE, *others
        return encoders.index(result.axes["encoder"]), *usual, statistics, size, *episode

    return comparable(own, EXPERIMENT, lambda result: (row_of(result), result.axes["latent"]), data, variant)


def run_table(result: Result) -> Table:
    """One run: its accuracy beside the paper's."""
    row, encoder = row_of(result), result.axes["encoder"]
    paper = next((PAPER[number] for number, encoders in ENCODERS.items() if encoder in encoders), {})
    return _accuracies({row: result}, [row], paper, "")


def percent(result: Result) -> Cell:
    """Accuracy in percent. Its error is half the width of the 95 % interval of the mean over episodes."""
    return measured(result.metrics["trained/accuracy"], scale=100, errors=1.96)


def described(result: Result) -> str:
    """What a run has seen and with which encoder: 'mini-ImageNet at 28x28, encoder widths 64-64-64-64, ...'."""
    encoder, size = result.config["encoder"], result.config["data"]["size"]
    widths = "-".join(map(str, encoder["features"]))
    images = f"{result.content['facts']['data']} at {size}x{size}"
    return f"{images}, encoder widths {widths}, {encoder['statistics']} batch statistics"


def encoder_name(result: Result) -> str:
    """The encoder in the words of captions."""
    return ENCODER_NAMES.get(result.axes["encoder"], result.axes["encoder"])


def _table(number: str, results: Sequence[Result]) -> Table | None:
    """'table1' or 'table2' from all results; None where there are none of its own."""
    own = [result for result in results if result.name == EXPERIMENT and result.axes["latent"] == "base"]
    by_row = {row: result for (row, _), result in chosen(own, ENCODERS[number]).items()}
    rows = [row for row in ORDER if row in PAPER[number] or row in by_row]
    rows += [row for row in by_row if row not in rows]
    return _accuracies(by_row, rows, PAPER[number], _NOTES[number]) if by_row else None


def _accuracies(
    by_row: Mapping[Row, Result], rows: Sequence[Row], paper: Mapping[Row, tuple | None], note: str
) -> Table:
    """Accuracy in percent with its 95 % interval.

    Args:
      by_row: row -> result, at least one.
      rows: the rows shown; those without a result get missing cells.
      paper: row -> the paper's accuracy and interval, or None.
      note: the end of the caption.
    """
    first, told = next(iter(by_row.values())), facts(by_row.values(), "trained/accuracy")
    ours = [percent(by_row[row]) if row in by_row else Cell() for row in rows]
    ours, best = (mark_best(ours, smaller_is_better=False), f", {BEST}") if len(rows) > 1 else (ours, "")
    published = {row: Cell(*numbers, decimals=2) for row, numbers in paper.items() if numbers}
    theirs = [published.get(row, "(none)") for row in rows]
    steps = [by_row[row].steps if row in by_row else "" for row in rows]
    task = first.config["task"]
    caption = (
        f"{described(first)}. Preset {told['preset']}, {seeds_of(told)}; mean ± 95 % interval over "
        f"{drawn(told)} episodes of test classes{best}; chance is {100 / task['way']:.3g} %. 'm of n' steps: the "
        "weights are those of step m, of the best validation loss. The paper's numbers, 5-way 5-shot, are of all of "
        "mini-ImageNet at 28x28 pixels, its classes divided 80/10/10, with 64 filters or a ResNet-12 of full "
        f"width. {note}"
    )
    return Table(
        f"{task['way']}-way {task['shot']}-shot accuracy in percent with {encoder_name(first)}",
        ["model", "ours", "the paper's", "our steps"],
        [(row_name(row), list(cells)) for row, *cells in zip(rows, ours, theirs, steps)],
        caption.strip(),
        error="95 %",
        facts=told,
    )


TABLES = {f"intention/{number}": functools.partial(_table, number) for number in ENCODERS}
