"""One-dimensional meta-regression: CMANP paper, Section 4.2, Table 4; the ANP slides; Intention beside them.

    python -m experiments.run --config configs/neural_processes/gp.py:model=tnp_d,preset=quick
    python -m scripts.sweep --config configs/neural_processes/gp.py:preset=quick     # all models

`paper` is the published protocol: 100,000 steps, batch 16, 128 latents, 48,000 functions of each kernel, 5 seeds. The
models have their published sizes, the defaults of their classes. `quick` has the published widths, fewer steps, latents
and samples. Where the paper's text and its code differ, the axes say which:

protocol=code    l ~ U(0.1, 0.6), as released; the numbers of Table 4 are of this one
protocol=text    l ~ U(0.6, 1.0), as printed
protocol=slides  the ANP slides and their notebook: l ~ U(0.1, 0.6), up to 49 context points of 50, rate 1e-4. Targets
                 are 1 or more further points; the notebook's are the context and 0 or more further ones. Models, losses
                 and the fall of the rate are those of the other protocols: attention.py has the notebook's, an ANP
                 without self-attention, one latent sample, the ELBO and a constant rate
std=published    config.model.std_floor of CNP to BANP is 0.1, five times the noise of the data: 0.1 + 0.9 softplus(.);
                 TNP to CMANP have none: exp(.)
std=same         exp(.) for all: models differ in the model alone. For TNP to CMANP nothing changes

The losses are the code's in every protocol: CNP to BANP learn from the context points too, of which the text is silent.
As in the released code, the tasks of a batch share their numbers of points. A step computes in the cheapest of
config.train.size_classes shapes that hold them; with 0 each task has numbers of its own, in arrays for the largest.

The CMANP paper searched the weight decay over 0, 1e-5, 1e-4 and 1e-3 and does not print what it chose, or for which
table. Here it is 0; that search is scripts.sweep with --grid optimizer.weight_decay=0.0,1e-5,1e-4,1e-3, here and in
images.py and wheel.py.

Flags of the released code override its latents and its AND block size (8 or 128, and none): 128 and 5 are the paper's.
intention_anp is ANP(op=intention) without self-attention, intention_cmanp CMANP with Intention over the context: both
hold the context in a state of constant size. Their alpha starts at 0.1 and is learnt.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import family

MODELS = tuple(family("neural_process"))
_IN_TWO_ARRAYS = "|".join(
    name for name, row in family("neural_process").items() if not hasattr(row.cls, "loss_of_points")
)
STDS, PROTOCOLS = ("published", "same"), ("code", "text", "slides")
TASK = dict(
    kernel="rbf",
    length_scale=(0.1, 0.6),
    scale=(0.1, 1.0),
    period=(0.1, 0.5),
    noise=0.02,
    t_scale=(0.0, 0.0),
    t_freedom=2.1,
    position=(-2.0, 2.0),
    min_context=3,
    max_context=46,
    min_targets=3,
    max_points=49,
)


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, std, protocol."""
    axes = common.parse_axes(arg, model=MODELS, preset=common.PRESETS, std=STDS, protocol=PROTOCOLS)
    config = dict(
        name="neural_processes/gp",
        experiment="neural_processes.gp",
        axes=axes,
        task=TASK,
        model=common.model(axes["model"]),
        optimizer=common.optimizer("adam", 5e-4, schedule="cosine"),
        train=common.train(
            100_000, 16, seeds=5, size_classes=12, log_every=500, validate_every=5000, checkpoint_every=5000
        ),
        evaluation=common.evaluation(
            kernels=("rbf", "matern", "periodic"),
            tasks=48_000,
            batch_size=16,
            example_counts=(4, 10, 25),
            example_points=200,
        ),
    )
    return common.edited(config, AXES, EDITS, common.narrow_neural_processes())


AXES = {
    # On one core of a CPU four functions at once take 0.7 (BANP) and 0.8 (CMANP-AND) of the time of sixteen.
    "model=banp|cmanp_and": {"evaluation": dict(batch_size=4)},
    "protocol=text": {"task": dict(length_scale=(0.6, 1.0))},
    "protocol=slides": {
        "task": dict(max_context=49, min_targets=1, max_points=50),
        "optimizer": dict(learning_rate=1e-4),
    },
    "std=same": {"model?": dict(std_map="exp", std_floor=0.0)},
}
EDITS = {
    # Where not all points are in one array twelve classes waste 1.24, these 1.15; a class takes seconds to compile.
    f"preset=paper,model={_IN_TWO_ARRAYS}": {"train": dict(size_classes=24)},
    "preset=quick": {
        "train": dict(steps=3000, seeds=1, size_classes=4, log_every=100, validate_every=500, checkpoint_every=500),
        "evaluation": dict(validation_batches=8, tasks=1000, batch_size=8),
    },
    # As many as some minutes of two idle cores give. CMANP is slow to begin to learn.
    "preset=quick,model=cnp|np": {"train": dict(steps=5000)},
    "preset=quick,model=canp": {"train": dict(steps=2500)},
    "preset=quick,model=anp|bnp": {"train": dict(steps=2000)},
    "preset=quick,model=banp": {"train": dict(steps=1000)},
    "preset=quick,model=tnp_d|intention_cmanp": {"train": dict(steps=4000)},
    "preset=quick,model=cmanp": {"train": dict(steps=7500)},
    "preset=quick,model=cmanp_and": {"train": dict(steps=7000)},
    "preset=tiny": {
        "train": dict(steps=20, seeds=2, size_classes=1, log_every=10, validate_every=20, checkpoint_every=20),
        "evaluation": dict(validation_batches=1, tasks=8, batch_size=4),
    },
}


def sweep() -> list[dict[str, str]]:
    """The cells of Table 4, and the models with a floor under the standard deviation again, without it."""
    cells = {"published": MODELS, "same": common.floored()}
    return [{"model": model, "std": std} for std, models in cells.items() for model in models]
