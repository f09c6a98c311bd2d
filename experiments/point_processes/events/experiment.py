"""When the next event happens, and of what kind it is (CMANP paper, Section 4.2.1 and Appendix C.1, Tables 5 and 6).

A model is trained on the likelihood of whole sequences, every event given those before it, in one pass. The sequences
are drawn from a process whose likelihood is known, which is then the best that any model can reach, or they are
recorded. Every model is judged on the same sequences; measures.py says by what.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.data import event_sequences
from experiments.data.event_sequences import EventData, GapStatistics
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import DATA, NO_DATA, Experiment
from experiments.harness.size_classes import Sizes
from experiments.point_processes.events import measures
from experiments.tasks.event_process import PointProcess
from experiments.tasks.event_processes import PROCESSES
from kvq_jax.domains import Count
from kvq_jax.models import EVENT_MODELS
from kvq_jax.models.event_processes.base import Forecast
from kvq_jax.models.event_processes.events import Events, number, padded, whole_mask

SECTIONS = ("task", "data", "model")  # no task where there are data
_SAMPLED = 256  # sequences of a process whose gaps scale the models


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """What this experiment adds to the config's `evaluation` section; of recorded sequences `tasks` is the most."""

    curve_points: Count  # times at which the intensity of the picture is computed


class Shown(flax.struct.PyTreeNode):
    """Sequences of a split, or a batch of them, and whether a model is trained on them."""

    events: Any
    training: bool = flax.struct.field(pytree_node=False)


class Source(NamedTuple):
    """Where sequences come from, as the harness takes them.

    Attributes:
      training: sample, data and sizes of the Experiment; what is sampled is Shown.
      slots: of a sequence that initialises a model.
      num_marks: kinds of events.
      gaps: of the training sequences, which scale a model.
      mean_events: of these sequences.
      facts: for result.json.
      process: whose likelihood is exact; None of recorded sequences.
      judged: (function of (sequence, key), test data, key, sequences, at once) -> its arrays [sequences, ...].
      pictured: (test data, key, sequences) -> so many sequences [sequences, L], of recorded ones the longest first.
    """

    training: dict[str, Any]
    slots: int
    num_marks: int
    gaps: GapStatistics
    mean_events: float
    facts: dict[str, Any]
    process: PointProcess | None
    judged: Callable
    pictured: Callable


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    if (config.task is None) == (config.data is None):
        raise ConfigError("config.task and config.data: expected one of them, a process or recorded sequences")
    source = _drawn(config.task) if config.data is None else _recorded(config.data, config.train.size_classes, data_dir)
    time_scale, log_mean, log_std = source.gaps
    given = dict(num_marks=source.num_marks, time_scale=time_scale, log_mean=log_mean, log_std=log_std)
    model = settings.build_named(EVENT_MODELS, config.model, "config.model", **given)

    def init(key):
        like = jax.ShapeDtypeStruct((source.slots,), jnp.float32)
        events = Events(like, jax.ShapeDtypeStruct(like.shape, jnp.int32), None, jax.ShapeDtypeStruct((), jnp.float32))
        return model.lazy_init(key, events)

    def loss(variables, shown, key):
        batch = shown.events
        # By the events that so many sequences have on average: one of a short sequence weighs as one of a long one,
        # though the sequences of a batch are of one length class, and a part of a batch has other numbers.
        weight = jnp.maximum(number(batch).sum(), 1) / (len(batch.gap) * source.mean_events)
        return weight * model.apply(variables, batch, key, train=shown.training, method="loss"), ({}, {})

    def log_likelihood(variables, events, key):
        return model.apply(variables, events, key=key, method="log_likelihood")

    def evaluate(variables, test, key):
        def one(events, key):
            found = measures.likelihood_sums(log_likelihood(variables, events, key))
            if source.process is not None:
                best = measures.likelihood_sums(source.process.log_likelihood(events))
                found |= {f"oracle_{part}": total for part, total in best.items()}
            return found | measures.forecast_sums(model.apply(variables, events), events)

        return source.judged(one, test.events, key, evaluation.tasks, evaluation.batch_size)

    def host(arrays):
        return measures.metrics(arrays, source.num_marks > 1, source.process is not None)

    def examples(variables, test, key):
        """Likelihoods of times and counts of F(gap) of some sequences, and the intensity along the first of them."""
        events = source.pictured(test.events, key, evaluation.example_tasks)

        def of_sequence(given):
            sequence, key = given
            found = log_likelihood(variables, sequence, key).time
            counts = measures.forecast_sums(model.apply(variables, sequence), sequence)["pit"]
            truth = {"oracle_time": source.process.log_likelihood(sequence).time} if source.process else {}
            return truth | {"prediction_time": found, "prediction_pit": counts}

        keys = jax.random.split(key, len(events.rest))
        found = jax.lax.map(of_sequence, (events, keys), batch_size=evaluation.batch_size)
        found |= {"prediction_pit": found["prediction_pit"].sum(0), "mask": whole_mask(events)}
        first = jax.tree.map(lambda array: array[0], events)
        end = jnp.where(whole_mask(first), first.gap, 0).sum() + first.rest
        time = jnp.linspace(0, end, evaluation.curve_points)
        found |= {"time": time, "prediction_intensity": intensity(model.apply(variables, first), first, time)}
        if source.process is None:
            return found | {f"{DATA}gap": first.gap, f"{DATA}mark": first.mark}
        return found | {"oracle_intensity": source.process.intensity(first, time), "gap": first.gap, "mark": first.mark}

    return Experiment(
        init=init,
        loss=loss,
        evaluate=evaluate,
        examples=examples,
        facts=source.facts | {"gaps": source.gaps._asdict()},
        model=model,
        host=host,
        **source.training,
    )


def intensity(forecast: Forecast, events: Events, time: jax.Array) -> jax.Array:
    """The intensity [T] at times [T] since observation began, p(gap) / (1 - F(gap)), by forecasts [L + 1].

    That of a time at which an event happens is the one before the event.
    """
    happened = jnp.where(whole_mask(events), jnp.cumsum(events.gap), jnp.inf)
    before = jnp.searchsorted(happened, time, side="left")
    start = jnp.append(0.0, happened)[before]

    def at(given):
        time, before, start = given
        gap = jnp.maximum(time - start, jnp.finfo(time.dtype).tiny)
        return jnp.exp(forecast.time.log_prob(gap) - forecast.time.log_survival(gap))[before]

    return jax.lax.map(at, (time, before, start))


def _drawn(section: ConfigDict) -> Source:
    """Sequences that are drawn from a process. Raises ConfigError."""
    process = settings.build_named(PROCESSES, section, "config.task")
    some = jax.jit(jax.vmap(process.sample))(jax.random.split(jax.random.key(0), _SAMPLED))
    if not number(some).any():
        raise ConfigError(f"config.task: no event in {_SAMPLED} sequences")
    gaps = event_sequences.gap_statistics(some)

    def judged(function, test, key, sequences, at_once):
        def one(task_key):
            return function(process.sample(jax.random.fold_in(task_key, 0)), jax.random.fold_in(task_key, 1))

        return over_tasks(one, key, sequences, at_once)

    return Source(
        training=dict(sample=lambda key, split: split.replace(events=process.sample(key)), data=_shown(NO_DATA)),
        slots=process.max_events,
        num_marks=process.num_marks,
        gaps=gaps,
        mean_events=float(number(some).mean()),
        facts={"data": "drawn from the process", "unit": "units of time", "marks": process.num_marks},
        process=process,
        judged=judged,
        pictured=lambda test, key, sequences: jax.vmap(process.sample)(jax.random.split(key, sequences)),
    )


def _recorded(section: ConfigDict, size_classes: int, data_dir: str | None) -> Source:
    """Recorded sequences, in classes of their lengths. Raises ConfigError and DataError."""
    own = settings.build(EventData, section, "config.data", classes=max(1, size_classes))
    sets = event_sequences.load(own, data_dir)
    classes, slots = sets.classes, sets.classes.classes[-1]

    def judged(function, test, key, sequences, at_once):
        found = []
        for place, part in _some(test, sequences):
            keys = jax.random.split(jax.random.fold_in(key, place), len(part.rest))
            found.append(jax.lax.map(lambda one: function(*one), (part, keys), batch_size=at_once))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)

    def pictured(test, key, sequences):
        chosen = [padded(part, slots) for _, part in _some(test, sequences)]
        return jax.tree.map(lambda *parts: jnp.concatenate(parts[::-1]), *chosen)

    def sample(key, split):
        return split.replace(events=classes.draw(key, split.events))

    def fill(drawn, slots, size):
        return drawn.replace(events=classes.fill(drawn.events, slots, size))

    return Source(
        training=dict(sample=sample, data=_shown(sets.data), sizes=Sizes(classes, fill)),
        slots=classes.classes[0],
        num_marks=sets.num_marks,
        gaps=sets.statistics,
        mean_events=classes.elements / sum(classes.counts),
        facts=sets.facts,
        process=None,
        judged=judged,
        pictured=pictured,
    )


def _shown(data: Mapping[str, Any]) -> dict[str, Shown]:
    return {split: Shown(events, split == "train") for split, events in data.items()}


def _some(test: Sequence[Events], most: int) -> list[tuple[int, Events]]:
    """The first sequences of each length class, `most` in all, with its place; none of a class without a share."""
    shares = enumerate(zip(test, _shares([len(part.rest) for part in test], most)))
    return [
        (place, jax.tree.map(lambda leaf, count=count: leaf[:count], part)) for place, (part, count) in shares if count
    ]


def _shares(counts: Sequence[int], most: int) -> list[int]:
    """How many sequences of each class to take for `most` in all, or all of them: as many as is its share."""
    before = np.cumsum([0, *counts])
    return np.diff(np.round(before * min(1, most / before[-1])).astype(int)).tolist()
