"""Table 3 of the Intention paper: accuracy of set anomaly detection, ours beside the paper's."""
from collections.abc import Sequence

from experiments.harness.results import Result, latest_preset
from experiments.harness.tables import Cell, Table, mark_best

# Names of the models as the paper writes them, in the order of its table.
MODELS = {
    "np_former": "NP-Former",
    "lin_transformer": "Lin-Transformer",
    "informer": "Informer",
    "transformer": "Transformer",
    "sigma_informer": "σ-Informer",
}
LAYERS = (1, 4)
OWN_OP = "own"  # of the axis op: every model keeps the op that it is named after
# The paper's accuracy in percent, with 1 and 4 layers: CIFAR-100, ResNet-34 features; no error bars.
PAPER = {
    "np_former": (93.9, 94.0),
    "lin_transformer": (94.4, 94.4),
    "informer": (94.1, 95.1),
    "transformer": (94.3, 95.3),
    "sigma_informer": (95.3, 95.5),
}
FEATURES = {"resnet34": "frozen ResNet-34 with ImageNet weights", "raw_pixels_pca": "principal components of raw pixels"}
SPLITS = {
    "stratified": "validation images of every class",
    "classes": "classes of their own for training, validation and testing",
}
_DATA = ("cifar100", "digits")  # the paper's images first


def table3(results: Sequence[Result]) -> Table | None:
    """Every model with 1 and 4 layers, all of one preset, data set, kind of features and split; None without results."""
    own = [result for result in results if result.name == "intention/anomaly" and result.config["axes"]["op"] == OWN_OP]
    preset = latest_preset(own)
    own = [result for result in own if result.preset == preset]
    variant = min(map(_variant, own), default=None)
    own = [result for result in own if _variant(result) == variant]
    return _table(own, list(MODELS), LAYERS) if own else None


def run_table(results: Sequence[Result]) -> Table:
    """One run: its accuracy beside the paper's."""
    model = results[0].config["model"]
    return _table(results, [model["name"]], (model["num_layers"],))


def _table(results: Sequence[Result], models: Sequence[str], layers: Sequence[int]) -> Table:
    found = {(result.config["model"]["name"], result.config["model"]["num_layers"]): result for result in results}
    columns, heads = [], ["accuracy, %"]
    for depth in layers:
        ours = [accuracy(found[model, depth]) if (model, depth) in found else Cell() for model in models]
        columns.append(mark_best(ours, smaller_is_better=False) if len(models) > 1 else ours)
        columns.append([_published(model, depth) for model in models])
        heads += [f"{depth} layer{'s' * (depth > 1)}", "the paper's"]
    rows = [(MODELS[model], list(cells)) for model, *cells in zip(models, *columns)]
    return Table("Set anomaly detection: accuracy", heads, rows, _caption(list(found.values()), len(models) > 1))


def accuracy(result: Result) -> Cell:
    """The accuracy of a run in percent, with its standard error over the test sets."""
    summary = result.metrics["trained/accuracy"]
    return Cell(100 * summary["mean"], 100 * summary["sem"])


def described(result: Result) -> str:
    """'CIFAR-100 (240/60 subset), principal components of raw pixels': what a run has seen."""
    op = result.config["axes"]["op"]
    swapped = "" if op == OWN_OP else f", with the op {op}"
    return f"{result.content['facts']['data']}, {FEATURES[result.config['features']['name']]}{swapped}"


def _published(model: str, depth: int) -> str:
    return f"{PAPER[model][LAYERS.index(depth)]}" if depth in LAYERS else "(none)"


def _caption(results: Sequence[Result], marked: bool) -> str:
    first = results[0]
    n, size = first.metrics["trained/accuracy"]["n"], first.config["task"]["set_size"]
    steps = " or ".join(str(number) for number in sorted({result.content["steps"] for result in results}))
    return (
        f"{described(first)}; {SPLITS[first.config['data']['splits']]}. Preset {first.preset}, {steps} steps, "
        f"{len(first.content['seeds'])} seed(s); mean ± standard error over {n} sets of {size}"
        f"{', the best model in bold' * marked}; chance is {100 / size:g} %. "
        "The paper's numbers are of all of CIFAR-100 with the features of a ResNet-34 and have no error bars."
    )


def _variant(result: Result) -> tuple:
    """What results that stand beside each other have in common. The least comes first: the paper's images, features, splits."""
    data, facts = result.config["data"], result.content["facts"]
    places = list(FEATURES).index(result.config["features"]["name"]), list(SPLITS).index(data["splits"])
    number = sum(split["images"] for split in facts["splits"].values())
    return _DATA.index(data["name"]), *places, -number, facts["data"]
