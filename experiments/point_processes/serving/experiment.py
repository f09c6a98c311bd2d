"""What an event costs by the number of events before it: time and memory, in training and in serving.

A result has a metric '<what>/<model>@<events>' in seconds or bytes, for a model with variables that are not trained:

    state       bytes of what is kept of the events before
    event       seconds to absorb one more event, and to forecast the next
    training    seconds of the gradient of the loss of one sequence
    memory      bytes that this gradient needs, by the compiler
"""

import dataclasses

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import Summary, single
from experiments.harness.programs import memory, seconds
from experiments.point_processes.serving import programs
from kvq_jax.domains import Count, Increasing, NotNegative
from kvq_jax.models import EVENT_MODELS

SECTIONS = ("models", "measurement")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The config's `measurement` section."""

    events: Increasing  # numbers of events before
    num_marks: Count
    turns: Count  # of a timing, which is their median
    budget_s: NotNegative  # seconds to spend on a timing


def measure(config: ConfigDict) -> tuple[dict[str, Summary], dict[str, np.ndarray], dict[str, list[str]]]:
    """Metrics, no arrays and no facts. Raises ConfigError before anything is measured."""
    how = settings.build(Measurement, config.measurement, "config.measurement")
    models = {
        name: settings.build_named(
            EVENT_MODELS, section, f"config.models.{name}", num_marks=how.num_marks, **programs.UNIT_GAPS
        )
        for name, section in config.models.items()
    }
    metrics = {}
    for name, model in models.items():
        for events in how.events:
            state = programs.state_of(model, events)
            training = programs.training(model, events)
            found = {
                "state": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)),
                "event": seconds(programs.serving(model, events), how.turns, how.budget_s),
                "training": seconds(training, how.turns, how.budget_s),
                "memory": memory(training),
            }
            metrics |= {f"{what}/{name}@{events}": single(value) for what, value in found.items()}
    return metrics, {}, {}
