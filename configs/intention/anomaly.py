"""Which of ten images is of another class? Intention paper, Section 5.5 and Appendix 8; Table 3.

    python -m experiments.run --config configs/intention/anomaly.py:model=transformer,layers=1,preset=quick
    python -m scripts.sweep --config configs/intention/anomaly.py:preset=quick,source=archive --data_dir DATA     # Table 3
    python -m scripts.sweep --config configs/intention/anomaly.py:preset=paper --data_dir DATA

source=digits (the default but in `paper`) is scikit-learn's 8x8 digits, which need no download and have ten classes; archive
(the default in `paper`) reads CIFAR-100's train.bin and test.bin, or those of a subset, and tfds what TensorFlow Datasets
prepared. features=resnet34, the paper's and on CIFAR-100 the default in `paper`, reads the file DATA/cifar100_resnet34.npz that
`scripts.prepare_data embed` writes once; raw_pixels_pca needs no weights and is another, harder task. splits=stratified takes
the official test images, and a tenth of the training images of each class for validation; splits=classes, the other reading of
the paper's "splits are done over labels", tests on classes that no model has seen: a sixth of them, as 10,000 is of 60,000. op=
swaps the operator of model=transformer for another of kvq_jax.ops.OPS.

`paper` has the widths, input dropout, rate, warm-up and epochs of Appendix 8. What it leaves open is the tutorial's that it
follows (experiments/intention/anomaly.py): 64 sets in a batch, as many sets in an epoch as training images, gradients clipped
at norm 1, the weights of the best validation loss; but not its dropout of 0.1 behind every layer, which the paper does not
name and which keeps a `quick` Lin-Transformer of 4 layers near chance. The cosine ends at 0, and there are five seeds, because
the paper's models differ by less than one seed tells. `quick` has an eighth of the width, 4000 steps and a larger rate.
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("transformer", "lin_transformer", "informer", "sigma_informer", "np_former")
LAYERS = ("1", "4")
PRESETS = ("quick", "tiny", "paper")
SOURCES = ("base", "digits", "archive", "tfds")
FEATURES = ("base", "raw_pixels_pca", "resnet34")
SPLITS = ("stratified", "classes")
# 'own' leaves each model its op.
OPS = ("own", *common.OPS)


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, layers, preset, source, features, splits, op."""
    axes = common.parse_axes(
        arg, model=MODELS, layers=LAYERS, preset=PRESETS, source=SOURCES, features=FEATURES, splits=SPLITS, op=OPS
    )
    if axes["op"] != "own" and axes["model"] != "transformer":
        raise ValueError(f"op={axes['op']} swaps the op of model=transformer, not that of model={axes['model']}")
    preset = axes["preset"]
    if axes["source"] == "base":
        axes["source"] = "archive" if preset == "paper" else "digits"
    digits = axes["source"] == "digits"
    if axes["features"] == "base":
        axes["features"] = "resnet34" if preset == "paper" and not digits else "raw_pixels_pca"
    # An epoch of CIFAR-100 has 45,000 sets in 704 batches.
    rate, warmup = {"tiny": (5e-4, 10), "quick": (5e-4, 100), "paper": (5e-5, 100)}[preset]
    steps = {"tiny": 40, "quick": 4000, "paper": 100 * 704}[preset]
    log_every = {"tiny": 10, "quick": 100, "paper": 704}[preset]
    features = {
        "raw_pixels_pca": dict(
            dimension={"tiny": 16, "quick": 40 if digits else 128, "paper": 40 if digits else 512}[preset]
        ),
        "resnet34": dict(file="cifar100_resnet34.npz"),
    }
    return ConfigDict(
        dict(
            name="intention/anomaly",
            experiment="intention.anomaly",
            axes=axes,
            task=dict(set_size=10),
            data=dict(
                name="digits" if digits else "cifar100",
                source=axes["source"],
                splits=axes["splits"],
                validation_fraction=0.1,
                test_fraction=1 / 6,
                seed=0,
            ),
            features=dict(name=axes["features"]) | features[axes["features"]],
            model=_model(axes["model"], int(axes["layers"]), axes["op"], preset),
            optimizer=common.optimizer("adam", rate, schedule="cosine", warmup_steps=warmup, clip_norm=1.0),
            train=dict(
                steps=steps,
                batch_size=64,
                seed=0,
                seeds={"tiny": 2, "quick": 1, "paper": 5}[preset],
                log_every=log_every,
                validate_every=log_every * {"tiny": 2, "quick": 5, "paper": 5}[preset],
                checkpoint_every=log_every * {"tiny": 1, "quick": 10, "paper": 5}[preset],
                placement="single",
                select="best",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches={"tiny": 1, "quick": 32, "paper": 78}[preset],
                untrained=False,
                tasks={"tiny": 100, "quick": 10_000, "paper": 10_000}[preset],
                batch_size=100,
                example_sets=6,
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of Table 3."""
    return [{"model": model, "layers": layers} for layers in LAYERS for model in MODELS]


def _model(name: str, layers: int, op: str, preset: str) -> dict:
    """The model section: widths of Appendix 8, or an eighth of them, or small ones."""
    head, hidden = {"tiny": (4, 32), "quick": (32, 256), "paper": (256, 2048)}[preset]
    width = 4 * head
    heads = dict(num_heads=4, head_features=head, embed_features=width, scaling="none", hidden=hidden)
    ridge = dict(alpha_kind="sigmoid", alpha=0.5)
    own = {
        "transformer": heads,
        "lin_transformer": heads,
        "informer": heads | ridge,
        "sigma_informer": heads | ridge,
        "np_former": dict(hidden=hidden, embed_features=width, context_features=width),
    }[name]
    if op != "own":
        own = own | ridge | dict(op=op)
    return dict(name=name, num_layers=layers, features=width, input_dropout=0.2, dropout=0.0, options=own)
