"""Few-shot classification of images: Intention paper, Section 5.2 and Appendix 5; Tables 1 and 2, Figure 14.

    python -m experiments.run --config configs/intention/few_shot_classification.py:model=intention,preset=quick --data_dir DATA
    python -m scripts.sweep --config configs/intention/few_shot_classification.py:preset=quick --data_dir DATA    # both tables
    python -m scripts.sweep --config configs/intention/few_shot_classification.py:preset=quick --cells figure14 --data_dir DATA

encoder=conv4 is that of matching networks (Table 1), resnet12 a ResNet-12 of MetaOptNet's widths (Table 2), resnet12_512 the
narrower one; the paper does not say which. model=intention has further axes: covariance (ls_svm is the paper's Intention,
within_class its "QDA", qda the real one), kernel and latent, the features of e_H: 8192, or 32 with a Gaussian kernel, where
`base`, and 16 to 128 for Figure 14. op= swaps the operator of model=attention for another of kvq_jax.ops.OPS.

source=mini_imagenet (the default but in `tiny`) reads DATA/mini_imagenet: images/ and Ravi's train.csv, val.csv, test.csv;
mini_imagenet_80 divides the same classes 80/10/10, as the paper did, into parts that it does not name; cifar_fs, omniglot and
folders read folders of classes; digits are scikit-learn's, with at least three classes in each split, and 3-way episodes.
size=28 is the paper's size, 84 everybody else's: `paper` has 84, `quick` 28.

`paper` has the widths, SGD with momentum, additive weight decay and decaying rates of Appendix 5, 5-way 5-shot episodes with 15
queries. What it leaves open: 8 episodes in a batch (MetaOptNet's), 60,000 steps and the weights of the best validation loss for
"to convergence", no augmentation, batch norm by the episode's own statistics, as in MAML's code, whose architecture the paper
follows (--config.encoder.statistics=running for averages), alpha 50 as in R2-D2 and MetaOptNet, 0.1 with a Gaussian kernel,
learnt, and that kernel's width from the variance of the features. MAML's own training is Adam; the prototypes are trained like
it. What the paper quotes for MAML is its first-order form, which is ours too (--config.model.first_order=False for the other).
`quick` has narrower networks, 2 episodes in a batch (1 with a ResNet), and Adam with a rate that falls to 0.
"""

from ml_collections import ConfigDict

from configs import common

# Not MODELS: two steps of `paper` are too many for a test of every model on two CPU cores. It has a test of its own, of shapes.
_MODELS = ("intention", "attention", "neural_process", "prototypes", "maml")
PRESETS = ("quick", "tiny", "paper")
ENCODERS = ("conv4", "resnet12", "resnet12_512")
COVARIANCES = ("ls_svm", "ridge", "lda", "within_class", "qda")
KERNELS = ("linear", "gaussian")
LATENTS = ("base", "16", "32", "64", "128")
SOURCES = ("base", "mini_imagenet", "mini_imagenet_80", "cifar_fs", "omniglot", "folders", "digits")
SIZES = ("base", "28", "84")
# 'own' is softmax.
OPS = ("own", *common.OPS)


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, encoder, covariance, kernel, latent, op, source, size, preset."""
    axes = common.parse_axes(
        arg,
        model=_MODELS,
        encoder=ENCODERS,
        covariance=COVARIANCES,
        kernel=KERNELS,
        latent=LATENTS,
        op=OPS,
        source=SOURCES,
        size=SIZES,
        preset=PRESETS,
    )
    _check(axes)
    preset, conv = axes["preset"], axes["encoder"] == "conv4"
    if axes["source"] == "base":
        axes["source"] = "digits" if preset == "tiny" else "mini_imagenet"
    if axes["size"] == "base":
        axes["size"] = {"tiny": "16", "quick": "28", "paper": "84"}[preset]
    log_every = {"tiny": 10, "quick": 50, "paper": 200}[preset]
    return ConfigDict(
        dict(
            name="intention/few_shot_classification",
            experiment="intention.few_shot_classification",
            axes=axes,
            task=dict(
                way=3 if axes["source"] == "digits" else 5,
                shot={"tiny": 2, "quick": 5, "paper": 5}[preset],
                query={"tiny": 3, "quick": 15, "paper": 15}[preset],
            ),
            data=dict(source=axes["source"], size=int(axes["size"])),
            encoder=_encoder(axes["encoder"], preset),
            model=_model(axes, preset),
            optimizer=_optimizer(axes["model"], preset),
            train=dict(
                steps={"tiny": 20, "quick": _quick_steps(axes["model"], conv), "paper": 60_000}[preset],
                batch_size={"tiny": 2, "quick": 2 if conv else 1, "paper": 8}[preset],
                seed=0,
                seeds={"tiny": 2, "quick": 1, "paper": 1}[preset],
                log_every=log_every,
                validate_every=log_every * {"tiny": 1, "quick": 2, "paper": 5}[preset],
                checkpoint_every=log_every * {"tiny": 1, "quick": 4, "paper": 5}[preset],
                placement="single",
                select="best",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches={"tiny": 1, "quick": 16 if conv else 32, "paper": 64}[preset],
                untrained=False,
                tasks={"tiny": 10, "quick": 1000, "paper": 1000}[preset],
                batch_size={"tiny": 5, "quick": 2, "paper": 8}[preset],
                example_tasks=1,
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of Tables 1 and 2."""
    table1 = [{"model": model, "encoder": "conv4"} for model in _MODELS]
    intentions = ({}, {"kernel": "gaussian"}, {"covariance": "within_class"})
    return table1 + [{"model": "intention", "encoder": "resnet12"} | own for own in intentions]


def figure14() -> list[dict[str, str]]:
    """The cells of Figure 14. "The same experimental protocol": the paper names no encoder; ours is that of Table 1."""
    return [{"model": "intention", "kernel": kernel, "latent": latent} for kernel in KERNELS for latent in LATENTS[1:]]


def _check(axes: dict[str, str]) -> None:
    """Raises ValueError for an axis that the model does not have."""
    owners = {"covariance": "intention", "kernel": "intention", "latent": "intention", "op": "attention"}
    usual = {"covariance": COVARIANCES[0], "kernel": KERNELS[0], "latent": LATENTS[0], "op": OPS[0]}
    for axis, owner in owners.items():
        if axes["model"] != owner and axes[axis] != usual[axis]:
            raise ValueError(f"{axis}={axes[axis]} is for model={owner}, not for model={axes['model']}")


def _encoder(name: str, preset: str) -> dict:
    """The encoder section."""
    if name == "conv4":
        return dict(
            name="conv", features=({"tiny": 8, "quick": 32, "paper": 64}[preset],) * 4, statistics="transductive"
        )
    widths = {"resnet12": (64, 160, 320, 640), "resnet12_512": (64, 128, 256, 512)}[name]
    shrink = {"tiny": 16, "quick": 4, "paper": 1}[preset]
    features = tuple(width // shrink for width in widths)
    return dict(name="resnet12", features=features, statistics="transductive", pool=False, drop_rate=0.0, drop_size=5)


def _model(axes: dict[str, str], preset: str) -> dict:
    """The model section: the sizes of Appendix 5, or smaller ones."""
    name, linear = axes["model"], axes["kernel"] == "linear"
    base = {"tiny": 32, "quick": 2048, "paper": 8192}[preset] if linear else 32
    width = {"tiny": 16, "quick": 128, "paper": 512}[preset]
    op = "softmax" if axes["op"] == "own" else axes["op"]
    own = {
        "intention": dict(
            latent=base if axes["latent"] == "base" else int(axes["latent"]),
            covariance=axes["covariance"],
            kernel=axes["kernel"],
            gamma="variance",
            alpha=50.0 if linear else 0.1,
            alpha_kind="softplus",
        ),
        "attention": dict(
            latent=width,
            value_features=(width,) * 4,
            decoder_features=(width,) * 3,
            op=op,
            num_heads=5,
            head_features=width,
            scaling="head",
            **common.ridge(op, 1.0),
        ),
        "neural_process": dict(latent=4 * width, decoder_features=(2 * width,)),
        "prototypes": {},
        "maml": dict(
            inner_steps={"tiny": 2, "quick": 5, "paper": 5}[preset],
            test_steps={"tiny": 2, "quick": 5, "paper": 10}[preset],
            inner_rate=0.05,
            first_order=True,
        ),
    }[name]
    return dict(name=name) | own


def _optimizer(model: str, preset: str) -> dict:
    if preset != "paper":
        return common.optimizer("adam", 1e-3, schedule="cosine", clip_norm=1.0)
    if model in ("prototypes", "maml"):
        return common.optimizer("adam", 1e-3, clip_norm=10.0)
    return common.optimizer(
        "sgd",
        0.05 if model == "attention" else 0.1,
        momentum=0.9,
        weight_decay=5e-4,
        schedule="exponential",
        decay_begin=10_000,
        decay_steps=10_000,
        decay_rate=0.8,
    )


def _quick_steps(model: str, conv: bool) -> int:
    """As many as take two to five minutes on two CPU cores, evaluation included."""
    if not conv:
        return 800
    return 1600 if model == "maml" else 2000
