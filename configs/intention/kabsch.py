"""From five pairs of points to their similarity map: Intention paper, Section 5.4, Appendix 7; Figures 10 and 11.

    python -m experiments.run --config configs/intention/kabsch.py:model=intention,preset=quick
    python -m scripts.sweep --config configs/intention/kabsch.py:preset=quick     # all models

cloud=rabbit is a drawn rabbit. cloud=bunny is the Stanford bunny, seen along z: DATA/bunny/stanford-bunny.obj (or
.obj.gz), with --data_dir DATA. --config.evaluation.cloud=PATH takes any other .obj, .ply or .npy file. dimension=3 has
rotations of space.

form=paper, the default of `paper`, has the models of Appendix 7. Intention and attention have encoders of keys and of
values that see pairs (k, v), one of queries, and a decoder. form=regression, the default else, has the few-shot
regressors: keys and queries share e_K, the values enter Intention as they are, and nothing decodes its output, which
suits an affine task. MAML, which the paper does not have here, has this form alone. The neural process and the MLP are
of one kind in both, with a row for each query; the paper's MLP takes all five at once. `paper` has the widths and rates
of Appendix 7 in either form, `quick` other widths in each.

The paper gives no distributions, batch or steps. Ours: points, queries and translations are N(0, I), scales
U(0.5, 2), noise N(0, 0.01^2 I), batches of 64, 100k steps; alpha starts at 0.1 and is learnt; gradients are clipped at
norm 1.

`quick` has narrower networks, fewer steps and a larger rate that falls to 0. Its three seeds take half a minute to four
minutes a model on one busy core, those of MAML thirteen. There Intention as a regressor ends within twice the error of
affine least squares.
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "mlp", "maml")
SIMILARITY = dict(angle=(0.0, 6.283185307179586), scale=(0.5, 2.0), translation_std=1.0)
TASK = dict(pairs=5, queries=5, point_std=1.0, **SIMILARITY, noise_std=0.01)
CLOUDS = {"rabbit": "rabbit", "bunny": "bunny/stanford-bunny.obj"}


def pair(width: int) -> dict[str, tuple[int, int]]:
    """Layers of the four networks of PairRegressor."""
    return dict.fromkeys(("key_features", "value_features", "query_features", "decoder_features"), (width, width))


NEURAL_PROCESS = dict(name="neural_process", encoder_features=(256, 256), decoder_features=(256, 256))
MLP = dict(name="mlp", features=(256, 256, 256))
WIDE = dict(key_features=(256, 256), value_features=(256, 256), decoder_features=(256, 256))
# Form -> model -> its row of MODELS, and the layers of Appendix 7.
SECTIONS = {
    "paper": {
        "intention": dict(name="pair", **pair(128)),
        "attention": dict(name="pair", **pair(256), op="softmax", num_heads=5, head_features=128, scaling="head"),
        "neural_process": NEURAL_PROCESS,
        "mlp": MLP,
    },
    "regression": {
        "intention": dict(name="intention", key_features=(128, 128)),
        "attention": dict(name="attention", **WIDE),
        "neural_process": NEURAL_PROCESS,
        "mlp": MLP,
        "maml": dict(name="maml", inner_rate=0.01),
    },
}
FORMS = ("base", "regression", "paper")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, cloud, dimension, form."""
    axes = common.parse_axes(arg, model=MODELS, preset=common.PRESETS, cloud=CLOUDS, dimension=("2", "3"), form=FORMS)
    form = common.take_form(axes)
    config = dict(
        name="intention/kabsch",
        experiment="intention.kabsch",
        axes=axes,
        task=dict(dimension=int(axes["dimension"])) | TASK,
        model=common.model(**SECTIONS[form][axes["model"]]),
        optimizer=common.optimizer("adam", 3e-4, clip_norm=1.0),
        train=common.train(100_000, 64, seeds=5, log_every=500, validate_every=2000, checkpoint_every=5000),
        evaluation=common.evaluation(
            tasks=10_000, batch_size=100, example_tasks=4, cloud=CLOUDS[axes["cloud"]], cloud_points=1500
        ),
    )
    return common.edited(config, EDITS, SIZES[form])


EDITS = {
    "preset=quick|tiny": {"optimizer": dict(learning_rate=1e-3, schedule="cosine")},
    "preset=quick": {
        "train": dict(steps=4000, seeds=3, log_every=100, validate_every=200, checkpoint_every=1000),
        "evaluation": dict(validation_batches=8),
    },
    "preset=tiny": {
        "train": dict(steps=40, seeds=2, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=20),
    },
}
SIZES = {
    "paper": {  # a half, and a sixteenth
        "preset=quick,model=intention": {"model": pair(64)},
        "preset=quick,model=attention": {"model": pair(128) | dict(head_features=64)},
        "preset=quick,model=neural_process": {"model": dict(encoder_features=(128,) * 2, decoder_features=(128,) * 2)},
        "preset=quick,model=mlp": {"model": dict(features=(128,) * 3)},
        "preset=tiny,model=intention": {"model": pair(8)},
        "preset=tiny,model=attention": {"model": pair(16) | dict(head_features=8)},
        "preset=tiny,model=neural_process": {"model": dict(encoder_features=(16,) * 2, decoder_features=(16,) * 2)},
        "preset=tiny,model=mlp": {"model": dict(features=(16,) * 3)},
    },
    "regression": common.NARROW_REGRESSORS,
}


def sweep() -> list[dict[str, str]]:
    """The curves of Figure 10 and the clouds of Figure 11."""
    return [{"model": model} for model in MODELS]
