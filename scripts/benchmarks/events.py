"""Events per second in training and serving by the length of sequences: THP, CMHP and a GRU, in turns.

The models are those of configs/point_processes/events.py in `quick`: with the 128 latents of `paper` the states of a
batch of long sequences would take tens of gigabytes. Training is the gradient of the loss of one batch,
no sampling and no update. Serving absorbs one event of one sequence and forecasts the next, with so many events before
it. Ratios are times over those of THP at the same length.
"""

from collections.abc import Sequence

import jax

from configs.point_processes import events as config_file
from experiments.harness import settings, timing
from experiments.point_processes.serving import programs
from kvq_jax.models import EVENT_MODELS

_MODELS = ("thp_mixture", "cmhp", "gru")  # the first is what the others are compared with
_LENGTHS, _BATCH = (64, 256, 1024, 4096), 4
_TURNS, _BUDGET_S, _MARKS = 5, 4.0, 16


def main(lengths: Sequence[int] = _LENGTHS, preset: str = "quick", budget_s: float = _BUDGET_S) -> None:
    """Prints a line for each length and model."""
    print(f"events per second, float32, {jax.devices()[0].device_kind}")
    heads = f"{'training':>12}{'time / THP':>12}{'serving':>12}{'time / THP':>12}"
    print(f"{'length':>8} {'model':18}{heads}")
    models = {name: _model(name, preset) for name in _MODELS}
    for length in lengths:
        training = [programs.training(model, length, (_BATCH,)).call() for model in models.values()]
        serving = [programs.serving(model, length).call() for model in models.values()]
        times = [timing.interleaved(calls, _TURNS, budget_s) for calls in (training, serving)]
        for place, name in enumerate(models):
            line = f"{length:8} {EVENT_MODELS[name].label:18}"
            for measured, events in zip(times, (_BATCH * length, 1)):
                rate, ratio = events / timing.seconds(measured, place), timing.ratio(measured, place, 0)
                line += f"{rate:12.4g}{ratio:12.3f}"
            print(line)


def _model(name: str, preset: str):
    section = config_file.get_config(f"model={name},data=hawkes,preset={preset}").model
    return settings.build_named(EVENT_MODELS, section, "config.model", num_marks=_MARKS, **programs.UNIT_GAPS)
