"""From five pairs of points to the similarity map between them: Intention paper, Section 5.4 and Appendix 7; Figures 10 and 11.

    python -m experiments.run --config configs/intention/kabsch.py:model=intention,preset=quick
    python -m experiments.run --config configs/intention/kabsch.py:model=intention,preset=quick,cloud=bunny --data_dir DATA
    python -m scripts.sweep --config configs/intention/kabsch.py:preset=quick     # all models

cloud=rabbit is a drawn rabbit, cloud=bunny the Stanford bunny in DATA/bunny/stanford-bunny.obj (or .obj.gz), seen along z;
any other .obj, .ply or .npy file by --config.evaluation.cloud=PATH. dimension=3 has rotations of space.

form=paper (the default of `paper`) has the models of Appendix 7: Intention and attention have encoders of keys and of values
that see pairs (k, v), one of queries, and a decoder. form=regression (the default else, and MAML's, which the paper does
not have here) has the few-shot regressors: keys and queries share e_K, the values enter Intention as they are, and nothing
decodes its output, which suits an affine task. The neural process and the MLP are the same in both, with a row for each query;
the paper's MLP takes all five at once. `paper` has the widths and rates of Appendix 7 in either form. The paper says nothing of
distributions, batch or steps: points, queries and translations are N(0, I), scales U(0.5, 2), noise N(0, 0.01^2 I), batches of
64, 100k steps; alpha starts at 0.1 and is learnt, gradients are clipped at norm 1. `quick` has narrower networks, fewer steps
and a larger rate that falls to 0, and takes 6 to 43 seconds a model on two CPU cores; there Intention as a regressor ends
within twice the error of affine least squares.
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "mlp", "maml")
PRESETS = ("quick", "tiny", "paper")
FORMS = ("base", "regression", "paper")
CLOUDS = {"rabbit": "rabbit", "bunny": "bunny/stanford-bunny.obj"}
DIMENSIONS = ("2", "3")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, cloud, dimension, form."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS, cloud=tuple(CLOUDS), dimension=DIMENSIONS, form=FORMS)
    form, preset = common.take_form(axes), axes["preset"]
    steps = {"tiny": 40, "quick": 4000, "paper": 100_000}[preset]
    log_every = {"tiny": 10, "quick": 100, "paper": 500}[preset]
    rate = dict(learning_rate=3e-4) if preset == "paper" else dict(learning_rate=1e-3, schedule="cosine")
    return ConfigDict(
        dict(
            name="intention/kabsch",
            experiment="intention.kabsch",
            axes=axes,
            task=dict(
                dimension=int(axes["dimension"]),
                pairs=5,
                queries=5,
                point_std=1.0,
                angle=(0.0, 6.283185307179586),
                scale=(0.5, 2.0),
                translation_std=1.0,
                noise_std=0.01,
            ),
            model={"regression": _regression, "paper": _as_printed}[form](axes["model"], preset),
            optimizer=common.optimizer("adam", **rate, clip_norm=1.0),
            train=dict(
                steps=steps,
                batch_size=64,
                seed=0,
                seeds={"tiny": 2, "quick": 1, "paper": 5}[preset],
                log_every=log_every,
                validate_every=log_every * {"tiny": 2, "quick": 2, "paper": 4}[preset],
                checkpoint_every=log_every * {"tiny": 1, "quick": 10, "paper": 10}[preset],
                placement="single",
                select="last",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches={"tiny": 1, "quick": 8, "paper": 32}[preset],
                untrained=False,
                tasks={"tiny": 20, "quick": 10_000, "paper": 10_000}[preset],
                batch_size=100,
                example_tasks=4,
                cloud=CLOUDS[axes["cloud"]],
                cloud_points=1500,
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The curves of Figure 10 and the clouds of Figure 11."""
    return [{"model": model} for model in MODELS]


def _as_printed(name: str, preset: str) -> dict:
    """The model section in the paper's form: the sizes of Appendix 7, or a fraction of them."""
    width = (128 if name == "intention" else 256) // {"tiny": 16, "quick": 2, "paper": 1}[preset]
    layers = (width, width)
    coded = dict(key_features=layers, value_features=layers, query_features=layers, decoder_features=layers)
    own = {
        "intention": coded | dict(op="intention", num_heads=0, head_features=0, scaling="none", alpha=0.1),
        "attention": coded | dict(op="softmax", num_heads=5, head_features=width // 2, scaling="head", alpha=1e-3),
        "neural_process": dict(
            encoder_features=layers, decoder_features=layers, activate_final=False, fourier_levels=0
        ),
        "mlp": dict(features=(width, width, width), fourier_levels=0),
    }
    ridge = dict(alpha_kind="softplus") if name in ("intention", "attention") else {}
    return dict(form="paper", name=name, kernel_init="lecun_normal", bias_init="fan_in_uniform") | ridge | own[name]


def _regression(name: str, preset: str) -> dict:
    """The model section of a few-shot regressor: Appendix 7's widths, or narrower networks."""
    width = {"tiny": 16, "quick": 64 if name == "maml" else 128, "paper": 128}[preset]
    section = common.few_shot_regressor(
        name,
        width=width,
        head_features={"tiny": 8, "quick": 32, "paper": 128}[preset],
        weight_features=(),
        inner_rate=0.01,
        fourier_levels=0,
    )
    if preset != "paper":
        return section | ({"key_features": (width, width)} if name == "intention" else {})
    layers = {
        "intention": dict(key_features=(128, 128)),
        "attention": dict(key_features=(256, 256), value_features=(256, 256), decoder_features=(256, 256)),
        "neural_process": dict(encoder_features=(256, 256), decoder_features=(256, 256)),
        "mlp": dict(features=(256, 256, 256)),
        "maml": {},
    }
    return section | layers[name]
