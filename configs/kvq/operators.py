"""KVQ space at work: the attention models of the Intention paper's experiments with every operator. Ours.

    python -m experiments.run --config configs/kvq/operators.py:experiment=sine,op=intention,preset=quick
    python -m scripts.sweep --config configs/kvq/operators.py:preset=quick,data=real --data_dir DATA     # all cells
    python -m scripts.tables --table kvq/operators
    python -m scripts.sweep --config configs/kvq/operators.py:preset=quick,data=real --cells smoothing --data_dir DATA
    python -m scripts.tables --table kvq/smoothing

But for the operator, its one seed, and fewer steps of few-shot classification and of constrained_intention (EDITS), a
cell is the experiment's own: attention with its five heads, encoders and decoder; for set anomalies the Transformer
with one layer, where no other layer makes up for the operator. Operators with an alpha learn it for each head, from
0.1; the Informers, defined between 0 and 1, from the 0.5 of their paper. data=real takes MNIST, mini-ImageNet and
CIFAR-100 from DATA, data=digits scikit-learn's digits for all three; the other experiments draw their own tasks, and
are data=real whatever was asked. Further axes are those of the experiment's own config, such as encoder=resnet12 of
few-shot classification. Operators of discriminant analysis, whose values are labels, cannot stand here.

smoothing=least, little, some, much or most gives every operator the scale that its theory asks for, and one of five
starts, instead of those of the experiment: see `started`. --cells smoothing lists them all; the table has the start of
the least validation loss. erf, linear and uniform have nothing to choose, and only `some`. There are three seeds.

A cell of `quick` takes half a minute to some minutes on one core, with the three seeds of `smoothing` up to fourteen.
constrained_intention, which solves a quadratic program for every column of every head, takes up to eighteen; operators
that compare all pairs of points or factor their kernel up to twenty-four on pixels.
"""

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from configs import common
from configs.intention import anomaly, few_shot_classification, kabsch, pixels, policy_distillation, sine
from kvq_jax.names import unknown
from kvq_jax.ops import OPERATORS

_ATTENTION = dict(model="attention")
# Experiment -> its config file, the axes of its attention model, and its source of real images, where it has any.
_EXPERIMENTS = {
    "sine": (sine, _ATTENTION, None),
    "pixels": (pixels, _ATTENTION, "archive"),
    "policy_distillation": (policy_distillation, _ATTENTION, None),
    "kabsch": (kabsch, _ATTENTION, None),
    "few_shot_classification": (few_shot_classification, _ATTENTION, "mini_imagenet"),
    "anomaly": (anomaly, dict(model="transformer", layers="1"), "archive"),
}
EXPERIMENTS = tuple(_EXPERIMENTS)


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: experiment, op, data, preset, smoothing, and those of the experiment's own config.

    Raises ValueError for a start that the operator does not have, and for another model or source than the cell's.
    """
    own = dict(
        experiment=EXPERIMENTS,
        op=common.operators(),
        data=("digits", "real"),
        preset=common.PRESETS,
        smoothing=("own", *SMOOTHING),
    )
    parts = list(filter(None, (arg or "").split(",")))
    further = [part for part in parts if part.partition("=")[0] not in own]
    axes = common.parse_axes(",".join(part for part in parts if part not in further), **own)
    op, start = axes["op"], axes.pop("smoothing")
    config = _of_experiment(axes, further).to_dict()
    swap, seeds = dict(op=common.op(op)), 1
    if start != "own":  # the axis stays only where it changes the cell
        if start not in starts(op):
            raise ValueError(unknown(f"start of {op}", start, starts(op)))
        axes["smoothing"] = start
        heads = config["model"].get("options", config["model"])
        swap, seeds = started(op, start, heads["head_features"]), 3
    config |= dict(name="kvq/operators", axes=config["axes"] | axes)
    swaps = {"": {"model?": swap}, "experiment=anomaly": {"model": dict(options=swap)}}
    return common.edited(config, swaps, EDITS, {"preset=quick": {"train": dict(seeds=seeds)}})


def _of_experiment(axes: dict[str, str], further: Sequence[str]) -> ConfigDict:
    """The config of the experiment's own file, of its attention model; further: axes of that file, 'encoder=resnet12'.

    Where nothing stands in for tasks that are drawn, axes["data"] becomes 'real'.
    """
    file, chosen, real = _EXPERIMENTS[axes["experiment"]]
    chosen = chosen | {"preset": axes["preset"]}
    if real is None:
        axes["data"] = "real"
    else:
        chosen["source"] = real if axes["data"] == "real" else "digits"
    read = lambda given: file.get_config(",".join([*(f"{axis}={value}" for axis, value in chosen.items()), *given]))
    known, kept = read([]).axes, dict(chosen)
    for axis in (part.partition("=")[0] for part in further):
        if axis not in known:
            raise ValueError(unknown("axis", axis, list(dict.fromkeys([*axes, "smoothing", *known]))))
        chosen.pop(axis, None)
    config = read(further)
    for axis in {"model", "source"} & kept.keys():
        if config.axes[axis] != kept[axis]:
            raise ValueError(f"{axis}={config.axes[axis]} is not that of {axes['experiment']} here, {kept[axis]}")
    return config


# Start -> the temperature of attention, and the ridge of least squares.
SMOOTHING = {
    "least": (0.0625, 0.001),
    "little": (0.25, 0.01),
    "some": (1.0, 0.1),
    "much": (4.0, 1.0),
    "most": (16.0, 10.0),
}


def starts(op: str) -> tuple[str, ...]:
    """The starts of an operator: only 'some' where no option says how much it smooths."""
    choice = {"scale", "length_scale", "alpha"}.intersection(OPERATORS[op].options)
    return tuple(SMOOTHING) if choice else ("some",)


def started(op: str, start: str, width: int) -> dict[str, Any]:
    """`op` and `scaling` of heads of this width, as the theory of the operator asks for.

    Scores that are products are divided by sqrt(d), distances on both sides. Least squares count their ridge in mean
    eigenvalues of the Gram matrix, 1 for kernels of distances, and multiply queries by sqrt(d) (Intention paper,
    Appendix 9).
    """
    options, (temperature, ridge) = OPERATORS[op].options, SMOOTHING[start]
    if "scale" in options:
        return dict(op=dict(name=op, scale=1 / temperature), scaling="head")
    if "length_scale" in options:
        return dict(op=dict(name=op, length_scale=temperature * width**0.5), scaling="none")
    if "alpha" not in options:
        return dict(op=op, scaling="head")
    learnt = common.op(op) | dict(alpha=ridge / (1 + ridge) if OPERATORS[op].alpha == "unit" else ridge)
    if "unit" not in options:
        return dict(op=learnt, scaling="none")
    return dict(op=learnt | dict(unit="trace"), scaling="map")


EDITS = {
    # With most operators the best validation loss of few-shot classification comes before.
    "preset=quick,experiment=few_shot_classification": {"train": dict(steps=1000)},
    # Its quadratic programs for batches of 64 tasks take ten times as long as other operators.
    "preset=quick,op=constrained_intention,experiment=policy_distillation|kabsch|anomaly": {"train": dict(steps=1000)},
}


def sweep() -> list[dict[str, str]]:
    """The cells of the table, those that take longest last."""
    cells = [{"experiment": experiment, "op": op} for experiment in EXPERIMENTS for op in common.operators()]
    return sorted(cells, key=lambda cell: cell["op"] == "constrained_intention")


def smoothing() -> list[dict[str, str]]:
    """The cells of the table of operators with scales of their own: every start of every operator."""
    return [cell | {"smoothing": start} for cell in sweep() for start in starts(cell["op"])]
