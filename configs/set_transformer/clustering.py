"""Amortised clustering: Set Transformer (Lee et al. 2019), Section 5.3, Table 3, and the tables of its supplement.

    python -m experiments.run --config configs/set_transformer/clustering.py:model=isab16_pma,preset=quick
    python -m scripts.sweep --config configs/set_transformer/clustering.py:preset=quick                  # Table 3
    python -m scripts.sweep --config configs/set_transformer/clustering.py:preset=quick --cells large
    python -m scripts.sweep --config configs/set_transformer/clustering.py:preset=quick --cells operators

size=small has 4 clusters of 100 to 500 points in all, size=large 6 of 1000 to 5000. The sets of a batch share their
number of points, as in the released code; those of the evaluation do not.

protocol=paper is the paper's text. protocol=code has what the released code has otherwise: 300 to 599 points, one
standard deviation for both coordinates of a cluster, two SABs in the decoder, and a rate that drops after half of the
steps. deep_sets is the baseline of the code.

form=code has the blocks of the released code, form=paper those of the paper (kvq_jax.nn.SET_FORMS), behind a linear
layer to their width. op is that of all blocks; 'own' is softmax attention.

`paper` has one seed; --config.train.seeds=5 has the five runs of the paper. It is judged on ten times the paper's 1000
sets, whose likelihoods vary so much that the choice of the sets would be seen beside the paper's spread. `quick` has
half of the width and the steps that it can take in some minutes, of SABs a third of those of others, with the drop at
the same share of them.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import SET_NETWORKS
from kvq_jax.nn import SET_FORMS

MODELS = (
    "rff_mean",
    "rffp_mean",
    "rffp_max",
    "rff_dotprod",
    "rff_attsets",
    "sab_mean",
    "isab16_mean",
    "isab32_mean",
    "isab64_mean",
    "rff_pma",
    "sab_pma",
    "isab16_pma",
    "isab32_pma",
    "isab64_pma",
    "deep_sets",
)
LARGE = ("rff_mean", "rffp_mean", "rff_pma", "isab32_pma")
CLUSTERS = {"small": 4, "large": 6}
SIZES = {"small": dict(min_size=100, max_size=500), "large": dict(min_size=1000, max_size=5000)}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, size, protocol, form, op."""
    axes = common.parse_axes(
        arg,
        model=MODELS,
        preset=common.PRESETS,
        size=tuple(SIZES),
        protocol=("paper", "code"),
        form=("code", "paper"),
        op=("own", *common.operators()),
    )
    name, clusters = axes["model"], CLUSTERS[axes["size"]]
    config = dict(
        name="set_transformer/clustering",
        experiment="set_transformer.clustering",
        axes=axes,
        task=dict(clusters=clusters, dimension=2, position=(-4.0, 4.0), std=0.3, **SIZES[axes["size"]]),
        model=common.model(
            name,
            table=SET_NETWORKS,
            dim=128,
            num_heads=4,
            num_seeds=clusters,
            num_outputs=clusters,
            out_features=5,  # a logit, a mean, two standard deviations
            **SET_NETWORKS[name].parts,
            **SET_FORMS[axes["form"]],
        ),
        optimizer=common.optimizer("adam", 1e-3, schedule="drop", decay_begin=35_000, decay_rate=0.1),
        train=common.train(50_000, 10, size_classes=8, log_every=500, validate_every=2500, checkpoint_every=2500),
        evaluation=common.evaluation(tasks=10_000, batch_size=20, example_tasks=4, em_tasks=100, em_starts=10),
    )
    return common.edited(config, PARTS, common.swap(axes), EDITS)


_ROWS = "rff_mean|rffp_mean|rffp_max|rff_dotprod|rff_attsets|rff_pma|deep_sets"
_PMA = "rff_pma|sab_pma|isab16_pma|isab32_pma|isab64_pma"
_POOLED = "rff_mean|rffp_mean|rffp_max|rff_dotprod|rff_attsets|sab_mean|isab16_mean|isab32_mean|isab64_mean|deep_sets"
PARTS = {
    f"model={_ROWS}": {"model": dict(encoder_layers=4)},
    f"model={_POOLED}": {"model": dict(head=(128, 128, 128))},
    f"model={_PMA}": {"model": dict(decoder_layers=1)},
    "form=paper": {"model": dict(embed=True)},
}
EDITS = {
    "protocol=code": {"model": dict(out_features=4), "optimizer": dict(decay_begin=25_000)},
    "protocol=code,size=small": {"task": dict(min_size=300, max_size=599)},
    f"protocol=code,model={_PMA}": {"model": dict(decoder_layers=2)},
    "preset=quick": {
        "model": dict(dim=64),
        "train": dict(size_classes=4, log_every=100),
        "evaluation": dict(tasks=1000, em_tasks=50, validation_batches=8),
    },
    "preset=quick,size=small": {"train": dict(steps=3000, validate_every=500, checkpoint_every=500)},
    "preset=quick,size=large": {
        "train": dict(steps=500, validate_every=100, checkpoint_every=100),
        "evaluation": dict(tasks=200, em_tasks=20),
    },
    "preset=quick,size=small,protocol=paper": {"optimizer": dict(decay_begin=2100)},
    "preset=quick,size=small,protocol=code": {"optimizer": dict(decay_begin=1500)},
    "preset=quick,size=large,protocol=paper": {"optimizer": dict(decay_begin=350)},
    "preset=quick,size=large,protocol=code": {"optimizer": dict(decay_begin=250)},
    # Their time grows with the square of the points.
    "preset=quick,size=small,model=sab_mean|sab_pma": {"train": dict(steps=1000)},
    "preset=quick,size=small,protocol=paper,model=sab_mean|sab_pma": {"optimizer": dict(decay_begin=700)},
    "preset=quick,size=small,protocol=code,model=sab_mean|sab_pma": {"optimizer": dict(decay_begin=500)},
    f"preset=quick,model={_POOLED}": {"model": dict(head=(64, 64, 64))},
    "preset=tiny": {
        "task": dict(min_size=20, max_size=50),
        "model": dict(dim=8),
        "optimizer": dict(decay_begin=14),
        "train": dict(steps=20, seeds=2, size_classes=2, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=6, batch_size=3, em_tasks=2, em_starts=1),
    },
    f"preset=tiny,model={_POOLED}": {"model": dict(head=(8, 8, 8))},
}


def sweep() -> list[dict[str, str]]:
    """The cells of Table 3 and those of its supplement; rff_attsets, which is ours; and deep_sets, of the code."""
    return [{"model": model} for model in MODELS]


def large() -> list[dict[str, str]]:
    """The cells of the table of large sets."""
    return [{"model": model, "size": "large"} for model in LARGE]


def operators() -> list[dict[str, str]]:
    """The Set Transformer with every operator; softmax attention is its own."""
    return [{"model": "isab16_pma", "op": "own" if op == "softmax" else op} for op in common.operators()]
