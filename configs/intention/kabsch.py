"""From five pairs of points to the similarity map between them: Intention paper, Section 5.4 and Appendix 7; Figures 10 and 11.

    python -m experiments.run --config configs/intention/kabsch.py:model=intention,preset=quick
    python -m experiments.run --config configs/intention/kabsch.py:model=intention,preset=quick,cloud=bunny --data_dir DATA
    python -m scripts.sweep --config configs/intention/kabsch.py:preset=quick     # all models

cloud=rabbit is a drawn rabbit, cloud=bunny the Stanford bunny in DATA/bunny/stanford-bunny.obj (or .obj.gz), seen along z;
any other .obj, .ply or .npy file by --config.evaluation.cloud=PATH. dimension=3 has rotations of space. `paper` has the
widths and rates of Appendix 7 in the form of the few-shot regressors: keys and queries share e_K, the values enter Intention
as they are, and nothing decodes its output, whereas the paper encodes (K, V, Q) three times and decodes. The paper says
nothing of distributions, batch or steps: points, queries and translations are N(0, I), scales U(0.5, 2), noise N(0, 0.01^2
I), batches of 64, 100k steps; alpha starts at 0.1 and is learnt, gradients are clipped at norm 1. MAML is none of the paper's
baselines here. `quick` has narrower networks, fewer steps and a larger rate that falls to 0; there Intention ends within
twice the error of affine least squares.
"""
from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "mlp", "maml")
PRESETS = ("quick", "tiny", "paper")
CLOUDS = {"rabbit": "rabbit", "bunny": "bunny/stanford-bunny.obj"}
DIMENSIONS = ("2", "3")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, cloud, dimension."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS, cloud=tuple(CLOUDS), dimension=DIMENSIONS)
    preset = axes["preset"]
    steps = {"tiny": 40, "quick": 4000, "paper": 100_000}[preset]
    log_every = {"tiny": 10, "quick": 100, "paper": 500}[preset]
    model, optimizer = _model(axes["model"], preset)
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
            model=model,
            optimizer=optimizer,
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


def _model(name: str, preset: str) -> tuple[dict, dict]:
    """The model and optimizer sections: Appendix 7's widths and rates, or narrower networks and a larger rate."""
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
        layers = {"key_features": (width, width)} if name == "intention" else {}
        return section | layers, common.optimizer("adam", 1e-3, schedule="cosine", clip_norm=1.0)
    layers = {
        "intention": dict(key_features=(128, 128)),
        "attention": dict(key_features=(256, 256), value_features=(256, 256), decoder_features=(256, 256)),
        "neural_process": dict(encoder_features=(256, 256), decoder_features=(256, 256)),
        "mlp": dict(features=(256, 256, 256)),
        "maml": {},
    }
    return section | layers[name], common.optimizer("adam", 3e-4, clip_norm=1.0)
