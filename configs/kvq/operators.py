"""KVQ space at work: the attention models of the Intention paper's experiments with every operator. Ours.

    python -m experiments.run --config configs/kvq/operators.py:experiment=sine,op=intention,preset=quick
    python -m scripts.sweep --config configs/kvq/operators.py:preset=quick,data=real --data_dir DATA     # all cells
    python -m scripts.tables --table kvq/operators

Everything but the operator is the experiment's own: attention with its five heads, encoders and decoder; for set
anomalies the Transformer with one layer, where no other layer makes up for the operator. Operators with an alpha learn
it for each head, from 0.1; the Informers, defined between 0 and 1, from the 0.5 of their paper. data=real takes MNIST,
mini-ImageNet and CIFAR-100 from DATA, data=digits scikit-learn's digits for all three. Operators of discriminant
analysis, whose values are labels, cannot stand here.

A cell of `quick` takes a minute or two on one core. constrained_intention, which solves a quadratic program for every
column of every head, takes up to ten; operators that compare all pairs of points or factor their kernel take ten to
forty on pixels.
"""

from ml_collections import ConfigDict

from configs import common
from configs.intention import anomaly, few_shot_classification, kabsch, pixels, policy_distillation, sine

# Experiment -> its config file, the axes of its attention model, and those of its data, where it has any.
_EXPERIMENTS = {
    "sine": (sine, "model=attention", {}),
    "pixels": (pixels, "model=attention", dict(digits=",source=digits", real=",source=archive")),
    "policy_distillation": (policy_distillation, "model=attention", {}),
    "kabsch": (kabsch, "model=attention", {}),
    "few_shot_classification": (
        few_shot_classification,
        "model=attention",
        dict(digits=",source=digits", real=",source=mini_imagenet"),
    ),
    "anomaly": (anomaly, "model=transformer,layers=1", dict(digits=",source=digits", real=",source=archive")),
}
EXPERIMENTS = tuple(_EXPERIMENTS)


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: experiment, op, data, preset, and those of the experiment's own config."""
    axes = common.parse_axes(
        arg, experiment=EXPERIMENTS, op=common.operators(), data=("digits", "real"), preset=common.PRESETS
    )
    file, own, data = _EXPERIMENTS[axes["experiment"]]
    config = file.get_config(f"{own},preset={axes['preset']}{data[axes['data']] if data else ''}").to_dict()
    config |= dict(name="kvq/operators", axes=config["axes"] | axes)
    swap = dict(op=common.op(axes["op"]))
    return common.edited(config, {"": {"model?": swap}, "experiment=anomaly": {"model": dict(options=swap)}}, EDITS)


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
