"""Finding a target from five squared distances to it: Intention paper, Section 5.3 and Appendix 6; Figures 8 and 9.

    python -m experiments.run --config configs/intention/policy_distillation.py:model=intention,preset=quick
    python -m scripts.sweep --config configs/intention/policy_distillation.py:preset=quick     # all models

form=paper (the default of `paper`) has the models of Appendix 6, which see the observations alone and predict both
coordinates; form=regression (the default else, and MAML's, which the paper does not have here) the few-shot regressors,
asked for one coordinate at a time (experiments/intention/policy_distillation.py says how and why). There Intention encodes its
keys and has raw values, in the paper's form it is the other way round. `paper` has the widths and rates of Appendix 6 in either
form, as far as these have the same layers. What the paper leaves open: batches of 64, 100k steps, alpha starts at 0.1 and is
learnt, 5 heads of 128, the mean over observations after attention, gradients clipped at norm 1. `quick` has narrower networks,
fewer steps and a larger rate that falls to 0, and takes 9 to 67 seconds a model on two CPU cores; there, over 1000
environments, Intention's error as a regressor is about a fiftieth of the best baseline's.
"""

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "mlp", "maml")
PRESETS = ("quick", "tiny", "paper")
FORMS = ("base", "regression", "paper")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, form."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS, form=FORMS)
    form, preset = common.take_form(axes), axes["preset"]
    steps = {"tiny": 40, "quick": 4000, "paper": 100_000}[preset]
    log_every = {"tiny": 10, "quick": 100, "paper": 500}[preset]
    return ConfigDict(
        dict(
            name="intention/policy_distillation",
            experiment="intention.policy_distillation",
            axes=axes,
            task=dict(observations=5, target_std=1.0, place_std=0.5, linearised_alpha=1e-3),
            model={"regression": _regression, "paper": _as_printed}[form](axes["model"], preset),
            optimizer=_optimizer(axes["model"], preset),
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


def _as_printed(name: str, preset: str) -> dict:
    """The model section in the paper's form: the sizes of Appendix 6, or a fraction of them."""
    fraction = {"tiny": 32, "quick": 4, "paper": 1}[preset]
    small, large = 128 // fraction, 512 // fraction
    own = {
        "intention": dict(value_features=(large, large), decoder_features=(small,), alpha=0.1, alpha_kind="softplus"),
        "attention": dict(
            value_features=(small, small),
            decoder_features=(4 * large,),
            op="softmax",
            num_heads=5,
            head_features=small,
            scaling="head",
            alpha=1e-3,
            alpha_kind="softplus",
        ),
        "neural_process": dict(encoder_features=(large, large), decoder_features=(large, large, small)),
        "mlp": dict(features=(large, large, large)),
    }
    return dict(form="paper", name=name, kernel_init="lecun_normal", bias_init="fan_in_uniform") | own[name]


def _regression(name: str, preset: str) -> dict:
    """The model section of a few-shot regressor: Appendix 6's widths, or narrower networks."""
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
        return section | ({"key_features": (width, width)} if name == "intention" else {})
    layers = {
        "intention": dict(key_features=(512, 512), weight_features=(128,)),
        "attention": dict(key_features=(128, 128), value_features=(128, 128), decoder_features=(2048,)),
        "neural_process": dict(encoder_features=(512, 512), decoder_features=(512, 512, 128)),
        "mlp": dict(features=(512, 512, 512)),
        "maml": {},
    }
    return section | layers[name]


def _optimizer(name: str, preset: str) -> dict:
    """Appendix 6's rates, or a larger one."""
    if preset != "paper":
        return common.optimizer("adam", 1e-3, schedule="cosine", clip_norm=1.0)
    rate = {"intention": 3e-5, "attention": 3e-5, "neural_process": 3e-4, "mlp": 3e-4, "maml": 3e-4}
    return common.optimizer("adam", rate[name], clip_norm=1.0)
