"""Amortised clustering of features of CIFAR-100: Set Transformer (Lee et al. 2019), Section 5.3.

    python -m experiments.run --config configs/set_transformer/encoder.py:preset=quick --data_dir DATA
    python -m scripts.prepare_data embed --weights RUN --data_dir DATA --out DATA/cifar100_vgg.npz
    python -m scripts.sweep --config configs/set_transformer/features.py:preset=quick,data=cifar100 --data_dir DATA
    python -m experiments.run --config configs/set_transformer/features.py:model=isab16_pma,preset=quick

data    cifar100, the default of `paper`, reads features of any width from the file of data.file, beside CIFAR-100
        itself. The paper's are of a VGG that was trained on these classes, as those of the first two commands are,
        where RUN is the folder of the encoder's run. digits, the default else, are the pixels of scikit-learn's digits,
        under that name
images  seen: all sets are of training images, whose classes the encoder was told, as in the paper. unseen: the test
        sets are of 100 to 200 test images, of which nobody was told a class; those to train on are as large
form, op   as in clustering.py

Features are centred and divided by one number. `paper` has the layers of the supplement's Table 7, but for "PMA_4(128,
4)", which does not fit the others: here it is 256 wide, as they are; and one seed, where the paper's errors are of five
runs (--config.train.seeds=5). --config.data.file=FILE has features by another
network, such as the ResNet of prepare_data; of a width d that is not 512 they need
--config.model.out_features, 1 + 2 d. `quick` has three seeds and a quarter of the width.
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
    "sab_mean",
    "isab16_mean",
    "isab32_mean",
    "isab64_mean",
    "rff_pma",
    "sab_pma",
    "isab16_pma",
    "isab32_pma",
    "isab64_pma",
)
# What 'base' is.
BASES = {"preset=paper": dict(data="cifar100"), "": dict(data="digits")}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, data, images, form, op."""
    axes = common.parse_axes(
        arg,
        model=MODELS,
        preset=common.PRESETS,
        data=("base", "cifar100", "digits"),
        images=("seen", "unseen"),
        form=("code", "paper"),
        op=("own", *common.operators()),
    )
    axes = common.resolved(axes, BASES)
    name = axes["model"]
    config = dict(
        name="set_transformer/features",
        experiment="set_transformer.features",
        axes=axes,
        task=dict(clusters=4, min_size=100, max_size=500),
        data=dict(name=axes["data"], source="archive", file="cifar100_vgg.npz", test_images="train"),
        model=common.model(
            name,
            table=SET_NETWORKS,
            dim=256,
            num_heads=4,
            num_seeds=4,
            num_outputs=4,
            out_features=1025,  # a logit, a mean, standard deviations
            **SET_NETWORKS[name].parts,
            **SET_FORMS[axes["form"]],
        ),
        optimizer=common.optimizer("adam", 1e-4, schedule="drop", decay_begin=35_000, decay_rate=0.1),
        train=common.train(50_000, 10, size_classes=8, log_every=500, validate_every=2500, checkpoint_every=2500),
        evaluation=common.evaluation(tasks=1000, batch_size=10, example_tasks=2, em_tasks=100, em_starts=10),
    )
    return common.edited(config, PARTS, common.swap(axes), EDITS)


_ROWS = "rff_mean|rffp_mean|rffp_max|rff_dotprod|rff_pma"
_PMA = "rff_pma|sab_pma|isab16_pma|isab32_pma|isab64_pma"
_BLOCK_MEANS = "sab_mean|isab16_mean|isab32_mean|isab64_mean"
_POOLED = f"rff_mean|rffp_mean|rffp_max|rff_dotprod|{_BLOCK_MEANS}"
PARTS = {
    f"model={_ROWS}": {"model": dict(encoder_layers=6, activate_last=False)},
    f"model={_BLOCK_MEANS}|sab_pma|isab16_pma|isab32_pma|isab64_pma": {"model": dict(encoder_layers=3)},
    f"model={_POOLED}": {"model": dict(head=(256,) * 5)},
    f"model={_PMA}": {"model": dict(decoder_layers=2)},
    "form=paper": {"model": dict(embed=True)},
    "data=digits": {"data": dict(source="digits"), "model": dict(out_features=129)},
}
EDITS = {
    "images=unseen": {"task": dict(max_size=200), "data": dict(test_images="test")},
    "preset=quick": {
        "model": dict(dim=64),
        "optimizer": dict(learning_rate=1e-3, decay_begin=700),
        "train": dict(steps=1000, seeds=3, size_classes=2, log_every=50, validate_every=250, checkpoint_every=250),
        "evaluation": dict(validation_batches=8, tasks=500, em_tasks=20),
    },
    f"preset=quick,model={_POOLED}": {"model": dict(head=(64,) * 5)},
    "preset=tiny": {
        "task": dict(min_size=20, max_size=40),
        "model": dict(dim=8, encoder_layers=1),
        "optimizer": dict(decay_begin=14),
        "train": dict(steps=20, seeds=2, size_classes=1, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=6, batch_size=6, em_tasks=2, em_starts=1),
    },
    f"preset=tiny,model={_POOLED}": {"model": dict(head=(8,) * 5)},
}


def sweep() -> list[dict[str, str]]:
    """The cells of the table."""
    return [{"model": model} for model in MODELS]
