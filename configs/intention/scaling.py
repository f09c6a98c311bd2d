"""The size that least squares takes: Intention paper, Section 4 and Appendix 2; Figure 3.

    python -m scripts.sweep --config configs/intention/scaling.py:preset=quick     # the search of every model and dimension
    python -m experiments.run --config configs/intention/scaling.py:model=intention,dimension=4,size=16,preset=quick

One cell is one model of one latent size at one dimension; the sweep doubles the size until the error is at most
`evaluation.threshold`, and leaves out what is then not needed. `paper` is Appendix 2 as printed, up to d = 10 and s = 8192;
`quick` ends at d = 6 and s = 32, with a tenfold rate that falls to 0 and 1500 steps. What the paper leaves open: the
threshold, here 5 % of the variance of a weight, by the mean over tasks; alpha starts at 0.1 and is learnt; gradients are clipped
at norm 1 (sets of nearly dependent points have steep losses); the pooling and head width of the attention
(kvq_jax/models/weight_regressors.py). At d = 10 the 10 points make a square system, whose inverse has no mean: see the median too.
"""

from collections.abc import Sequence

from ml_collections import ConfigDict

from configs import common

MODELS = ("intention", "attention", "neural_process", "mlp")
PRESETS = ("quick", "tiny", "paper")
DIMENSIONS = tuple(str(d) for d in range(2, 11))
SIZES = tuple(str(2**power) for power in range(1, 14))
# Where the search of a preset ends: (largest dimension, largest size).
_ENDS = {"tiny": (2, 4), "quick": (6, 32), "paper": (10, 8192)}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, dimension, size, preset."""
    axes = common.parse_axes(arg, model=MODELS, dimension=DIMENSIONS, size=SIZES, preset=PRESETS)
    preset = axes["preset"]
    steps = {"tiny": 20, "quick": 1500, "paper": 100_000}[preset]
    log_every = {"tiny": 10, "quick": 500, "paper": 1000}[preset]
    rate = dict(learning_rate=3e-4) if preset == "paper" else dict(learning_rate=3e-3, schedule="cosine")
    return ConfigDict(
        dict(
            name="intention/scaling",
            experiment="intention.least_squares",
            axes=axes,
            task=dict(points=10, dimension=int(axes["dimension"])),
            model=_model(axes["model"], int(axes["size"])),
            optimizer=common.optimizer("adam", **rate, clip_norm=1.0),
            train=dict(
                steps=steps,
                batch_size=64,
                seed=0,
                seeds=1,
                log_every=log_every,
                validate_every=steps if preset != "paper" else 10_000,
                checkpoint_every=steps if preset != "paper" else 10_000,
                placement="single",
                select="last",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches=4,
                untrained=False,
                tasks={"tiny": 100, "quick": 4000, "paper": 10_000}[preset],
                batch_size=100,
                threshold=0.05,
                example_tasks=100,
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of Figure 3, sizes in increasing order; `unneeded` says which of them can be left out."""
    return [{"model": model, "dimension": d, "size": size} for model in MODELS for d in DIMENSIONS for size in SIZES]


def unneeded(config: ConfigDict, finished: Sequence[dict]) -> str | None:
    """Why the sweep can leave out the cell of `config`; None where it is needed.

    Args:
      config: the cell's, with what the command line has changed in it.
      finished: content of the result.json of every finished cell of this sweep.
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


def _model(name: str, size: int) -> dict:
    shared = dict(name=name, latent=size, kernel_init="lecun_normal", bias_init="fan_in_uniform")
    own = {
        "intention": dict(alpha=0.1, alpha_kind="softplus"),
        "attention": dict(num_heads=5, slope=0.01, scaling="head", op="softmax"),
        "neural_process": {},
        "mlp": {},
    }
    return shared | own[name]
