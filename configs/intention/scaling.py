"""The size that least squares takes: Intention paper, Section 2 and Appendix 2; Figure 3.

    python -m scripts.sweep --config configs/intention/scaling.py:preset=quick     # the search of every model
    python -m experiments.run --config configs/intention/scaling.py:model=intention,dimension=4,size=16,preset=quick

One cell is one model of one latent size at one dimension. The sweep doubles the size until the error is at most
`evaluation.threshold`, and leaves out what is then not needed. `paper` is Appendix 2, up to d = 10, with sizes that
double up to 8192; the text says that they double, too, and prints s * s and 8196. Intention's e_P has s * s * s
parameters, for which no memory is enough there: its search has to end before. `quick` ends at s = 128, with a tenfold
rate that falls to 0 and 1500 steps.

The paper leaves open, and we chose: the threshold, 5 % of the variance of a weight, by the mean over tasks; alpha
starts at 0.1 and is learnt; gradients are clipped at norm 1, as sets of nearly dependent points have steep losses; the
pooling and the head width of the attention (kvq_jax/models/weight_regressors.py). At d = 10 the 10 points make a square
system, whose inverse has no mean: see the median too.
"""

from collections.abc import Sequence

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import WEIGHT_REGRESSORS

MODELS = tuple(WEIGHT_REGRESSORS)
DIMENSIONS = tuple(str(d) for d in range(2, 11))
SIZES = tuple(str(2**power) for power in range(1, 14))
# Where the search of a preset ends: (largest dimension, largest size).
_ENDS = {"paper": (10, 8192), "quick": (10, 128), "tiny": (2, 4)}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, dimension, size, preset."""
    axes = common.parse_axes(arg, model=MODELS, dimension=DIMENSIONS, size=SIZES, preset=common.PRESETS)
    config = dict(
        name="intention/scaling",
        experiment="intention.scaling",
        axes=axes,
        task=dict(points=10, dimension=int(axes["dimension"])),
        model=common.model(axes["model"], table=WEIGHT_REGRESSORS, latent=int(axes["size"])),
        optimizer=common.optimizer("adam", 3e-4, clip_norm=1.0),
        train=common.train(100_000, 64, log_every=1000, validate_every=10_000, checkpoint_every=10_000),
        evaluation=common.evaluation(
            validation_batches=4, tasks=10_000, batch_size=100, threshold=0.05, example_tasks=100
        ),
    )
    return common.edited(config, EDITS)


EDITS = {
    "preset=quick|tiny": {"optimizer": dict(learning_rate=3e-3, schedule="cosine")},
    "preset=quick": {
        "train": dict(steps=1500, seeds=3, log_every=500, validate_every=1500, checkpoint_every=1500),
        "evaluation": dict(tasks=4000),
    },
    "preset=tiny": {
        "train": dict(steps=20, log_every=10, validate_every=20, checkpoint_every=20),
        "evaluation": dict(tasks=100),
    },
}


def sweep() -> list[dict[str, str]]:
    """The cells of Figure 3, sizes in increasing order; `unneeded` says which of them can be left out."""
    return [{"model": model, "dimension": d, "size": size} for model in MODELS for d in DIMENSIONS for size in SIZES]


def unneeded(config: ConfigDict, finished: Sequence[dict]) -> str | None:
    """Why the sweep can leave out the cell of `config`, as the command line has changed it; None where it is needed.

    `finished` holds the content of the result.json of every finished cell of this sweep.
    """
    axes, (largest_dimension, largest_size) = config.axes, _ENDS[config.axes.preset]
    for result in finished:
        other, error = result["axes"], result["metrics"]["trained/mse"]["mean"]
        same = (other["model"], other["dimension"]) == (axes.model, axes.dimension)
        if same and int(other["size"]) < int(axes.size) and error is not None and error <= config.evaluation.threshold:
            return f"size {other['size']} has reached {error:.3g} <= {config.evaluation.threshold:g}"
    if int(axes.dimension) > largest_dimension:
        return f"preset {axes.preset} ends at dimension {largest_dimension}"
    if int(axes.size) > largest_size:
        return f"preset {axes.preset} ends at size {largest_size}"
    return None
