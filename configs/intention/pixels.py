"""Completing an image from some of its pixels: Intention paper, Section 5.1, Appendix 4.2; Figures 7 (right) and 13.

    python -m experiments.run --config configs/intention/pixels.py:model=intention,preset=quick
    python -m scripts.sweep --config configs/intention/pixels.py:preset=quick,source=archive --data_dir DATA    # MNIST

source=archive reads the original MNIST files, source=tfds what TensorFlow Datasets prepared. source=digits is
scikit-learn's 8x8 digits, which need no download.

`paper` trains the models of the sine curves on 264 of 784 pixels; on 8x8 images on the same third, 22 of 64. MAML has
the paper's inner rate of 0.1, which sine curves do not bear. The paper leaves open, and we chose: Fourier features as
positional encoding, 8 images in a batch, and gradients clipped at norm 1. `quick` trains narrower networks on 1 to so
many pixels. Its Intention has for e_w, which the paper leaves open, an MLP beside the identity: a model that is linear
in its values cannot expect anything of a curve that it has not seen.
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "maml")
RATES = {"intention": 3e-4, "attention": 1e-4, "neural_process": 1e-4, "maml": 3e-3}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, source."""
    axes = common.parse_axes(arg, model=MODELS, preset=common.PRESETS, source=("digits", "archive", "tfds"))
    config = dict(
        name="intention/pixels",
        experiment="regression",
        axes=axes,
        task=dict(name="pixels", min_context=264, max_context=264),
        data=dict(name="mnist", source=axes["source"], validation_images=5000),
        model=common.model(axes["model"], fourier_levels=6),
        optimizer=common.optimizer("adam", RATES[axes["model"]], clip_norm=1.0),
        train=common.train(50_000, 8, seeds=5, log_every=500, validate_every=5000, checkpoint_every=2500),
        evaluation=common.evaluation(
            untrained=True,
            tasks=10_000,
            batch_size=10,
            counts=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 784),
            example_tasks=4,
            example_counts=(10, 30, 100, 264, 784),
        ),
    )
    return common.edited(config, EDITS, common.TINY_REGRESSION)


EDITS = {
    "source=digits": {
        "task": dict(min_context=22, max_context=22),
        "data": dict(name="digits", validation_images=200),
        "model": dict(fourier_levels=3),
        "evaluation": dict(counts=(1, 2, 4, 8, 16, 32, 64), example_counts=(4, 11, 22, 64)),
    },
    "preset=quick|tiny": {"task": dict(min_context=1)},
    "preset=quick|tiny,model=intention|attention|neural_process": {"optimizer": dict(learning_rate=1e-3)},
    # At the paper's rate the inner steps diverge from many initialisations, and learn less.
    "preset=quick|tiny,model=maml": {"model": dict(inner_rate=0.01)},
    "preset=quick": {
        "train": dict(steps=2000, seeds=3, log_every=50, validate_every=500, checkpoint_every=250),
        "evaluation": dict(validation_batches=8, tasks=1000),
    },
    "preset=quick,model=intention": {"model": dict(key_features=(128,) * 4, weight_features=(128,))},
    "preset=quick,model=attention": {"model": common.attention_layers(64, head=16)},
    "preset=quick,model=neural_process": {"model": common.process_layers(128)},
}


def sweep() -> list[dict[str, str]]:
    """The cells of Figure 7 (right) and the columns of Figure 13."""
    return [{"model": model} for model in MODELS]
