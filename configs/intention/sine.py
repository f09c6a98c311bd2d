"""Sine curves from a few points: Intention paper, Section 5.1 and Appendix 4.1; Figures 6 and 7 (left).

    python -m experiments.run --config configs/intention/sine.py:model=intention,preset=quick
    python -m scripts.sweep --config configs/intention/sine.py:preset=quick     # all four models

`paper` is Appendix 4.1 as printed, trained on 10 observations. `quick` has narrower networks, fewer steps and 1 to 20 observations:
trained on exactly 10, Intention learns features that fit any 10 points and are of no use to fewer (see the README). What the paper
leaves open: e_w is the identity in `paper` and an MLP beside the identity in `quick`; the values enter Intention as they are (E_V := V,
which its untrained curves need); alpha starts at 0.1 and is learnt; MAML is of second order; gradients are clipped at norm 1 (without
it the heavy tail of Intention's loss at few points ends the run).
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "maml")
PRESETS = ("quick", "tiny", "paper")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS)
    preset = axes["preset"]
    steps = {"tiny": 40, "quick": 4000, "paper": 50_000}[preset]
    log_every = {"tiny": 10, "quick": 100, "paper": 500}[preset]
    model, learning_rate = _model(axes["model"], preset)
    return ConfigDict(
        dict(
            name="intention/sine",
            experiment="intention.few_shot_regression",
            axes=axes,
            task=dict(
                name="sine",
                min_context=10 if preset == "paper" else 1,
                max_context=10 if preset == "paper" else 20,
                targets=200,
                amplitude=(0.1, 5.0),
                phase=(0.0, 3.141592653589793),
                position=(-6.0, 6.0),
            ),
            data=None,
            model=model,
            optimizer=common.optimizer("adam", learning_rate, clip_norm=1.0),
            train=dict(
                steps=steps,
                batch_size=8,
                seed=0,
                seeds={"tiny": 2, "quick": 1, "paper": 5}[preset],
                log_every=log_every,
                validate_every=log_every * 2 if preset == "tiny" else log_every * 10,
                checkpoint_every=log_every if preset == "tiny" else log_every * 5,
                placement="single",
                select="last",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches={"tiny": 1, "quick": 8, "paper": 32}[preset],
                untrained=True,
                tasks={"tiny": 20, "quick": 1000, "paper": 10_000}[preset],
                batch_size=20,
                counts=tuple(range(1, 51)),
                example_tasks=4,
                example_counts=(5, 10, 20),
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of Figure 7 (left)."""
    return [{"model": model} for model in MODELS]


def _model(name: str, preset: str) -> tuple[dict, float]:
    """The model section and learning rate of Appendix 4.1, at the paper's width or narrower."""
    paper = preset == "paper"
    width = {
        "intention": {"tiny": 32, "quick": 256, "paper": 1000},
        "attention": {"tiny": 16, "quick": 128, "paper": 128},
        "neural_process": {"tiny": 32, "quick": 256, "paper": 2000},
        "maml": {"tiny": 16, "quick": 128, "paper": 128},
    }[name][preset]
    section = common.few_shot_regressor(
        name,
        width=width,
        head_features={"tiny": 8, "quick": 32, "paper": 128}[preset],
        weight_features=() if paper else (width,),
        # At the paper's rate the inner steps diverge from many initialisations, and learn less.
        inner_rate=0.1 if paper else 0.01,
        fourier_levels=0,
    )
    rate = {"intention": 3e-4, "attention": 1e-4, "neural_process": 1e-4, "maml": 3e-3}
    quick_rate = {"intention": 3e-4, "attention": 3e-4, "neural_process": 3e-4, "maml": 3e-3}
    return section, (rate if paper else quick_rate)[name]
