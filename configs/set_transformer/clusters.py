"""Amortised clustering with a number of clusters that varies from set to set. Ours, after Table 3 of Lee et al. 2019.

    python -m experiments.run --config configs/set_transformer/clusters.py:model=isab16_pma,preset=quick
    python -m scripts.sweep --config configs/set_transformer/clusters.py:preset=quick

Two to six clusters, and 100 to 500 points; the network is told how many. Everything else, op and form too, is as in
clustering.py.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import SET_NETWORKS
from kvq_jax.nn import SET_FORMS

# Not MODELS, of which a test makes two steps of `paper`: it makes them of clustering.py, without masked seeds.
_MODELS = ("rff_mean", "rff_pma", "sab_pma", "isab16_pma")
_MOST = 6


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, size, form, op."""
    axes = common.parse_axes(
        arg,
        model=_MODELS,
        preset=common.PRESETS,
        size=("varying",),
        form=("code", "paper"),
        op=("own", *common.operators()),
    )
    name = axes["model"]
    config = dict(
        name="set_transformer/clusters",
        experiment="set_transformer.clusters",
        axes=axes,
        task=dict(
            clusters=_MOST, min_clusters=2, dimension=2, position=(-4.0, 4.0), std=0.3, min_size=100, max_size=500
        ),
        model=common.model(
            name,
            table=SET_NETWORKS,
            dim=128,
            num_heads=4,
            num_seeds=_MOST,
            num_outputs=_MOST,
            out_features=5,  # a logit, a mean, two standard deviations
            **SET_NETWORKS[name].parts,
            **SET_FORMS[axes["form"]],
        ),
        optimizer=common.optimizer("adam", 1e-3, schedule="drop", decay_begin=35_000, decay_rate=0.1),
        train=common.train(50_000, 10, size_classes=8, log_every=500, validate_every=2500, checkpoint_every=2500),
        evaluation=common.evaluation(tasks=1000, batch_size=20, example_tasks=4, em_tasks=100, em_starts=10),
    )
    return common.edited(config, PARTS, common.swap(axes), EDITS)


PARTS = {
    "model=rff_mean|rff_pma": {"model": dict(encoder_layers=4)},
    "model=rff_mean": {"model": dict(head=(128, 128, 128))},
    "model=rff_pma|sab_pma|isab16_pma": {"model": dict(decoder_layers=1)},
    "form=paper": {"model": dict(embed=True)},
}
EDITS = {
    "preset=quick": {
        "model": dict(dim=64),
        "optimizer": dict(decay_begin=2100),
        "train": dict(steps=3000, size_classes=4, log_every=100, validate_every=500, checkpoint_every=500),
        "evaluation": dict(em_tasks=50, validation_batches=8),
    },
    "preset=quick,model=rff_mean": {"model": dict(head=(64, 64, 64))},
    "preset=quick,model=sab_pma": {"train": dict(steps=1000), "optimizer": dict(decay_begin=700)},
    "preset=tiny": {
        "task": dict(min_size=20, max_size=50),
        "model": dict(dim=8, encoder_layers=1),
        "optimizer": dict(decay_begin=14),
        "train": dict(steps=20, seeds=2, size_classes=1, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=6, batch_size=6, em_tasks=2, em_starts=1),
    },
    "preset=tiny,model=rff_mean": {"model": dict(head=(8, 8, 8))},
}


def sweep() -> list[dict[str, str]]:
    """The cells of the table."""
    return [{"model": model} for model in _MODELS]
