"""Set anomalies: Set Transformer (Lee et al. 2019), Section 5.4, Table 5.

    python -m experiments.run --data_dir DATA --config configs/set_transformer/anomaly.py:model=sab_pma,preset=quick
    python -m scripts.sweep --data_dir DATA --config configs/set_transformer/anomaly.py:preset=quick

source     celeba, the default of `paper`, reads DATA/celeba with list_attr_celeba.txt beside the list of partitions:
           seven faces have two attributes in common, of which the eighth has none. The others are of
           experiments/data/image_classes.py, with seven images of one class and one of another: omniglot, the default
           of `quick`, mini_imagenet, cifar_fs, folders, and digits, the default of `tiny`
form, op   as in max.py

Of 1000 sets the paper's networks see 800 in 1000 steps, at a rate of 1e-4 that decays exponentially, and are judged on
200. Its table has the "average of test AUROC and test AUPR" and does not say over what. Here are both: of each set by
itself (auroc_of_set, aupr_of_set), whose AUPR is by chance the mean of 1/1, 1/2 to 1/8; and of all images of 200 sets
at once (auroc, aupr), whose AUPR is by chance 1/8, as in its row of random guesses.

`paper` has these, and the widths of the supplement's Table 9: convolutions of stride 2, four SABs or eight layers row
by row, PMA with four seeds and an SAB, or a pooling and three layers. That table ends in 256 features for each of eight
images, and does not say how they become scores: our head is that of kvq_jax.models.ImageSetDetector, with these three
layers, or with one behind PMA. The table has dropout of a rate that it does not print, and four linear layers before
the SABs, where we have batch normalisation. Ours are faces of 32 x 32 pixels, 32 sets in a batch, a rate that halves in
200 steps, test sets of other faces, as many as for 50 curves, and the weights of the best validation loss.

`quick` draws each set anew, and has three seeds, a quarter of the width behind four convolutions of its own, two layers
in the encoder, a larger rate that falls to 0 with a cosine, and test sets for 20 curves.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import IMAGE_SET_DETECTORS
from kvq_jax.nn import SET_FORMS

MODELS = ("rff_mean", "rffp_mean", "rffp_max", "rff_dotprod", "sab_mean", "rff_pma", "sab_pma")
# What 'base' is.
BASES = {"preset=paper": dict(source="celeba"), "preset=quick": dict(source="omniglot"), "": dict(source="digits")}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, source, form, op."""
    axes = common.parse_axes(
        arg,
        model=MODELS,
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
        task=dict(set_size=8, shared=1, sets=800),
        data=dict(source=axes["source"], size=32),
        model=common.model(
            name,
            table=IMAGE_SET_DETECTORS,
            dim=128,
            num_heads=4,
            encoder_layers=4,
            head=(128,),
            features=(32, 64, 128),
            pool_heads=4,
            **IMAGE_SET_DETECTORS[name].parts,
            **SET_FORMS[axes["form"]],
        ),
        optimizer=common.optimizer("adam", 1e-4, schedule="exponential", decay_steps=200, decay_rate=0.5),
        train=common.train(1000, 32, seeds=5, log_every=100, validate_every=100, checkpoint_every=200, select="best"),
        evaluation=common.evaluation(tasks=10_000, batch_size=50, example_tasks=6, together=200),
    )
    return common.edited(config, PARTS, common.swap(axes), EDITS)


PARTS = {
    "model=rff_mean|rffp_mean|rffp_max|rff_dotprod|rff_pma": {"model": dict(encoder_layers=8, activate_last=False)},
    "model=rff_mean|rffp_mean|rffp_max|rff_dotprod|sab_mean": {"model": dict(head=(128, 128, 128))},
    "model=rff_pma|sab_pma": {"model": dict(num_seeds=4, decoder_layers=1)},
    "form=paper": {"model": dict(embed=True)},
    "source=celeba": {"task": dict(shared=2)},
    "source=omniglot": {"data": dict(size=28)},
}
EDITS = {
    "preset=quick": {
        "task": dict(sets=0),
        "model": dict(dim=32, features=(16, 32, 32, 32), encoder_layers=2, head=(32,)),
        "optimizer": dict(learning_rate=1e-3, schedule="cosine"),
        "train": dict(seeds=3, validate_every=200),
        "evaluation": dict(validation_batches=16, tasks=4000),
    },
    "preset=tiny": {
        "data": dict(size=8),
        "model": dict(dim=8, features=(8,), encoder_layers=1, head=(8,)),
        "train": dict(steps=20, batch_size=8, seeds=2, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=20, batch_size=20, example_tasks=2, together=10),
    },
}


def sweep() -> list[dict[str, str]]:
    """The cells of Table 5."""
    return [{"model": model} for model in MODELS]
