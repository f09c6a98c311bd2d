"""Completing an image from some of its pixels: Intention paper, Section 5.1 and Appendix 4.2; Figures 7 (right) and 13.

    python -m experiments.run --config configs/intention/pixels.py:model=intention,preset=quick
    python -m experiments.run --config configs/intention/pixels.py:model=intention,preset=quick,source=archive --data_dir DATA
    python -m scripts.sweep --config configs/intention/pixels.py:preset=quick,source=archive --data_dir DATA    # all four

source=digits is scikit-learn's 8x8 digits, which need no download; source=archive reads the original MNIST files, source=tfds what
TensorFlow Datasets prepared. `paper` trains on 264 of 784 pixels (on 8x8 images the same third, 22 of 64), `quick` on 1 to so many, with
narrower networks. The models are those of the sine curves; the paper's unspecified positional encoding is Fourier features, and its batch
size, not given, 8 images. In `quick` Intention's e_w, which the paper leaves open, is an MLP beside the identity (see the README).
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "maml")
PRESETS = ("quick", "tiny", "paper")
SOURCES = ("digits", "archive", "tfds")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, source."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS, source=SOURCES)
    preset, small = axes["preset"], axes["source"] == "digits"
    steps = {"tiny": 40, "quick": 2000, "paper": 50_000}[preset]
    log_every = {"tiny": 10, "quick": 50, "paper": 500}[preset]
    context = 22 if small else 264
    model, learning_rate = _model(axes["model"], preset, fourier_levels=3 if small else 6)
    return ConfigDict(
        dict(
            name="intention/pixels",
            experiment="intention.few_shot_regression",
            axes=axes,
            task=dict(name="pixels", min_context=context if preset == "paper" else 1, max_context=context),
            data=dict(
                name="digits" if small else "mnist", source=axes["source"], validation_images=200 if small else 5000
            ),
            model=model,
            optimizer=common.optimizer("adam", learning_rate, clip_norm=1.0),
            train=dict(
                steps=steps,
                batch_size=8,
                seed=0,
                seeds={"tiny": 2, "quick": 1, "paper": 5}[preset],
                log_every=log_every,
                validate_every=log_every * {"tiny": 2, "quick": 10, "paper": 10}[preset],
                checkpoint_every=log_every * {"tiny": 1, "quick": 5, "paper": 5}[preset],
                placement="single",
                select="last",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches={"tiny": 1, "quick": 8, "paper": 32}[preset],
                untrained=True,
                tasks={"tiny": 20, "quick": 1000, "paper": 10_000}[preset],
                batch_size=10,
                counts=(1, 2, 4, 8, 16, 32, 64) if small else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 784),
                example_tasks=4,
                example_counts=(4, 11, 22, 64) if small else (10, 30, 100, 264, 784),
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of Figure 7 (right) and the columns of Figure 13."""
    return [{"model": model} for model in MODELS]


def _model(name: str, preset: str, fourier_levels: int) -> tuple[dict, float]:
    """The model section and learning rate of Appendix 4.1, at the paper's width or narrower."""
    paper = preset == "paper"
    width = {
        "intention": {"tiny": 32, "quick": 128, "paper": 1000},
        "attention": {"tiny": 16, "quick": 64, "paper": 128},
        "neural_process": {"tiny": 32, "quick": 128, "paper": 2000},
        "maml": {"tiny": 16, "quick": 128, "paper": 128},
    }[name][preset]
    section = common.few_shot_regressor(
        name,
        width=width,
        head_features={"tiny": 8, "quick": 16, "paper": 128}[preset],
        weight_features=() if paper else (width,),
        # At the paper's rate the inner steps diverge from many initialisations, and learn less.
        inner_rate=0.1 if paper else 0.01,
        fourier_levels=fourier_levels,
    )
    rate = {"intention": 3e-4, "attention": 1e-4, "neural_process": 1e-4, "maml": 3e-3}
    quick_rate = {"intention": 1e-3, "attention": 1e-3, "neural_process": 1e-3, "maml": 3e-3}
    return section, (rate if paper else quick_rate)[name]
