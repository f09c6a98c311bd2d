"""The encoder whose features of CIFAR-100 are clustered: Set Transformer (Lee et al. 2019), Section 5.3.

    python -m experiments.run --config configs/set_transformer/encoder.py:preset=quick --data_dir DATA
    python -m scripts.prepare_data embed --weights RUN --data_dir DATA --out DATA/cifar100_vgg.npz

RUN is the folder that the first command prints; configs/set_transformer/features.py reads what the second writes.

data  cifar100, the default but in `tiny`, or scikit-learn's digits

The paper says that it is a VGG with 68.54% of the test images right, whose features are 512 wide. The rest is ours:
VGG-16 with batch normalisation and one layer of classes; 200 times all images with SGD, as is usual on CIFAR; images
moved by up to 4 pixels and mirrored. A twentieth of the training images validates. `quick` has one convolution in a
stage, narrower ones before the last, and 1800 batches of 64 images that are mirrored alone.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import IMAGE_CLASSIFIERS

MODELS = ("vgg",)
# What 'base' is.
BASES = {"preset=tiny": dict(data="digits"), "": dict(data="cifar100")}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, data."""
    axes = common.parse_axes(arg, model=MODELS, preset=common.PRESETS, data=("base", "cifar100", "digits"))
    axes = common.resolved(axes, BASES)
    config = dict(
        name="set_transformer/encoder",
        experiment="set_transformer.encoder",
        axes=axes,
        task=dict(padding=4, mirror=True),
        data=dict(name=axes["data"], source="archive", validation_fraction=0.05),
        model=common.model(axes["model"], table=IMAGE_CLASSIFIERS, classes=100),
        optimizer=common.optimizer("sgd", 0.1, schedule="cosine", warmup_steps=500, momentum=0.9, weight_decay=5e-4),
        train=common.train(74_000, 128, log_every=500, validate_every=2000, checkpoint_every=2000),
        evaluation=common.evaluation(batch_size=100),
    )
    return common.edited(config, EDITS)


EDITS = {
    "data=digits": {"data": dict(source="digits"), "task": dict(mirror=False), "model": dict(classes=10)},
    "preset=quick": {
        "task": dict(padding=0),
        "model": dict(convolutions=(1, 1, 1, 1, 1), features=(16, 32, 64, 128, 512)),
        "optimizer": dict(learning_rate=0.05, warmup_steps=100),
        "train": dict(steps=1800, batch_size=64, log_every=50, validate_every=300, checkpoint_every=300),
        "evaluation": dict(validation_batches=8),
    },
    "preset=quick,data=digits": {"model": dict(convolutions=(1, 1, 1), features=(16, 32, 512))},
    "preset=tiny": {
        "task": dict(padding=1),
        "model": dict(convolutions=(1, 2), features=(4, 8)),
        "optimizer": dict(learning_rate=0.05, warmup_steps=5),
        "train": dict(steps=60, batch_size=16, seeds=2, log_every=20, validate_every=60, checkpoint_every=20),
        "evaluation": dict(validation_batches=1),
    },
}


def sweep() -> list[dict[str, str]]:
    """The encoder."""
    return [{"model": model} for model in MODELS]
