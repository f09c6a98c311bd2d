"""Finding a target from five squared distances to it: Intention paper, Section 5.3 and Appendix 6; Figures 8 and 9.

    python -m experiments.run --config configs/intention/policy_distillation.py:model=intention,preset=quick
    python -m scripts.sweep --config configs/intention/policy_distillation.py:preset=quick     # all models

The models are the few-shot regressors, asked for the coordinates of the target one by one
(experiments/intention/policy_distillation.py says how and why). `paper` has the widths and rates of Appendix 6 in their form,
which is the paper's own for the neural process and the MLP. The paper's Intention has raw keys, encodes the values and reads
the flattened w with an MLP [128, 2]; here e_K has the layers of its e_V and e_w those of its reader, for one coordinate at a
time. What the paper leaves open: batches of 64, 100k steps, alpha starts at 0.1 and is learnt, 5 heads of 128, gradients
clipped at norm 1. MAML is none of the paper's baselines here. `quick` has narrower networks, fewer steps and a larger rate
that falls to 0; there, over 1000 environments, Intention's error is about a fiftieth of the best baseline's.
"""
from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "mlp", "maml")
PRESETS = ("quick", "tiny", "paper")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS)
    preset = axes["preset"]
    steps = {"tiny": 40, "quick": 4000, "paper": 100_000}[preset]
    log_every = {"tiny": 10, "quick": 100, "paper": 500}[preset]
    model, optimizer = _model(axes["model"], preset)
    return ConfigDict(
        dict(
            name="intention/policy_distillation",
            experiment="intention.policy_distillation",
            axes=axes,
            task=dict(observations=5, target_std=1.0, place_std=0.5, linearised_alpha=1e-3),
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
                tasks={"tiny": 20, "quick": 1000, "paper": 1000}[preset],
                batch_size=20,
                example_tasks={"tiny": 20, "quick": 1000, "paper": 1000}[preset],
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The stars of Figure 8 and the violins of Figure 9."""
    return [{"model": model} for model in MODELS]


def _model(name: str, preset: str) -> tuple[dict, dict]:
    """The model and optimizer sections: Appendix 6's widths and rates, or narrower networks and a larger rate."""
    width = {"tiny": 16, "quick": 64 if name == "maml" else 128, "paper": 128}[preset]
    section = common.few_shot_regressor(
        name,
        width=width,
        head_features={"tiny": 8, "quick": 32, "paper": 128}[preset],
        weight_features=(width,),
        inner_rate=0.01,
        fourier_levels=0,
    )
    if preset != "paper":
        layers = {"key_features": (width, width)} if name == "intention" else {}
        return section | layers, common.optimizer("adam", 1e-3, schedule="cosine", clip_norm=1.0)
    layers = {
        "intention": dict(key_features=(512, 512), weight_features=(128,)),
        "attention": dict(key_features=(128, 128), value_features=(128, 128), decoder_features=(2048,)),
        "neural_process": dict(encoder_features=(512, 512), decoder_features=(512, 512, 128)),
        "mlp": dict(features=(512, 512, 512)),
        "maml": {},
    }
    rate = {"intention": 3e-5, "attention": 3e-5, "neural_process": 3e-4, "mlp": 3e-4, "maml": 3e-4}
    return section | layers[name], common.optimizer("adam", rate[name], clip_norm=1.0)
