"""One-dimensional meta-regression: CMANP paper, Section 4.2, Table 4; the ANP slides' functions; with Intention beside them.

    python -m experiments.run --config configs/neural_processes/gp.py:model=tnp_d,preset=quick
    python -m scripts.sweep --config configs/neural_processes/gp.py:preset=quick     # all models

`paper` is the published protocol: 100,000 steps, batch 16, 128 latents, 48,000 functions of each kernel, 5 seeds. `quick` has
the published widths, fewer steps, latents and samples. Where the paper's text and its code differ, the axes say which:

protocol=code    l ~ U(0.1, 0.6), as released; the numbers of Table 4 are of this one
protocol=text    l ~ U(0.6, 1.0), as printed
protocol=slides  the ANP slides and their notebook: l ~ U(0.1, 0.6), up to 49 context points of 50, rate 1e-4. The notebook's
                 targets are the context and 0 or more further points, ours the further ones, 1 or more
std=published    config.model.std_floor of CNP to BANP is 0.1, five times the noise of the data: 0.1 + 0.9 softplus(.); TNP to
                 CMANP have none: exp(.)
std=same         exp(.) for all: models differ in the model alone. For TNP to CMANP nothing changes

Each task has its own number of points, where the released code shares one in a batch (experiments/neural_processes/gp.py). The
released code overrides its own latents and AND block size by defaults of flags (8 or 128, and none): 128 and 5 are the paper's.
intention_anp is ANP(op=intention) without self-attention, intention_cmanp CMANP with Intention over the context: both hold the
context in a state of constant size. Their ridge starts at 0.1 and is learnt.
"""

from ml_collections import ConfigDict

from configs import common

_FLOORED = ("cnp", "canp", "np", "anp", "bnp", "banp", "intention_anp")  # their published std is at least 0.1
MODELS = (
    "cnp",
    "canp",
    "np",
    "anp",
    "bnp",
    "banp",
    "tnp_d",
    "eqtnp",
    "lbanp",
    "cmanp",
    "tnp_a",
    "tnp_nd",
    "lbanp_nd",
    "cmanp_and",
    "intention_anp",
    "intention_cmanp",
)
PRESETS = ("quick", "tiny", "paper")
# What a protocol sets of the task, and its learning rate.
_PROTOCOLS = {
    "code": (dict(length_scale=(0.1, 0.6), max_context=46, min_targets=3, max_points=49), 5e-4),
    "text": (dict(length_scale=(0.6, 1.0), max_context=46, min_targets=3, max_points=49), 5e-4),
    "slides": (dict(length_scale=(0.1, 0.6), max_context=49, min_targets=1, max_points=50), 1e-4),
}
# Steps of the quick preset: one to six minutes each on two idle cores, with the evaluation. CMANP is slow to begin to learn.
_QUICK_STEPS = {
    "cnp": 5000,
    "canp": 2500,
    "np": 5000,
    "anp": 2000,
    "bnp": 2000,
    "banp": 1000,
    "tnp_d": 4000,
    "eqtnp": 3000,
    "lbanp": 3000,
    "cmanp": 7500,
    "tnp_a": 3000,
    "tnp_nd": 3000,
    "lbanp_nd": 3000,
    "cmanp_and": 7000,
    "intention_anp": 3000,
    "intention_cmanp": 4000,
}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, std, protocol."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS, std=("published", "same"), protocol=tuple(_PROTOCOLS))
    preset = axes["preset"]
    steps = {"tiny": 20, "quick": _QUICK_STEPS[axes["model"]], "paper": 100_000}[preset]
    log_every = {"tiny": 10, "quick": 100, "paper": 500}[preset]
    task, learning_rate = _PROTOCOLS[axes["protocol"]]
    return ConfigDict(
        dict(
            name="neural_processes/gp",
            experiment="neural_processes.meta_regression",
            axes=axes,
            task=dict(
                kernel="rbf",
                scale=(0.1, 1.0),
                period=(0.1, 0.5),
                noise=0.02,
                t_scale=(0.0, 0.0),
                t_freedom=2.1,
                position=(-2.0, 2.0),
                min_context=3,
                **task,
            ),
            model=common.neural_process(axes["model"], 1, _parts(preset, axes["std"])),
            optimizer=common.optimizer("adam", learning_rate, schedule="cosine"),
            train=dict(
                steps=steps,
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
                kernels=("rbf", "matern", "periodic"),
                tasks={"tiny": 8, "quick": 1000, "paper": 48_000}[preset],
                batch_size={"tiny": 4, "quick": 8, "paper": 16}[preset],
                example_counts=(4, 10, 25),
                example_points=200,
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of Table 4, and the models with a floor under the standard deviation again, without it."""
    return [{"model": model, "std": "published"} for model in MODELS] + [
        {"model": model, "std": "same"} for model in _FLOORED
    ]


def _parts(preset: str, std: str) -> dict[str, dict]:
    """The fields of all models, by part; `tiny` is narrow, `quick` has fewer latents and samples than are published."""
    tiny, paper = preset == "tiny", preset == "paper"
    floored = {"published": dict(std_map="softplus", std_floor=0.1), "same": dict(std_map="exp", std_floor=0.0)}[std]
    samples = dict(train_samples=4, eval_samples=50 if paper else 8)
    op = dict(op="softmax", alpha_kind=None, alpha=0.1)
    latents = {"tiny": 4, "quick": 8, "paper": 128}[preset]
    return {
        # CNP to BANP
        "pooling": dict(
            hidden=16 if tiny else 128,
            pre_depth=4,
            post_depth=2,
            decoder_depth=3,
            kernel_init="fan_in_uniform",
            bias_init="fan_in_uniform",
            **floored,
        ),
        "attention": dict(num_heads=8, value_depth=4, key_depth=2, scaling="full", self_attention=True, **op),
        "latent": dict(latent=16 if tiny else 128, latent_floor=0.1, objective="importance", **samples),
        "bootstrap": samples,
        # TNP to CMANP
        "transformer": dict(
            features=16 if tiny else 64,
            embed_depth=4,
            hidden=32 if tiny else 128,
            num_heads=4,
            num_layers=2 if tiny else 6,
            copy_layers=True,
            **op,
        ),
        "tnp": dict(drop_y=0.0),
        "predictor": dict(std_map="exp", std_floor=0.0, loss_points="targets"),
        "rollout": dict(samples=50 if paper else 8, permute=True, teacher_noise=0.0),
        "covariance": dict(
            std_layers=2, rank=20, projector_depth=4, diagonal_depth=4, covariance="cholesky", bound=False, jitter=0.0
        ),
        "tnp_covariance": dict(objective="joint"),
        "levels": dict(residual="normalized", std_map="exp", std_floor=0.0),
        "levels_covariance": dict(unused_predictor=True),
        "latents": dict(num_latents=latents),
        "blocks": dict(num_block_latents=latents, cross_op=None),
        "autoregression": dict(block_size=5),
    }
