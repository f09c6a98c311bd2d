"""What CMANP's bottleneck and CMANP-AND's blocks cost and bring: CMANP paper, Section 4.2.1, Figures 4, 6, 9, 10.

    python -m scripts.sweep --config configs/neural_processes/analyses.py:preset=quick     # all cells
    python -m experiments.run --config configs/neural_processes/analyses.py:latents=2,preset=quick

The task, the models and the training are those of gp.py. There are two studies:

study=sizes     CMANP with other sizes; `quick` has 5000 steps:
    latents         L_I, what a block hands to the next, and
    block_latents   L_B, what each block reads the context with: 128 in `paper`, 8 in `quick`, where `base`
    width           of the latents, and of all else in the model: 64 where `base`
study=blocks    CMANP and CMANP-AND, in `quick` until their order is that of `paper`: 25,000 steps, up to half an
                hour each on one core

CMANP-AND is trained once, on all targets at once. Its evaluation goes through `evaluation.block_sizes`, of which 46 is
all targets. Figures 9 and 10 show both models of study=blocks, CMANP-AND predicting all points as one block. The text
of the paper gives neither the sizes of Figures 4 and 6 nor the context points of Figures 9 and 10: both are ours.
"""

from collections.abc import Sequence

from ml_collections import ConfigDict

from configs import common
from configs.neural_processes import gp

MODELS = ("cmanp", "cmanp_and")
SIZES = ("1", "2", "8", "32")
WIDTHS = ("16", "32")
# What 'base' is.
BASES = {
    "preset=paper": dict(latents="128", block_latents="128", width="64"),
    "preset=quick": dict(latents="8", block_latents="8", width="64"),
    "preset=tiny": dict(latents="4", block_latents="4", width="16"),
}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, study, latents, block_latents, width, preset. In it, `base` is a number."""
    axes = common.parse_axes(
        arg,
        model=MODELS,
        study=("sizes", "blocks"),
        latents=_values("latents", SIZES),
        block_latents=_values("block_latents", SIZES),
        width=_values("width", WIDTHS),
        preset=common.PRESETS,
    )
    axes = common.resolved(axes, BASES)
    config = dict(
        name="neural_processes/analyses",
        experiment="neural_processes.analyses",
        axes=axes,
        task=gp.TASK,
        model=common.model(
            axes["model"],
            features=int(axes["width"]),
            num_latents=int(axes["latents"]),
            num_block_latents=int(axes["block_latents"]),
        ),
        optimizer=common.optimizer("adam", 5e-4, schedule="cosine"),
        train=common.train(
            100_000, 16, seeds=5, size_classes=12, log_every=500, validate_every=5000, checkpoint_every=5000
        ),
        evaluation=common.evaluation(
            kernels=("rbf", "matern"),
            tasks=48_000,
            batch_size=16,
            block_sizes=(),
            example_counts=(15,),
            example_points=200,
        ),
    )
    return common.edited(config, EDITS)


def _values(axis: str, others: Sequence[str]) -> tuple[str, ...]:
    """`base`, what the figures have beside it, and what it is."""
    return tuple(dict.fromkeys(("base", *others, *(values[axis] for values in BASES.values()))))


EDITS = {
    "model=cmanp_and": {"evaluation": dict(block_sizes=(1, 5, 10, 25, 46))},
    "preset=quick": {
        "train": dict(steps=5000, seeds=1, size_classes=4, log_every=100, validate_every=500, checkpoint_every=500),
        "evaluation": dict(validation_batches=8, tasks=500, batch_size=8),
    },
    "preset=quick,study=blocks": {"train": dict(steps=25_000, size_classes=8)},
    "preset=tiny": {
        "model": dict(hidden=32, num_layers=2),
        "train": dict(steps=20, seeds=2, size_classes=1, log_every=10, validate_every=20, checkpoint_every=20),
        "evaluation": dict(validation_batches=1, tasks=8, batch_size=4),
    },
}


def sweep() -> list[dict[str, str]]:
    """The cells of all figures; two that come to the same numbers are one run."""
    return [
        *({"model": model, "study": "blocks"} for model in MODELS),
        {"study": "sizes"},
        *({"latents": size, "block_latents": size} for size in SIZES),
        *({"block_latents": size} for size in SIZES),
        *({"latents": size} for size in SIZES),
        *({"width": width} for width in WIDTHS),
    ]
