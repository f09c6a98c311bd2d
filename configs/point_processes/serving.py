"""Time and memory of an event by the number of events before it: what CMANP's constant memory is for (Section 4.2.1).

    python -m experiments.run --config configs/point_processes/serving.py:preset=quick

Nothing is trained. The models have the sizes that events.py gives them in the same preset.
"""

from ml_collections import ConfigDict

from configs import common
from configs.point_processes import events

MODELS = ("thp_mixture", "cmhp", "intention_hawkes", "gru")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of all models; axis: preset."""
    axes = common.parse_axes(arg, preset=common.PRESETS)
    config = dict(
        name="point_processes/serving",
        experiment="point_processes.serving",
        axes=axes,
        models={
            name: events.get_config(f"model={name},data=hawkes,preset={axes['preset']}").model.to_dict()
            for name in MODELS
        },
        measurement=dict(events=(64, 256, 1024, 4096), num_marks=16, turns=5, budget_s=0.5),
    )
    return common.edited(config, EDITS)


EDITS = {"preset=tiny": {"measurement": dict(events=(4, 8), turns=1, budget_s=0.0)}}


def sweep() -> list[dict[str, str]]:
    """All of it is one run."""
    return [{}]
