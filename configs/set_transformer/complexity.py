"""Time, operations and memory of SAB, ISAB and PMA by the number of elements: Set Transformer, Sections 3.1 and 3.2.

    PJRT_NPROC=1 python -m experiments.run --config configs/set_transformer/complexity.py:preset=quick
    python -m experiments.run --config configs/set_transformer/complexity.py:preset=paper     # supplement, Figure 1

One set of up to 10,000 elements passes through a block. Nothing is trained. form and op are as in clustering.py.

`paper` has the blocks of the supplement's Figure 1 (its Section 3.1), SAB(64, 8) and ISAB_4(64, 8), and its elements of
three features. The figure has the seconds that 10,000 sets take on a Tesla P40, without saying how many pass at once,
and ends for SAB at 2000 elements, where the memory did; ours are the milliseconds of one set. The other sizes, PMA, the
gradient and operations are ours. Its elements are zeros and ours ones, which changes no time. The blocks of form=paper
add the elements to what they make of them, and so have elements as wide as themselves.

`quick` has elements and blocks of width 128 with 4 heads, and 16 inducing points. It reads the clock of its process,
which stands still while others have the processor: pin it to one core, as above. On an accelerator take
--config.measurement.clock=wall.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.nn import ISAB, PMA, SAB, SET_FORMS

# Block -> its class, and its own fields.
BLOCKS = {"sab": (SAB, {}), "isab": (ISAB, dict(num_inducing=4)), "pma": (PMA, dict(num_seeds=4))}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one measurement; axes: preset, form, op."""
    axes = common.parse_axes(arg, preset=common.PRESETS, form=("code", "paper"), op=("own", *common.operators()))
    shared = dict(dim=64, num_heads=8) | SET_FORMS[axes["form"]]
    shared |= {} if axes["op"] == "own" else dict(op=common.op(axes["op"]))
    config = dict(
        name="set_transformer/complexity",
        experiment="set_transformer.complexity",
        axes=axes,
        blocks={name: dict(name=name) | common.section(cls, **shared, **own) for name, (cls, own) in BLOCKS.items()},
        measurement=dict(
            sizes=(100, 200, 500, 1000, 2000, 5000, 10_000),
            features=3,
            phases=("forward", "gradient"),
            turns=7,
            budget_s=5.0,
            clock="wall",
        ),
    )
    return common.edited(config, EDITS)


_QUICK = dict(dim=128, num_heads=4)
EDITS = {
    "form=paper": {"measurement": dict(features=64)},
    "preset=quick": {
        "blocks": dict.fromkeys(BLOCKS, _QUICK) | {"isab": _QUICK | dict(num_inducing=16)},
        "measurement": dict(features=128, turns=5, budget_s=1.0, clock="processor"),
    },
    "preset=tiny": {
        "blocks": dict.fromkeys(BLOCKS, dict(dim=8, num_heads=2)),
        "measurement": dict(sizes=(16, 32, 64), features=8, turns=1, budget_s=0.0),
    },
}


def sweep() -> list[dict[str, str]]:
    """All that is measured, in one run."""
    return [{}]
