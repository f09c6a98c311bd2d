"""Tables 1 and 2 of the Intention paper: accuracy of few-shot classification, ours beside the paper's."""

from collections.abc import Collection, Mapping, Sequence

from experiments.harness.results import Result, comparable, facts
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured

EXPERIMENT = "intention/few_shot_classification"
# The encoders of each table, the paper's own first: it does not say which ResNet-12 it is.
ENCODERS = {"table1": ("conv4",), "table2": ("resnet12", "resnet12_512")}
ENCODER_NAMES = {"conv4": "the encoder of matching networks", "resnet12": "a ResNet-12", "resnet12_512": "a ResNet-12"}
# A row of a table is (model, covariance, kernel, op). Row -> its name.
INTENTION, KERNEL = (("intention", "ls_svm", kernel, "own") for kernel in ("linear", "gaussian"))
SECOND_ORDER = "maml_second_order"  # a model of its own in tables
ROWS = {
    ("attention", "ls_svm", "linear", "own"): "Attention",
    ("neural_process", "ls_svm", "linear", "own"): "Neural Process",
    ("maml", "ls_svm", "linear", "own"): "MAML",
    (SECOND_ORDER, "ls_svm", "linear", "own"): "MAML, second order",
    ("prototypes", "ls_svm", "linear", "own"): "Prototypical networks",
    ("intention", "within_class", "linear", "own"): "Intention, within-class scatter (the paper's QDA)",
    INTENTION: "Intention",
    KERNEL: "Intention, Gaussian kernel",
}
# Table -> row -> the paper's accuracy and 95 % interval in percent; None for a row that only our table has.
PAPER = {
    "table1": {
        ("attention", "ls_svm", "linear", "own"): (54.26, 0.51),
        ("neural_process", "ls_svm", "linear", "own"): (60.10, 0.51),
        ("maml", "ls_svm", "linear", "own"): (63.15, 0.91),
        ("prototypes", "ls_svm", "linear", "own"): None,
        INTENTION: (67.30, 0.51),
    },
    "table2": {
        ("intention", "within_class", "linear", "own"): (66.27, 5.81),
        INTENTION: (70.05, 0.51),
        KERNEL: (70.43, 0.52),
    },
}
_NOTES = {
    "table1": "The paper quotes first-order MAML; second-order MAML has 63.11 ± 0.92. It has no prototypical networks.",
    "table2": "The ± 5.81 of the paper's QDA is too wide for the mean of 1000 episodes: a standard deviation, or a misprint.",
}
# Sources of images, the paper's first.
_SOURCES = ("mini_imagenet_80", "mini_imagenet", "cifar_fs", "omniglot", "folders", "digits")
_SIZE = 28  # of the paper's images


def row_of(result: Result) -> tuple[str, ...]:
    """(model, covariance, kernel, op): which row of a table a run fills."""
    model, *others = (result.config["axes"][axis] for axis in ("model", "covariance", "kernel", "op"))
    second_order = model == "maml" and not result.config["model"]["first_order"]
    return SECOND_ORDER if second_order else model, *others


def row_name(row: tuple[str, ...]) -> str:
    """As the paper has it; what it does not have is named after its axes."""
    model, covariance, kernel, op = row
    if row in ROWS:
        return ROWS[row]
    own = {"covariance": covariance} if model == "intention" else {}
    own |= {name: value for name, value, usual in (("kernel", kernel, "linear"), ("op", op, "own")) if value != usual}
    return ", ".join([ROWS[model, "ls_svm", "linear", "own"], *(f"{name} {value}" for name, value in own.items())])


def chosen(results: Sequence[Result], encoders: Sequence[str]) -> dict[tuple, Result]:
    """(row, latent) -> its result with the first of `encoders` that has any: one preset, and one kind of data and episodes."""
    own = [result for result in results if result.name == EXPERIMENT and result.config["axes"]["encoder"] in encoders]

    def variant(result: Result) -> tuple:
        config, size = result.config, result.config["data"]["size"]
        episodes = [config["task"][name] for name in ("way", "shot", "query")]
        encoder = encoders.index(config["axes"]["encoder"]), config["encoder"]["statistics"]
        return *encoder, size != _SIZE, size, *episodes

    return comparable(
        own, EXPERIMENT, lambda result: (row_of(result), result.config["axes"]["latent"]), _images, variant
    )


def _images(result: Result) -> tuple:
    return _SOURCES.index(result.config["data"]["source"]), result.content["facts"]["data"]


def table_of(number: str):
    """'table1' or 'table2': a function of all results, None without any of its own."""

    def table(results: Sequence[Result]) -> Table | None:
        own = [result for result in results if result.name == EXPERIMENT and result.config["axes"]["latent"] == "base"]
        by_row = {row: result for (row, _), result in chosen(own, ENCODERS[number]).items()}
        rows = [row for row in ROWS if row in PAPER[number] or row in by_row]
        rows += [row for row in by_row if row not in rows]
        return accuracy_table(by_row, rows, PAPER[number], _NOTES[number]) if by_row else None

    return table


def run_table(results: Sequence[Result]) -> Table:
    """One run: its accuracy beside the paper's."""
    (result,) = results
    encoder, row = result.config["axes"]["encoder"], row_of(result)
    (number,) = (number for number, encoders in ENCODERS.items() if encoder in encoders)
    return accuracy_table({row: result}, [row], PAPER[number], "")


def accuracy_table(
    by_row: Mapping[tuple, Result], rows: Sequence[tuple], paper: Mapping[tuple, tuple], note: str
) -> Table:
    """Accuracy in percent with its 95 % interval.

    Args:
      by_row: row -> result, at least one.
      rows: those shown; the ones without a result get missing cells.
      paper: row -> the paper's accuracy and interval, or None.
      note: of the caption.
    """
    first = next(iter(by_row.values()))
    ours = [percent(by_row[row]) if row in by_row else Cell() for row in rows]
    ours = mark_best(ours, smaller_is_better=False) if len(rows) > 1 else ours
    published = {row: Cell(*numbers, decimals=2) for row, numbers in paper.items() if numbers}
    theirs = [published[row] if row in published else "(none)" for row in rows]
    steps = [by_row[row].steps if row in by_row else "" for row in rows]
    task, encoder = first.config["task"], first.config["axes"]["encoder"]
    return Table(
        f"{task['way']}-way {task['shot']}-shot accuracy in percent with {ENCODER_NAMES[encoder]}",
        ["model", "ours", "the paper's", "our steps"],
        [(row_name(row), list(cells)) for row, *cells in zip(rows, ours, theirs, steps)],
        f"{caption(by_row.values(), len(rows) > 1)} {note}".strip(),
        error="95 %",
        facts=facts(by_row.values(), "trained/accuracy"),
    )


def percent(result: Result) -> Cell:
    """Accuracy in percent, its error the half width of the 95 % interval of the mean over episodes."""
    return measured(result.metrics["trained/accuracy"], scale=100, errors=1.96)


def described(result: Result) -> str:
    """'mini-ImageNet at 28x28, encoder widths 64-64-64-64, ...': what a run has seen, and with which eyes."""
    encoder, size = result.config["encoder"], result.config["data"]["size"]
    widths = "-".join(map(str, encoder["features"]))
    images = f"{result.content['facts']['data']} at {size}x{size}"
    return f"{images}, encoder widths {widths}, {encoder['statistics']} batch statistics"


def caption(results: Collection[Result], marked: bool) -> str:
    """What runs like these are, and are not."""
    first, told = next(iter(results)), facts(results, "trained/accuracy")
    best = f", {BEST}" if marked else ""
    return (
        f"{described(first)}. Preset {told['preset']}, {told['seeds']} seed(s); mean ± 95 % interval over {told['n']} episodes "
        f"of test classes{best}; chance is {100 / first.config['task']['way']:.3g} %. 'm of n' steps: the weights are those of "
        "step m, of the best validation loss. The paper's numbers, 5-way 5-shot, are of all of mini-ImageNet with 64 filters or "
        "a ResNet-12 of full width."
    )
