"""KVQ space at work: the attention model of each experiment of the Intention paper with every operator in its place. Ours.

    python -m experiments.run --config configs/kvq/operators.py:experiment=sine,op=intention,preset=quick
    python -m scripts.sweep --config configs/kvq/operators.py:preset=quick,data=real --data_dir DATA     # all experiments and operators
    python -m scripts.tables --table kvq/operators

Everything but the operator is the experiment's own: Attention with its five heads, encoders and decoder, and for set anomalies
the Transformer with one layer, where no other layer makes up for the operator; `quick` trains few-shot classification for 1000
steps, and constrained_intention where a batch has 64 tasks. Operators with a ridge learn it for each head, from 0.1; the
Informers, defined between 0 and 1, from the 0.5 of their paper. data=real takes MNIST, mini-ImageNet and CIFAR-100 from DATA,
data=digits scikit-learn's digits for all three. Operators of discriminant analysis, whose values are labels, cannot stand here.
A cell takes a minute or two on one core; with constrained_intention, which solves a quadratic program for every column of every
head, up to ten; on pixels, with operators that compare all pairs of points or factor their kernel, ten to forty.
"""

from ml_collections import ConfigDict

from configs import common
from configs.intention import anomaly, few_shot_classification, kabsch, pixels, policy_distillation, sine

# Experiment -> its config file, the axes of its attention model, where in the config that model's op is, and the axes of its
# data, where it has any.
_EXPERIMENTS = {
    "sine": (sine, "model=attention", ("model",), {}),
    "pixels": (pixels, "model=attention", ("model",), dict(digits=",source=digits", real=",source=archive")),
    "policy_distillation": (policy_distillation, "model=attention", ("model",), {}),
    "kabsch": (kabsch, "model=attention", ("model",), {}),
    "few_shot_classification": (
        few_shot_classification,
        "model=attention",
        ("model",),
        dict(digits=",source=digits", real=",source=mini_imagenet"),
    ),
    "anomaly": (
        anomaly,
        "model=transformer,layers=1",
        ("model", "options"),
        dict(digits=",source=digits", real=",source=archive"),
    ),
}
EXPERIMENTS = tuple(_EXPERIMENTS)
OPS = common.OPS
# Steps of `quick` where they are fewer than the experiment's own: with most operators the best validation loss of few-shot
# classification comes before, and the quadratic programs of batches of 64 tasks take ten times as long as other operators.
_QUICK_STEPS = {("few_shot_classification", op): 1000 for op in OPS} | {
    (experiment, "constrained_intention"): 1000 for experiment in ("policy_distillation", "kabsch", "anomaly")
}
PRESETS = ("quick", "tiny", "paper")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: experiment, op, data, preset."""
    axes = common.parse_axes(arg, experiment=EXPERIMENTS, op=OPS, data=("digits", "real"), preset=PRESETS)
    file, own, path, data = _EXPERIMENTS[axes["experiment"]]
    config = file.get_config(f"{own},preset={axes['preset']}{data[axes['data']] if data else ''}")
    section = config
    for part in path:
        section = section[part]
    section.update(op=axes["op"], **common.ridge(axes["op"], 0.1))
    if axes["preset"] == "quick":
        config.train.steps = _QUICK_STEPS.get((axes["experiment"], axes["op"]), config.train.steps)
    config.update(name="kvq/operators", axes=axes)
    return config


def sweep() -> list[dict[str, str]]:
    """The cells of the table, those that take longest last."""
    cells = [{"experiment": experiment, "op": op} for experiment in EXPERIMENTS for op in OPS]
    return sorted(cells, key=lambda cell: cell["op"] == "constrained_intention")
