"""The largest number of a set: Set Transformer (Lee et al. 2019), Section 5.1, Table 1.

    python -m experiments.run --config configs/set_transformer/max.py:model=sab_pma,preset=quick
    python -m scripts.sweep --config configs/set_transformer/max.py:preset=paper     # Table 1, five seeds
    python -m scripts.sweep --config configs/set_transformer/max.py:preset=quick --cells operators

protocol=paper draws a number of elements for each set, and reals between 0 and 100. protocol=demo is that of the
released code's notebook: integers, sets of one size in a batch, and 500 steps of 1024 sets at a tenth of the rate,
which are too few for the numbers of the table.

form=code has the blocks of the released code, form=paper those of the paper (kvq_jax.nn.SET_FORMS), behind a linear
layer to their width. op is that of all blocks; 'own' is softmax attention.

`paper` takes 20,000 steps for five seeds at once. `quick` has three, a quarter of the steps and a rate that falls to 0
with a cosine.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import SET_NETWORKS
from kvq_jax.nn import SET_FORMS

MODELS = ("rff_mean", "rff_sum", "rff_max", "sab_pma")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, protocol, form, op."""
    axes = common.parse_axes(
        arg,
        model=MODELS,
        preset=common.PRESETS,
        protocol=("paper", "demo"),
        form=("code", "paper"),
        op=("own", *common.operators()),
    )
    name, form = axes["model"], axes["form"]
    config = dict(
        name="set_transformer/max",
        experiment="set_transformer.max",
        axes=axes,
        task=dict(min_size=1, max_size=10, low=0.0, high=100.0, integers=False),
        model=common.model(
            name, table=SET_NETWORKS, dim=64, num_heads=4, **SET_NETWORKS[name].parts, **SET_FORMS[form]
        ),
        optimizer=common.optimizer("adam", 1e-3),
        train=common.train(20_000, 128, seeds=5, log_every=500, validate_every=2000, checkpoint_every=5000),
        evaluation=common.evaluation(tasks=10_000, batch_size=1000, example_tasks=500),
    )
    return common.edited(config, PARTS, common.swap(axes), EDITS)


PARTS = {
    "model=rff_mean|rff_sum|rff_max": {"model": dict(encoder_layers=4, activate_last=False, head=(64,))},
    "model=sab_pma": {"model": dict(encoder_layers=2)},
    "form=paper": {"model": dict(embed=True)},
}
EDITS = {
    "protocol=demo": {
        "task": dict(low=1.0, high=99.0, integers=True),
        "optimizer": dict(learning_rate=1e-4),
        "train": dict(steps=500, batch_size=1024, size_classes=10, log_every=100, validate_every=500),
    },
    "preset=quick": {"optimizer": dict(schedule="cosine"), "train": dict(seeds=3)},
    "preset=quick,protocol=paper": {"train": dict(steps=5000, validate_every=1000)},
    "preset=tiny": {
        "model": dict(dim=16),
        "train": dict(steps=20, batch_size=8, seeds=2, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=20, batch_size=10, example_tasks=20),
    },
}


def sweep() -> list[dict[str, str]]:
    """The cells of Table 1."""
    return [{"model": model} for model in MODELS]


def operators() -> list[dict[str, str]]:
    """The Set Transformer with every operator; softmax attention is its own."""
    return [{"model": "sab_pma", "op": "own" if op == "softmax" else op} for op in common.operators()]
