"""Counting unique characters: Set Transformer (Lee et al. 2019), Section 5.2, Table 2 and Figure 3.

    python -m experiments.run --data_dir DATA --config configs/set_transformer/counting.py:model=sab_pma,preset=quick
    python -m scripts.sweep --data_dir DATA --config configs/set_transformer/counting.py:preset=quick       # Table 2
    python -m scripts.sweep --data_dir DATA --config configs/set_transformer/counting.py:preset=quick --cells figure3
    python -m scripts.sweep --data_dir DATA --config configs/set_transformer/counting.py:preset=quick --cells operators

source     omniglot, the default but in `tiny`, reads DATA/omniglot: characters of the background alphabets train, those
           of the last five of them validate, and those of the evaluation alphabets test. folders reads any others in
           {train,val,test}/**/<class>. digits are scikit-learn's, with sets of at most three
rotations  yes: training characters turned by 90, 180 and 270 degrees are further training characters
form, op   as in max.py

The sets of a batch share their number of images, those of the evaluation do not. sab_pma2, 4 and 8 are PMA with more
seeds, whose rows go to the last layer side by side. Figure 3 has ISABs by their number of inducing points, on an axis
that ends at 11; ours: 1, 2, 4, 8, 16.

The paper leaves open, and we chose: images of 28 x 28 pixels, so that four convolutions of stride 2 leave 2 x 2; which
characters validate, and that the weights of the best validation loss are judged; how images are shared among
characters (experiments/tasks/counting.py). It prints "PMA_1(8, 8)", which does not fit its other layers: here it is 64
wide with 8 heads. As in Table 3 of the supplement, four row-wise layers or two SABs follow the convolutions.

`paper` takes 200,000 steps of 32 sets, and has one seed; --config.train.seeds=5 has the five runs of the paper. `quick`
has three seeds, half of the width, ten times the rate, which falls to 0 with a cosine, and the steps that it can take
in some minutes.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import IMAGE_SET_NETWORKS
from kvq_jax.nn import SET_FORMS

MODELS = (
    "rff_mean",
    "rffp_mean",
    "rffp_max",
    "rff_dotprod",
    "rff_pma",
    "sab_mean",
    "sab_dotprod",
    "sab_pma",
    "sab_pma2",
    "sab_pma4",
    "sab_pma8",
)
_INDUCED = tuple(f"isab{points}_pma" for points in (1, 2, 4, 8, 16))
# What 'base' is.
BASES = {"preset=tiny": dict(source="digits"), "": dict(source="omniglot")}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, source, rotations, form, op."""
    axes = common.parse_axes(
        arg,
        model=(*MODELS, *_INDUCED),
        preset=common.PRESETS,
        source=("base", "omniglot", "folders", "digits"),
        rotations=("no", "yes"),
        form=("code", "paper"),
        op=("own", *common.operators()),
    )
    axes = common.resolved(axes, BASES)
    name = axes["model"]
    config = dict(
        name="set_transformer/counting",
        experiment="set_transformer.counting",
        axes=axes,
        task=dict(min_size=6, max_size=10),
        data=dict(source=axes["source"], size=28, rotations=False),
        model=common.model(
            name,
            table=IMAGE_SET_NETWORKS,
            dim=64,
            num_heads=4,
            encoder_layers=2,
            **IMAGE_SET_NETWORKS[name].parts,
            **SET_FORMS[axes["form"]],
        ),
        optimizer=common.optimizer("adam", 1e-4),
        train=common.train(
            200_000, 32, size_classes=5, log_every=500, validate_every=2500, checkpoint_every=2500, select="best"
        ),
        evaluation=common.evaluation(tasks=10_000, batch_size=50, example_tasks=1000),
    )
    return common.edited(config, PARTS, common.swap(axes), EDITS)


_POOLED = "rff_mean|rffp_mean|rffp_max|rff_dotprod|sab_mean|sab_dotprod"
PARTS = {
    f"model={_POOLED}": {"model": dict(head=(64,))},
    "model=rff_mean|rffp_mean|rffp_max|rff_dotprod|rff_pma": {"model": dict(encoder_layers=4, activate_last=False)},
    "form=paper": {"model": dict(embed=True)},
    "rotations=yes": {"data": dict(rotations=True)},
    "source=digits": {"task": dict(min_size=2, max_size=3), "train": dict(size_classes=2)},
}
EDITS = {
    "preset=quick": {
        "model": dict(dim=32, features=(16, 32, 32, 32)),
        "optimizer": dict(learning_rate=1e-3, schedule="cosine"),
        "train": dict(steps=1500, seeds=3, size_classes=2, log_every=100, validate_every=300, checkpoint_every=300),
        "evaluation": dict(validation_batches=16, tasks=2000),
    },
    f"preset=quick,model={_POOLED}": {"model": dict(head=(32,))},
    "preset=tiny": {
        "data": dict(size=8),
        "model": dict(dim=8, features=(8,), pool_heads=4),
        "train": dict(
            steps=20, batch_size=8, seeds=2, size_classes=1, log_every=10, validate_every=20, checkpoint_every=10
        ),
        "evaluation": dict(validation_batches=1, tasks=20, batch_size=20, example_tasks=20),
    },
    f"preset=tiny,model={_POOLED}": {"model": dict(head=(8,))},
}


def sweep() -> list[dict[str, str]]:
    """The cells of Table 2, and those of its supplement."""
    return [{"model": model} for model in MODELS]


def figure3() -> list[dict[str, str]]:
    """The cells of Figure 3."""
    return [{"model": model} for model in _INDUCED]


def operators() -> list[dict[str, str]]:
    """The Set Transformer with every operator; softmax attention is its own."""
    return [{"model": "sab_pma", "op": "own" if op == "softmax" else op} for op in common.operators()]
