"""Set anomalies: Set Transformer (Lee et al. 2019), Section 5.5.

    python -m experiments.run --data_dir DATA --config configs/set_transformer/anomaly.py:model=sab_pma,preset=quick
    python -m scripts.sweep --data_dir DATA --config configs/set_transformer/anomaly.py:preset=quick

source     celeba, the default of `paper`, reads DATA/celeba with list_attr_celeba.txt beside the list of partitions:
           seven faces have two attributes in common, of which the eighth has none. The others are of
           experiments/data/image_classes.py, with seven images of one class and one of another: omniglot, the default
           of `quick`, mini_imagenet, cifar_fs, folders, and digits, the default of `tiny`
form, op   as in max.py

The paper says what its sets are and that 1000 of them are judged together. The rest is ours: the network (four SABs, as
an author has said; experiments/set_transformer/anomaly), faces of 32 x 32 pixels, rate, batch, steps, and
the weights of the best validation loss.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import IMAGE_SET_DETECTORS
from kvq_jax.nn import SET_FORMS

# Not MODELS: their data must be there to take two steps of `paper`, so that no test does.
_MODELS = ("rff_mean", "rff_pma", "sab_mean", "sab_pma")
# What 'base' is.
BASES = {"preset=paper": dict(source="celeba"), "preset=quick": dict(source="omniglot"), "": dict(source="digits")}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, source, form, op."""
    axes = common.parse_axes(
        arg,
        model=_MODELS,
        preset=common.PRESETS,
        source=("base", "celeba", "omniglot", "mini_imagenet", "cifar_fs", "folders", "digits"),
        form=("code", "paper"),
        op=("own", *common.operators()),
    )
    axes = common.resolved(axes, BASES)
    name = axes["model"]
    config = dict(
        name="set_transformer/anomaly",
        experiment="set_transformer.anomaly",
        axes=axes,
        task=dict(set_size=8, shared=1),
        data=dict(source=axes["source"], size=32),
        model=common.model(
            name,
            table=IMAGE_SET_DETECTORS,
            dim=64,
            num_heads=4,
            encoder_layers=4,
            head=(64,),
            **IMAGE_SET_DETECTORS[name].parts,
            **SET_FORMS[axes["form"]],
        ),
        optimizer=common.optimizer("adam", 1e-4),
        train=common.train(20_000, 32, log_every=200, validate_every=1000, checkpoint_every=1000, select="best"),
        evaluation=common.evaluation(tasks=10_000, batch_size=50, example_tasks=6, together=1000),
    )
    return common.edited(config, PARTS, common.swap(axes), EDITS)


PARTS = {
    "form=paper": {"model": dict(embed=True)},
    "source=celeba": {"task": dict(shared=2)},
    "source=omniglot": {"data": dict(size=28)},
}
EDITS = {
    "preset=quick": {
        "model": dict(dim=32, features=(16, 32, 32, 32), encoder_layers=2, head=(32,)),
        "optimizer": dict(learning_rate=1e-3, schedule="cosine"),
        "train": dict(steps=1000, seeds=3, log_every=100, validate_every=200, checkpoint_every=200),
        "evaluation": dict(validation_batches=16, tasks=4000),
    },
    "preset=tiny": {
        "data": dict(size=8),
        "model": dict(dim=8, features=(8,), pool_heads=4, encoder_layers=1, head=(8,)),
        "train": dict(steps=20, batch_size=8, seeds=2, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=20, batch_size=20, example_tasks=2, together=10),
    },
}


def sweep() -> list[dict[str, str]]:
    """The cells of the table."""
    return [{"model": model} for model in _MODELS]
