"""Contextual bandits on the wheel: CMANP paper, Appendix C.2, Table 7; with Intention beside its models.

    python -m experiments.run --config configs/neural_processes/wheel.py:model=cnp,preset=quick
    python -m scripts.sweep --config configs/neural_processes/wheel.py:preset=quick     # all models

`paper` is the published protocol: 100,000 steps on 512 context points, 2,000 rounds in 50 orders. `quick` has the published
widths, but fewer steps, 128 context points, and 500 rounds in 5 orders: regrets of different numbers of rounds do not compare.
Where the paper's text and the code of its models differ, the axes say which:

protocol=code   one batch of eight wheels in every step, 2,000 fixed rounds for each radius that hold all training locations,
                and rewards of std 0.05 and 0.01, as released by TNP and LBANP; the numbers of Table 7 are of this one
protocol=text   eight fresh wheels in every step, fresh rounds for each of the 50 runs, and rewards of std 0.01. (The text
                prints N(., 0.012), a lost exponent: 0.01^2)
drop=published  TNP-D to CMANP learn from contexts of which half the rewards are noise, as in the histories that they play on;
                CNP to BANP learn from all rewards
drop=all        noise for all. The loss of CNP to BANP is then the likelihood of the targets, as that of LBANP: their own would
                judge them on the noise

The floor of 0.1 under the standard deviation of CNP to BANP stands here, too; the others' head is --config.model.std_map=exp
--config.model.std_floor=0.0. CMANP's code for this was not released: it has LBANP's sizes here. Models that draw samples act on
one, as published.
"""

from ml_collections import ConfigDict

from configs import common

_NOT_DROPPED = ("cnp", "canp", "np", "anp", "bnp", "banp", "intention_anp")  # as published, and ours like the ANP
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
    "intention_anp",
    "intention_cmanp",
)
PRESETS = ("quick", "tiny", "paper")
# The radii of the published training wheels: torch.rand(8) after torch.manual_seed(0), to three digits.
RADII = (0.496, 0.768, 0.088, 0.132, 0.307, 0.634, 0.490, 0.896)
# Protocol -> task, tasks in a batch (the published wheels are one task), rewards, and the rounds that are played.
_PROTOCOLS = {
    "code": (dict(name="fixed_wheels", deltas=RADII), 1, dict(small_std=0.05, large_std=0.01), "published"),
    "text": (dict(name="fresh_wheels", delta=(0.0, 1.0)), 8, dict(small_std=0.01, large_std=0.01), "fresh"),
}

# Steps of the quick preset: three to six minutes each on one idle core. Self-attention of eight heads over the context is dear.
_QUICK_STEPS = dict.fromkeys(MODELS, 20_000) | {
    "cnp": 25_000,
    "np": 25_000,
    "intention_anp": 12_000,
    "canp": 8000,
    "anp": 6000,
    "bnp": 6000,
    "banp": 500,
}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, protocol, drop."""
    axes = common.parse_axes(arg, model=MODELS, preset=PRESETS, protocol=tuple(_PROTOCOLS), drop=("published", "all"))
    preset, name = axes["preset"], axes["model"]
    task, batch_size, rewards, wheels = _PROTOCOLS[axes["protocol"]]
    dropped = axes["drop"] == "all" or name not in _NOT_DROPPED
    log_every = {"tiny": 10, "quick": 50, "paper": 500}[preset]
    seeds = {"tiny": 2, "quick": 5, "paper": 50}[preset]
    rounds = {"tiny": 20, "quick": 500, "paper": 2000}[preset]
    return ConfigDict(
        dict(
            name="neural_processes/wheel",
            experiment="neural_processes.bandit",
            axes=axes,
            task=dict(
                context={"tiny": 32, "quick": 128, "paper": 512}[preset],
                targets=8 if preset == "tiny" else 50,
                # TNP-D drops by itself: its loss judges the context, too, by the true rewards.
                drop=0.5 if dropped and name != "tnp_d" else 0.0,
                **task,
            ),
            rewards=rewards,
            model=common.neural_process(name, 5, _parts(preset)),
            loss="likelihood" if dropped and name in _NOT_DROPPED else "own",
            optimizer=common.optimizer("adam", 5e-4, schedule="cosine"),
            train=dict(
                steps={"tiny": 20, "quick": _QUICK_STEPS[name], "paper": 100_000}[preset],
                batch_size=batch_size,
                seed=0,
                seeds=2 if preset == "tiny" else 1,
                log_every=log_every,
                validate_every={"tiny": 20, "quick": 500, "paper": 5000}[preset],
                checkpoint_every={"tiny": 20, "quick": 500, "paper": 5000}[preset],
                placement="single",
                select="last",
            ),
            evaluation=dict(
                seed=1000,
                validation_batches=1 if preset == "tiny" else 4,
                untrained=False,
                wheels=wheels,
                deltas=(0.7, 0.9, 0.95, 0.99, 0.995),
                rounds=rounds,
                seeds=seeds,
                batch_size=seeds,
                last=rounds // 4,
                exploration=1.0,
                stages=1 if preset == "tiny" else 4,
                example_seeds=1,
            ),
        )
    )


def sweep() -> list[dict[str, str]]:
    """The cells of Table 7."""
    return [{"model": model} for model in MODELS]


def _parts(preset: str) -> dict[str, dict]:
    """The fields of all models, by part; `tiny` is narrow."""
    tiny = preset == "tiny"
    op = dict(op="softmax", alpha_kind=None, alpha=0.1)
    return {
        # CNP to BANP
        "pooling": dict(
            hidden=16 if tiny else 128,
            pre_depth=4,
            post_depth=2,
            decoder_depth=3,
            kernel_init="fan_in_uniform",
            bias_init="fan_in_uniform",
            std_map="softplus",
            std_floor=0.1,
        ),
        "attention": dict(num_heads=8, value_depth=4, key_depth=2, scaling="full", self_attention=True, **op),
        "latent": dict(latent=16 if tiny else 128, latent_floor=0.1, objective="elbo", train_samples=1, eval_samples=1),
        "bootstrap": dict(train_samples=4, eval_samples=1),
        # TNP-D to CMANP
        "transformer": dict(
            features=16, embed_depth=3, hidden=64, num_heads=1, num_layers=2 if tiny else 4, copy_layers=True, **op
        ),
        "tnp": dict(drop_y=0.5),
        "predictor": dict(std_map="exp", std_floor=0.0, loss_points="all"),
        "levels": dict(residual="normalized", std_map="exp", std_floor=0.0),
        "latents": dict(num_latents=8),
        "blocks": dict(num_block_latents=8, cross_op=None),
    }
