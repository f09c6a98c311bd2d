"""Any model on any task that it fits: Intention on functions of Gaussian processes, CMANP on sine curves. Ours.

    python -m experiments.run --config configs/kvq/anything.py:model=intention,task=gp,preset=quick
    python -m experiments.run --config configs/kvq/anything.py:model=cmanp,task=sine,preset=quick
    python -m experiments.run --config configs/kvq/anything.py:model=tnp_d,task=gp,op=sigma_intention,preset=quick

model= is a row of kvq_jax.models.MODELS, task= a row of TASKS below. op= is a row of kvq_jax.ops.OPERATORS
in place of the model's own, for the models that have a field `op`. A pair that does not fit is an error that says why.

`paper` has the published sizes, the defaults of the models' classes, and 100,000 steps; `quick` has 4000 steps,
narrower few-shot regressors (but `pair`), and neural processes with fewer latents and samples. Rates are ours: 1e-3 for
few-shot regressors, 5e-4 for neural processes, falling to 0; gradients are clipped at norm 1. The pixels are those of
scikit-learn's digits. For MNIST: --data_dir DATA --config.data.name=mnist --config.data.source=archive
--config.data.validation_images=5000.
"""

import dataclasses

from ml_collections import ConfigDict

from configs import common
from configs.intention import kabsch, policy_distillation, sine
from configs.neural_processes import gp, wheel
from kvq_jax import models

WHEEL = dict(context=128, targets=50, drop=0.0, small_std=0.05, large_std=0.01)
# Task -> its section.
TASKS = {
    "sine": dict(min_context=1, max_context=20) | sine.TASK,
    "pixels": dict(min_context=1, max_context=22),
    "gp": gp.TASK,
    "fixed_wheels": WHEEL | dict(deltas=wheel.RADII),
    "fresh_wheels": WHEEL | dict(delta=(0.0, 1.0)),
    "policy_distillation": policy_distillation.TASK,
    "kabsch": dict(dimension=2) | kabsch.TASK,
}
RATES = {"few_shot": 1e-3, "neural_process": 5e-4}
# Axes -> why they do not fit.
MISFITS = {"model=mlp,task=sine|pixels|gp": "it needs the same number of context points in every task", "": None}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one pair; axes: model, task, op, preset. Raises ValueError, one line, where they do not fit."""
    axes = common.parse_axes(
        arg, model=models.MODELS, task=TASKS, op=("own", *common.operators()), preset=common.PRESETS
    )
    name, row = axes["model"], models.MODELS[axes["model"]]
    _check(axes)
    config = dict(
        name="kvq/anything",
        experiment="regression",
        axes=axes,
        task=dict(name=axes["task"]) | TASKS[axes["task"]],
        data=None,
        model=common.model(name, **({} if axes["op"] == "own" else {"op": common.op(axes["op"])})),
        optimizer=common.optimizer("adam", RATES[row.family], schedule="cosine", clip_norm=1.0),
        train=common.train(100_000, 16, seeds=5, log_every=500, validate_every=5000, checkpoint_every=5000),
        evaluation=common.evaluation(tasks=10_000, batch_size=20, example_tasks=4, counts=(), example_counts=()),
    )
    return common.edited(config, AXES, EDITS, common.NARROW_REGRESSORS, common.narrow_neural_processes())


def _check(axes: dict[str, str]) -> None:
    reason = common.first(MISFITS, axes)
    if reason:
        raise ValueError(f"model={axes['model']} does not fit task={axes['task']}: {reason}")
    fields = [field.name for field in dataclasses.fields(models.MODELS[axes["model"]].cls)]
    if axes["op"] != "own" and "op" not in fields:
        raise ValueError(f"op={axes['op']} is for models with a field `op`, which model={axes['model']} does not have")


AXES = {
    "task=pixels": {
        "data": dict(name="digits", source="digits", validation_images=200),
        "model?": dict(fourier_levels=3),
    },
    "task=fixed_wheels|fresh_wheels": {"model?": dict(dim_y=5)},
    "task=fixed_wheels": {"train": dict(batch_size=1)},  # all wheels are one task
    "task=gp": {"train": dict(size_classes=12)},
    "task=kabsch": {"model?": dict(dim_y=2)},
    # At the paper's rate the inner steps diverge from many initialisations.
    "model=maml": {"model": dict(inner_rate=0.01)},
}
EDITS = {
    "preset=quick": {
        "train": dict(steps=4000, seeds=1, log_every=100, validate_every=500, checkpoint_every=500),
        "evaluation": dict(validation_batches=8, tasks=1000),
    },
    "preset=quick,task=gp": {"train": dict(size_classes=4)},
    "preset=tiny,task=gp": {"train": dict(size_classes=1)},
    "preset=tiny": {
        "train": dict(steps=20, seeds=2, log_every=10, validate_every=20, checkpoint_every=20),
        "evaluation": dict(validation_batches=1, tasks=20),
    },
    "preset=tiny,task=fixed_wheels|fresh_wheels": {"task": dict(context=16, targets=8)},
    "preset=tiny,model=pair": {"model": kabsch.pair(16)},
}


def sweep() -> list[dict[str, str]]:
    """Every pair that fits."""
    pairs = [{"model": model, "task": task} for task in TASKS for model in models.MODELS]
    return [pair for pair in pairs if common.first(MISFITS, pair) is None]
