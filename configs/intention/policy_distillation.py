"""Finding a target from five squared distances to it: Intention paper, Section 5.3, Appendix 6; Figures 8 and 9.

    python -m experiments.run --config configs/intention/policy_distillation.py:model=intention,preset=quick
    python -m scripts.sweep --config configs/intention/policy_distillation.py:preset=quick     # all models

form=paper, the default of `paper`, has the models of Appendix 6. They see the observations alone and predict both
coordinates at once; Intention has raw keys and encodes its values. form=regression, the default else, has the few-shot
regressors, asked for one coordinate at a time (experiments/tasks/policy_distillation.py says how and why); Intention
encodes its keys and has raw values. MAML, which the paper does not have here, has this form alone. `paper` has the
widths and rates of Appendix 6 in either form, as far as the layers are the same.

The paper leaves open, and we chose: batches of 64, 100k steps, alpha starts at 0.1 and is learnt, 5 heads of 128, the
mean over observations after attention, gradients clipped at norm 1.

`quick` has narrower networks, fewer steps and a larger rate that falls to 0. Its three seeds take half a minute to two
minutes a model on one busy core, those of MAML six. There, over 1000 environments, Intention's error as a regressor is
about a fiftieth of the best baseline's.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import TARGET_REGRESSORS

MODELS = ("intention", "attention", "neural_process", "mlp", "maml")
TASK = dict(observations=5, target_std=1.0, place_std=0.5, linearised_alpha=1e-3)
RATES = {"intention": 3e-5, "attention": 3e-5, "neural_process": 3e-4, "mlp": 3e-4, "maml": 3e-4}
# Appendix 6's layers, in the few-shot regressors. The models of form=paper have them by default.
REGRESSORS = {
    "intention": dict(key_features=(512, 512), weight_features=(128,)),
    "attention": dict(key_features=(128, 128), value_features=(128, 128), decoder_features=(2048,)),
    "neural_process": dict(encoder_features=(512, 512), decoder_features=(512, 512, 128)),
    "mlp": dict(features=(512, 512, 512)),
    "maml": dict(inner_rate=0.01),
}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, form."""
    axes = common.parse_axes(arg, model=MODELS, preset=common.PRESETS, form=("base", "regression", "paper"))
    form, name = common.take_form(axes), axes["model"]
    config = dict(
        name="intention/policy_distillation",
        experiment="intention.policy_distillation",
        axes=axes,
        task=TASK,
        model={
            "paper": lambda: dict(form="paper") | common.model(name, table=TARGET_REGRESSORS),
            "regression": lambda: common.model(name, **REGRESSORS[name]),
        }[form](),
        optimizer=common.optimizer("adam", RATES[name], clip_norm=1.0),
        train=common.train(100_000, 64, seeds=5, log_every=500, validate_every=2000, checkpoint_every=5000),
        evaluation=common.evaluation(tasks=1000, batch_size=20, example_tasks=1000),
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
        "evaluation": dict(validation_batches=1, tasks=20, example_tasks=20),
    },
}
SIZES = {
    "paper": {  # a quarter, and a thirty-second
        "preset=quick,model=intention": {"model": dict(value_features=(128, 128), decoder_features=(32,))},
        "preset=quick,model=attention": {
            "model": dict(value_features=(32, 32), decoder_features=(512,), head_features=32)
        },
        "preset=quick,model=neural_process": {
            "model": dict(encoder_features=(128, 128), decoder_features=(128, 128, 32))
        },
        "preset=quick,model=mlp": {"model": dict(features=(128,) * 3)},
        "preset=tiny,model=intention": {"model": dict(value_features=(16, 16), decoder_features=(4,))},
        "preset=tiny,model=attention": {"model": dict(value_features=(4, 4), decoder_features=(64,), head_features=4)},
        "preset=tiny,model=neural_process": {"model": dict(encoder_features=(16, 16), decoder_features=(16, 16, 4))},
        "preset=tiny,model=mlp": {"model": dict(features=(16,) * 3)},
    },
    "regression": common.NARROW_REGRESSORS
    | {"preset=tiny,model=intention": {"model": dict(key_features=(16, 16), weight_features=(16,))}},
}


def sweep() -> list[dict[str, str]]:
    """The stars of Figure 8 and the violins of Figure 9."""
    return [{"model": model} for model in MODELS]
