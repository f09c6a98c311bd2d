"""What CMANP's bottleneck and CMANP-AND's blocks cost and bring: CMANP paper, Section 4.2.1 and appendix, Figures 4, 6, 9, 10.

    python -m scripts.sweep --config configs/neural_processes/analyses.py:preset=quick     # all cells
    python -m experiments.run --config configs/neural_processes/analyses.py:latents=2,preset=quick

The task, the models and the training are those of gp.py. There are two studies:

study=sizes     CMANP with other sizes; `quick` has 5000 steps:
    latents         L_I, what a block hands to the next, and
    block_latents   L_B, what each block reads the context with: 128 in `paper`, 8 in `quick`, where `base`
    width           of the latents, and of all else in the model: 64 where `base`
study=blocks    CMANP and CMANP-AND for as long as it takes, in `quick`, until their order is that of `paper`: 25,000 steps, 15
                to 25 minutes each on one core

CMANP-AND is trained once, on all targets at once; its evaluation then goes through `evaluation.block_sizes`, of which 46 is all
targets. Figures 9 and 10 show both models of study=blocks, CMANP-AND predicting all points as one block. The paper's text
gives neither the sizes of Figures 4 and 6 nor the number of context points of Figures 9 and 10: both are ours.
"""

from ml_collections import ConfigDict

from configs import common

_MODELS = ("cmanp", "cmanp_and")
PRESETS = ("quick", "tiny", "paper")
STUDIES = {"sizes": 5000, "blocks": 25_000}  # the steps of `quick`
SIZES = ("base", "1", "2", "8", "32")
WIDTHS = ("base", "16", "32")
# The base (latents and block latents, width) of a preset.
_BASES = {"tiny": (4, 16), "quick": (8, 64), "paper": (128, 64)}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, study, latents, block_latents, width, preset. In it, `base` is a number."""
    axes = common.parse_axes(
        arg, model=_MODELS, study=tuple(STUDIES), latents=SIZES, block_latents=SIZES, width=WIDTHS, preset=PRESETS
    )
    preset, blocks = axes["preset"], axes["model"] == "cmanp_and"
    size, width = map(str, _BASES[preset])
    axes |= {
        axis: base for axis, base in dict(latents=size, block_latents=size, width=width).items() if axes[axis] == "base"
    }
    log_every = {"tiny": 10, "quick": 100, "paper": 500}[preset]
    return ConfigDict(
        dict(
            name="neural_processes/analyses",
            experiment="neural_processes.analyses",
            axes=axes,
            task=dict(
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
            ),
            model=common.neural_process(axes["model"], 1, _parts(axes, tiny=preset == "tiny")),
            optimizer=common.optimizer("adam", 5e-4, schedule="cosine"),
            train=dict(
                steps={"tiny": 20, "quick": STUDIES[axes["study"]], "paper": 100_000}[preset],
                batch_size=16,
                seed=0,
                seeds={"tiny": 2, "quick": 1, "paper": 5}[preset],
                log_every=log_every,
                validate_every={"tiny": 20, "quick": 500, "paper": 5000}[preset],
                checkpoint_every={"tiny": 20, "quick": 500, "paper": 5000}[preset],
                placement="single",
                select="last",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches={"tiny": 1, "quick": 8, "paper": 32}[preset],
                untrained=False,
                kernels=("rbf", "matern"),
                tasks={"tiny": 8, "quick": 500, "paper": 48_000}[preset],
                batch_size={"tiny": 4, "quick": 8, "paper": 16}[preset],
                block_sizes=(1, 5, 10, 25, 46) if blocks else (),
                example_counts=(15,),
                example_points=200,
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of all figures; two that come to the same numbers are one run."""
    sizes, widths = SIZES[1:], WIDTHS[1:]
    return [
        *({"model": model, "study": "blocks"} for model in _MODELS),
        {"study": "sizes"},
        *({"latents": size, "block_latents": size} for size in sizes),
        *({"block_latents": size} for size in sizes),
        *({"latents": size} for size in sizes),
        *({"width": width} for width in widths),
    ]


def _parts(axes: dict[str, str], tiny: bool) -> dict[str, dict]:
    """The fields of both models, by part; `tiny` has fewer and narrower layers."""
    return {
        "transformer": dict(
            features=int(axes["width"]),
            embed_depth=4,
            hidden=32 if tiny else 128,
            num_heads=4,
            num_layers=2 if tiny else 6,
            copy_layers=True,
            op="softmax",
            alpha_kind=None,
            alpha=0.1,
        ),
        "levels": dict(residual="normalized", std_map="exp", std_floor=0.0),
        "latents": dict(num_latents=int(axes["latents"])),
        "blocks": dict(num_block_latents=int(axes["block_latents"]), cross_op=None),
        "covariance": dict(
            std_layers=2, rank=20, projector_depth=4, diagonal_depth=4, covariance="cholesky", bound=False, jitter=0.0
        ),
        "levels_covariance": dict(unused_predictor=True),
        "autoregression": dict(block_size=5),
    }
