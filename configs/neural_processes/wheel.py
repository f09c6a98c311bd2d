"""Contextual bandits on the wheel: CMANP paper, Appendix C.2, Table 7; with Intention beside its models.

    python -m experiments.run --config configs/neural_processes/wheel.py:model=cnp,preset=quick
    python -m scripts.sweep --config configs/neural_processes/wheel.py:preset=quick     # all models

`paper` is the published protocol: 100,000 steps on 512 context points, 128 latents, 2,000 rounds in 50 orders. It
trains one seed, where Appendix E.1 has 5 for all experiments: the ± of Table 7 is over the 50 orders. `quick` has the
published widths, fewer steps, 128 context points, 8 latents, and 500 rounds in 5 orders: regrets of different numbers
of rounds do not compare. Where the paper's text and the code of its models differ, the axes say which:

protocol=code   as released by TNP and LBANP; the numbers of Table 7 are of this one. One batch of eight wheels in every
                step, 2,000 fixed rounds for each radius that hold all training locations, rewards of std 0.05 and 0.01
protocol=text   eight fresh wheels in every step, fresh rounds for each of the 50 runs, and rewards of std 0.01. (The
                text prints N(., 0.012), a lost exponent: 0.01^2)
drop=published  TNP-D to CMANP, and Intention CMANP, learn from contexts of which half the rewards are noise, as in the
                histories that they play on; CNP to BANP, and Intention ANP, learn from all rewards
drop=all        noise for all. The loss of CNP to BANP is then the likelihood of the targets, as that of LBANP: their
                own would judge them on the noise

The standard deviation of CNP to BANP has its floor of 0.1 here, too; --config.model.std_map=exp
--config.model.std_floor=0.0 gives them the head of the others. CMANP's code for this was not released: it has LBANP's
sizes here. Both have the paper's 128 latents, where the released LBANP has 8. Models that draw samples act on one, as
published. TNP-A and TNP-ND, which Table 7 has not, are not here.

One batch in every step is soon learnt by heart. The last state is judged, as published; with
--config.train.select=best it is that of the least validation loss, on rounds of which no step has seen any.
"""

from ml_collections import ConfigDict

from configs import common

# The radii of the published training wheels: torch.rand(8) after torch.manual_seed(0), to three digits.
RADII = (0.496, 0.768, 0.088, 0.132, 0.307, 0.634, 0.490, 0.896)
LATENT = dict(objective="elbo", train_samples=1, eval_samples=1)
SMALL = dict(features=16, embed_depth=3, hidden=64, num_heads=1, num_layers=4)
# Model -> how it differs from the model of gp.py.
_CHANGES = {
    "cnp": {},
    "canp": {},
    "np": LATENT,
    "anp": LATENT,
    "bnp": dict(eval_samples=1),
    "banp": dict(eval_samples=1),
    "tnp_d": SMALL | dict(drop_y=0.5, loss_points="all"),
    "eqtnp": SMALL,
    "lbanp": SMALL,
    "cmanp": SMALL,
    "intention_anp": LATENT,
    "intention_cmanp": SMALL,
}
MODELS = tuple(_CHANGES)
_FLOORED = "|".join(common.floored())
# Protocol -> the wheels to train on, tasks in a batch (the published wheels are one), the rounds that are played.
_PROTOCOLS = {
    "code": (dict(name="fixed_wheels", deltas=RADII, small_std=0.05, large_std=0.01), 1, "published"),
    "text": (dict(name="fresh_wheels", delta=(0.0, 1.0), small_std=0.01, large_std=0.01), 8, "fresh"),
}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, protocol, drop."""
    axes = common.parse_axes(arg, model=MODELS, preset=common.PRESETS, protocol=_PROTOCOLS, drop=("published", "all"))
    wheels, batch_size, played = _PROTOCOLS[axes["protocol"]]
    config = dict(
        name="neural_processes/wheel",
        experiment="neural_processes.wheel",
        axes=axes,
        task=wheels | dict(context=512, targets=50, drop=0.5),
        model=common.model(axes["model"], dim_y=5, **_CHANGES[axes["model"]]),
        loss="own",
        optimizer=common.optimizer("adam", 5e-4, schedule="cosine"),
        train=common.train(100_000, batch_size, log_every=500, validate_every=5000, checkpoint_every=5000),
        evaluation=common.evaluation(
            validation_batches=4,
            wheels=played,
            deltas=(0.7, 0.9, 0.95, 0.99, 0.995),
            rounds=2000,
            seeds=50,
            batch_size=50,
            last=500,
            exploration=1.0,
            stages=4,
            example_seeds=1,
        ),
    )
    return common.edited(config, AXES, EDITS)


AXES = {
    # TNP-D drops by itself: its loss judges the context, too, by the true rewards.
    "model=tnp_d": {"task": dict(drop=0.0)},
    f"drop=published,model={_FLOORED}": {"task": dict(drop=0.0)},
    f"drop=all,model={_FLOORED}": {"loss": "likelihood"},
}
EDITS = {
    "preset=quick": {
        "task": dict(context=128),
        "train": dict(steps=20_000, log_every=50, validate_every=500, checkpoint_every=500),
        "evaluation": dict(rounds=500, seeds=5, batch_size=5, last=125),
    },
    "preset=quick,model=lbanp|cmanp|intention_cmanp": {"model?": dict(num_latents=8, num_block_latents=8)},
    # As many as some minutes of an idle core give. Self-attention of eight heads over the context is dear.
    "preset=quick,model=cnp|np": {"train": dict(steps=25_000)},
    "preset=quick,model=intention_anp": {"train": dict(steps=12_000)},
    "preset=quick,model=canp": {"train": dict(steps=8000)},
    "preset=quick,model=anp|bnp": {"train": dict(steps=6000)},
    "preset=quick,model=banp": {"train": dict(steps=500)},
    "preset=tiny": {
        "task": dict(context=32, targets=8),
        "model?": dict(num_layers=2, latent=16, num_latents=8, num_block_latents=8),
        "train": dict(steps=20, seeds=2, log_every=10, validate_every=20, checkpoint_every=20),
        "evaluation": dict(validation_batches=1, rounds=20, seeds=2, batch_size=2, last=5, stages=1),
    },
    f"preset=tiny,model={_FLOORED}": {"model": dict(hidden=16)},
}


def sweep() -> list[dict[str, str]]:
    """The cells of Table 7."""
    return [{"model": model} for model in MODELS]
