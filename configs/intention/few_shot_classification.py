"""Few-shot classification of images: Intention paper, Section 5.2 and Appendix 5; Tables 1 and 2, Figure 14.

    python -m scripts.sweep --config configs/intention/few_shot_classification.py:preset=quick --data_dir DATA
    python -m experiments.run --data_dir DATA --config configs/intention/few_shot_classification.py:model=intention

The sweep makes both tables; with --cells figure14 it makes Figure 14, and with --cells paper_split both tables on the
images and classes of the paper, where `paper` has those of everybody else.

encoder     conv4 is that of matching networks (Table 1), resnet12 a ResNet-12 of MetaOptNet's widths (Table 2),
            resnet12_512 the narrower one; the paper does not say which
covariance  of model=intention: ls_svm is the paper's Intention, within_class its "QDA", qda the real one, ridge the
            operator `intention`
kernel      of model=intention
latent      features of e_H of model=intention: 8192, or 32 with a Gaussian kernel, where `base`; 16 to 128: Figure 14
op          another operator of kvq_jax.ops.OPERATORS in place of that of model=attention
source      mini_imagenet, the default but in `tiny`, reads DATA/mini_imagenet: images/ and Ravi's train.csv, val.csv,
            test.csv. mini_imagenet_80 divides the same classes 80/10/10, as the paper did, into parts that it does not
            name. cifar_fs, omniglot and folders read folders of classes. digits are scikit-learn's, with at least three
            classes in each split, and 3-way episodes
size        28 is the paper's and the default of `quick`, 84 everybody else's and the default of `paper`, 16 that of
            `tiny`

`paper` has the widths, SGD with momentum, additive weight decay and decaying rates of Appendix 5, and 5-way 5-shot
episodes with 15 queries. The paper leaves open, and we chose:

- 8 episodes in a batch (MetaOptNet's), and no augmentation.
- 60,000 steps and the weights of the best validation loss for "to convergence".
- Batch norm by the episode's own statistics, as in MAML's code, whose architecture the paper follows;
  --config.encoder.statistics=running for averages.
- alpha 50 as in R2-D2 and MetaOptNet, 0.1 with a Gaussian kernel, learnt, and not decayed with the weights. The
  variance of the features sets the width of that kernel.
- Adam for MAML, as its authors have it, and for the prototypes. Both clip the norm of the gradient at 10, where MAML's
  code clips every entry.
- For within_class Bayes' rule of equal covariances, with its threshold and cross-entropy. Eq. 16 has no threshold, and
  the paper trains Intention by squared error, on numbers it does not give: see rule='paper' of ops.within_class.
- First-order MAML, which is what the paper quotes; --config.model.first_order=False for the other.

`quick` has narrower networks, 2 episodes in a batch (1 with a ResNet), and Adam with a rate that falls to 0. Its steps
take four to eleven minutes on one CPU core, evaluation included.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import CLASSIFIERS
from kvq_jax.nn import ENCODERS

MODELS = ("intention", "attention", "neural_process", "prototypes", "maml")
# Encoder -> its row of ENCODERS, and its widths.
_ENCODERS = {
    "conv4": ("conv", (64, 64, 64, 64)),
    "resnet12": ("resnet12", (64, 160, 320, 640)),
    "resnet12_512": ("resnet12", (64, 128, 256, 512)),
}
# Covariance -> the operator of Intention.
COVARIANCES = {"ls_svm": "ls_svm", "ridge": "intention", "lda": "lda", "within_class": "within_class", "qda": "qda"}
KERNELS = ("linear", "gaussian")
LATENTS = ("base", "16", "32", "64", "128")
SGD = dict(
    momentum=0.9, weight_decay=5e-4, schedule="exponential", decay_begin=10_000, decay_steps=10_000, decay_rate=0.8
)
OPTIMIZERS = {
    "intention": common.optimizer("sgd", 0.1, **SGD),
    "attention": common.optimizer("sgd", 0.05, **SGD),
    "neural_process": common.optimizer("sgd", 0.1, **SGD),
    "prototypes": common.optimizer("adam", 1e-3, clip_norm=10.0),
    "maml": common.optimizer("adam", 1e-3, clip_norm=10.0),
}
# What 'base' is.
BASES = {
    "preset=tiny": dict(source="digits", size="16"),
    "preset=quick": dict(source="mini_imagenet", size="28"),
    "preset=paper": dict(source="mini_imagenet", size="84"),
}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, encoder, covariance, kernel, latent, op, source, size, preset."""
    axes = common.parse_axes(
        arg,
        model=MODELS,
        encoder=_ENCODERS,
        covariance=COVARIANCES,
        kernel=KERNELS,
        latent=LATENTS,
        op=("own", *common.operators()),  # 'own' is softmax
        source=("base", "mini_imagenet", "mini_imagenet_80", "cifar_fs", "omniglot", "folders", "digits"),
        size=("base", "16", "28", "84"),
        preset=common.PRESETS,
    )
    _check(axes)
    axes = common.resolved(axes, BASES)
    encoder, features = _ENCODERS[axes["encoder"]]
    config = dict(
        name="intention/few_shot_classification",
        experiment="intention.few_shot_classification",
        axes=axes,
        task=dict(way=5, shot=5, query=15),
        data=dict(source=axes["source"], size=int(axes["size"])),
        encoder=dict(name=encoder) | common.section(ENCODERS[encoder], features=features),
        model=common.model(axes["model"], "encoder", table=CLASSIFIERS),
        optimizer=OPTIMIZERS[axes["model"]],
        train=common.train(60_000, 8, log_every=200, validate_every=1000, checkpoint_every=1000, select="best"),
        evaluation=common.evaluation(validation_batches=64, tasks=1000, batch_size=8, example_tasks=1),
    )
    swapped = {} if axes["op"] == "own" else {"": {"model": dict(op=common.op(axes["op"], alpha=1.0))}}
    return common.edited(config, AXES, EDITS, FIGURE14, swapped)


AXES = {
    "model=maml": {"model": dict(first_order=True)},
    "model=intention,kernel=gaussian": {"model": dict(latent=32, kernel="gaussian", op=dict(alpha=0.1))},
    "source=digits": {"task": dict(way=3)},
    **{f"model=intention,covariance={name}": {"model": dict(op=dict(name=op))} for name, op in COVARIANCES.items()},
}
FIGURE14 = {f"latent={latent}": {"model": dict(latent=int(latent))} for latent in LATENTS[1:]}
EDITS = {
    "preset=paper,model=maml,encoder=conv4": {"encoder": dict(features=(32,) * 4)},
    "preset=quick|tiny": {"optimizer": common.optimizer("adam", 1e-3, schedule="cosine", clip_norm=1.0)},
    "preset=quick": {
        "train": dict(steps=2000, batch_size=2, log_every=50, validate_every=100, checkpoint_every=200),
        "evaluation": dict(validation_batches=16, batch_size=2),
    },
    "preset=quick,model=maml": {"model": dict(test_steps=5), "train": dict(steps=1600)},
    "preset=quick,encoder=conv4": {"encoder": dict(features=(32,) * 4)},
    "preset=quick,encoder=resnet12|resnet12_512": {
        "train": dict(steps=800, batch_size=1),
        "evaluation": dict(validation_batches=32),
    },
    "preset=quick,encoder=resnet12": {"encoder": dict(features=(16, 40, 80, 160))},
    "preset=quick,encoder=resnet12_512": {"encoder": dict(features=(16, 32, 64, 128))},
    "preset=quick,model=intention,kernel=linear": {"model": dict(latent=2048)},
    "preset=quick,model=attention": {
        "model": dict(latent=128, value_features=(128,) * 4, decoder_features=(128,) * 3, head_features=128)
    },
    "preset=quick,model=neural_process": {"model": dict(latent=512, decoder_features=(256,))},
    "preset=tiny": {
        "task": dict(shot=2, query=3),
        "train": dict(steps=20, batch_size=2, seeds=2, log_every=10, validate_every=10, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=10, batch_size=5),
    },
    "preset=tiny,encoder=conv4": {"encoder": dict(features=(8,) * 4)},
    "preset=tiny,encoder=resnet12": {"encoder": dict(features=(4, 10, 20, 40))},
    "preset=tiny,encoder=resnet12_512": {"encoder": dict(features=(4, 8, 16, 32))},
    "preset=tiny,model=intention,kernel=linear": {"model": dict(latent=32)},
    "preset=tiny,model=attention": {
        "model": dict(latent=16, value_features=(16,) * 4, decoder_features=(16,) * 3, head_features=16)
    },
    "preset=tiny,model=neural_process": {"model": dict(latent=64, decoder_features=(32,))},
    "preset=tiny,model=maml": {"model": dict(inner_steps=2, test_steps=2)},
}


def sweep() -> list[dict[str, str]]:
    """The cells of Tables 1 and 2."""
    table1 = [{"model": model, "encoder": "conv4"} for model in MODELS]
    intentions = ({}, {"kernel": "gaussian"}, {"covariance": "within_class"})
    return table1 + [{"model": "intention", "encoder": "resnet12"} | own for own in intentions]


def paper_split() -> list[dict[str, str]]:
    """The cells of `sweep` on images of 28x28, of the classes divided 80/10/10."""
    return [cell | {"source": "mini_imagenet_80", "size": "28"} for cell in sweep()]


def figure14() -> list[dict[str, str]]:
    """The cells of Figure 14. "The same experimental protocol": the paper names no encoder; ours is that of Table 1."""
    return [{"model": "intention", "kernel": kernel, "latent": latent} for kernel in KERNELS for latent in LATENTS[1:]]


def _check(axes: dict[str, str]) -> None:
    """Raises ValueError for an axis that the model does not have."""
    owners = {"covariance": "intention", "kernel": "intention", "latent": "intention", "op": "attention"}
    usual = {"covariance": "ls_svm", "kernel": "linear", "latent": "base", "op": "own"}
    for axis, owner in owners.items():
        if axes["model"] != owner and axes[axis] != usual[axis]:
            raise ValueError(f"{axis}={axes[axis]} is for model={owner}, not for model={axes['model']}")
