"""Sine curves from a few points: Intention paper, Section 5.1 and Appendix 4.1; Figures 6 and 7 (left).

    python -m experiments.run --config configs/intention/sine.py:model=intention,preset=quick
    python -m scripts.sweep --config configs/intention/sine.py:preset=quick     # all four models

`paper` is Appendix 4.1 as printed but for MAML's inner rate, trained on 10 observations. The paper leaves open, and we
chose: the 200 targets are drawn uniformly, as the context is; e_w is the identity (in `quick` an MLP beside it); the
values enter Intention as they are, E_V := V, which its untrained curves need; alpha starts at 0.1 and is learnt; MAML
is of second order; gradients are clipped at norm 1, without which the heavy tail of Intention's loss at few points ends
the run.

`quick` has narrower networks, fewer steps and 1 to 20 observations: nothing in a training on exactly 10 asks for
features that serve fewer.

MAML has the inner rate 0.01 of Finn et al. 2017 in every preset. With the paper's 0.1 a run of `paper` ends before step
100, at a loss that is not finite: from many initialisations the inner steps diverge.
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "maml")
# Without the numbers of observations.
TASK = dict(targets=200, amplitude=(0.1, 5.0), phase=(0.0, 3.141592653589793), position=(-6.0, 6.0))
RATES = {"intention": 3e-4, "attention": 1e-4, "neural_process": 1e-4, "maml": 3e-3}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset."""
    axes = common.parse_axes(arg, model=MODELS, preset=common.PRESETS)
    config = dict(
        name="intention/sine",
        experiment="regression",
        axes=axes,
        task=dict(name="sine", min_context=10, max_context=10) | TASK,
        data=None,
        model=common.model(axes["model"]),
        optimizer=common.optimizer("adam", RATES[axes["model"]], clip_norm=1.0),
        train=common.train(50_000, 8, seeds=5, log_every=500, validate_every=5000, checkpoint_every=2500),
        evaluation=common.evaluation(
            untrained=True,
            tasks=10_000,
            batch_size=20,
            counts=tuple(range(1, 51)),
            example_tasks=4,
            example_counts=(5, 10, 20),
        ),
    )
    return common.edited(config, EDITS, common.TINY_REGRESSION)


EDITS = {
    "preset=quick|tiny": {"task": dict(min_context=1, max_context=20)},
    "model=maml": {"model": dict(inner_rate=0.01)},
    "preset=quick|tiny,model=attention|neural_process": {"optimizer": dict(learning_rate=3e-4)},
    "preset=quick": {
        "train": dict(steps=4000, seeds=3, log_every=100, validate_every=1000, checkpoint_every=500),
        "evaluation": dict(validation_batches=8, tasks=1000),
    },
    "preset=quick,model=intention": {"model": dict(key_features=(256,) * 4, weight_features=(256,))},
    "preset=quick,model=attention": {"model": dict(head_features=32)},
    "preset=quick,model=neural_process": {"model": common.process_layers(256)},
}


def sweep() -> list[dict[str, str]]:
    """The cells of Figure 7 (left)."""
    return [{"model": model} for model in MODELS]
