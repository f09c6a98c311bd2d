"""Table 3 of the Intention paper: accuracy of set anomaly detection, ours beside the paper's."""

from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, drawn, facts, seeds_of, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured

EXPERIMENT = "intention/anomaly"
CONFIGS = (EXPERIMENT,)
# Names of the models as the paper writes them, in the order of its table.
MODELS = {
    "np_former": "NP-Former",
    "lin_transformer": "Lin-Transformer",
    "informer": "Informer",
    "transformer": "Transformer",
    "sigma_informer": "σ-Informer",
}
LAYERS = (1, 4)
OWN_OP = "own"  # the value of the axis op with which a model keeps the op that it is named after
# The paper's accuracy in percent, with 1 and 4 layers: CIFAR-100, ResNet-34 features; no error bars.
PAPER = {
    "np_former": (93.9, 94.0),
    "lin_transformer": (94.4, 94.4),
    "informer": (94.1, 95.1),
    "transformer": (94.3, 95.3),
    "sigma_informer": (95.3, 95.5),
}
FEATURES = {"resnet34": "features of a frozen ResNet-34", "raw_pixels_pca": "principal components of raw pixels"}
SPLITS = {
    "stratified": "validation images of every class",
    "classes": "classes of their own for training, validation and testing",
}
_DATA = ("cifar100", "digits")  # the paper's images first


def table3(results: Sequence[Result]) -> Table | None:
    """Every model with 1 and 4 layers: one data set, kind of features, preset and split. None without results."""
    own = [result for result in results if result.name == EXPERIMENT and result.axes["op"] == OWN_OP]
    found = comparable(own, EXPERIMENT, _place, _images, lambda result: list(SPLITS).index(result.axes["splits"]))
    return _table(found, list(MODELS), LAYERS) if found else None


def run_table(result: Result) -> Table:
    """One run: its accuracy beside the paper's."""
    model, depth = _place(result)
    return _table({(model, depth): result}, [model], (depth,))


def accuracy(result: Result) -> Cell:
    """The accuracy of a run in percent, with its standard error over the test sets."""
    return measured(result.metrics["trained/accuracy"], scale=100)


def label(result: Result) -> str:
    """'Transformer, 1 layer'."""
    model, depth = _place(result)
    return f"{MODELS.get(model, model)}, {_layers(depth)}"


def described(result: Result) -> str:
    """What a run has seen: 'CIFAR-100 (240/60 subset), principal components of raw pixels'."""
    op = result.axes["op"]
    swapped = "" if op == OWN_OP else f", with the op {op}"
    weights = _weights(result)
    named = f" (weights {weights})" if weights else ""
    return f"{result.content['facts']['data']}, {FEATURES[result.axes['features']]}{named}{swapped}"


def _table(found: Mapping[tuple[str, int], Result], models: Sequence[str], depths: Sequence[int]) -> Table:
    """The table of these models and numbers of layers. `found`: (model, number of layers) -> result."""
    columns, heads = [], ["accuracy, %"]
    for depth in depths:
        ours = [accuracy(found[model, depth]) if (model, depth) in found else Cell() for model in models]
        columns.append(mark_best(ours, smaller_is_better=False) if len(models) > 1 else ours)
        columns.append([_published(model, depth) for model in models])
        heads += [_layers(depth), f"{_layers(depth)}, the paper's"]
    rows = [(MODELS.get(model, model), list(cells)) for model, *cells in zip(models, *columns)]
    own, best = list(found.values()), f", {BEST}" if len(models) > 1 else ""
    first, told = own[0], facts(own, "trained/accuracy")
    size = first.config["task"]["set_size"]
    caption = (
        f"{described(first)}; {SPLITS[first.axes['splits']]}. Preset {told['preset']}, "
        f"{several(result.steps for result in own)} steps ('m of n': the weights are those of step m, of the best "
        f"validation loss), {seeds_of(told)}; mean ± standard error over {drawn(told)} sets of {size}{best}; "
        f"chance is {100 / size:g} %. The paper's numbers are of all of CIFAR-100 with the features of a ResNet-34 and "
        "have no error bars."
    )
    return Table("Set anomaly detection: accuracy", heads, rows, caption, facts=told)


def _published(model: str, depth: int) -> Cell | str:
    known = model in PAPER and depth in LAYERS
    return Cell(PAPER[model][LAYERS.index(depth)], decimals=1) if known else "(none)"


def _place(result: Result) -> tuple[str, int]:
    return result.axes["model"], int(result.axes["layers"])


def _layers(depth: int) -> str:
    return f"{depth} layer{'s' * (depth > 1)}"


def _images(result: Result) -> tuple:
    """What a model sees, as a key to choose by: the paper's images and features come first, and most of them."""
    told = result.content["facts"]
    number = sum(split["images"] for split in told["splits"].values())
    features = list(FEATURES).index(result.axes["features"])
    return _DATA.index(result.config["data"]["name"]), features, -number, told["data"], _weights(result)


def _weights(result: Result) -> str:
    """The first digits of the checksum of the network that made the features; '' where no network did."""
    return result.content["facts"]["features"].get("weights_sha256", "")[:8]


TABLES = {"intention/table3": table3}
