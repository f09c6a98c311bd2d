"""What the results of the wheel bandit say (CMANP paper, Table 7)."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from experiments.harness import settings
from experiments.harness.findings import Finding, Numbers, digits, listed
from experiments.harness.results import Result, steps_by_name
from experiments.harness.tables import within_error
from experiments.neural_processes.wheel.tables import (
    DROPS,
    PUBLISHED,
    READINGS,
    REFERENCES,
    Reading,
    changed,
    chosen_results,
    of_reading,
    plays,
    table7,
)
from experiments.tasks.wheel import WHEELS
from kvq_jax.models import MODELS


def wheel(results: Sequence[Result], reading: Reading, preset: str) -> Iterator[Finding]:
    """Who has learnt to act, beside the rule that needs no learning and beside the published reading of the preset."""
    results = [result for result in results if result.preset == preset]
    regrets = _Regrets(results, reading)
    models, (narrow, wide) = regrets.of_models, regrets.of_rule
    yield Finding(
        f"The wheel bandit ({reading}{regrets.length}), regret in percent of the uniform policy's "
        f"at delta = {regrets.narrow} and {regrets.wide}: {listed(list(map(regrets.told, models)))}."
    )
    yield Finding(
        f"The policy '{REFERENCES['quadrant']}' learns nothing and has {narrow:.1f} and {wide:.0f} ({reading}). Less "
        f"than it at {regrets.narrow}: {listed([name for name, (a, _) in models.items() if a < narrow])}; less at "
        f"{regrets.wide}, by a percent or more: {listed([name for name, (_, b) in models.items() if b <= wide - 1])}; "
        f"within a percent of it there: {listed([name for name, (_, b) in models.items() if abs(b - wide) < 1])}."
    )
    if reading == PUBLISHED:
        yield from _by_heart(results)
    else:
        yield from _beside(regrets, _Regrets(results, PUBLISHED))
        yield from _without_context(results, reading)
    yield from _dropping(results, reading)
    yield from _otherwise(results, regrets, reading)


def _length(chosen: Mapping[str, Result]) -> str:
    """', 100000 steps (CANP: 20000), 50 fresh wheels, 2000 rounds each': of preset `paper`, '' of shorter runs."""
    first = next(iter(chosen.values()))
    if first.preset != "paper":
        return ""
    steps = steps_by_name({MODELS[model].label: result for model, result in chosen.items()})
    return f", {steps}, {plays(chosen.values())}"


class _Regrets:
    """The regrets of one reading at its least and its largest delta, of the rule and of each model, the least first."""

    def __init__(self, results: Sequence[Result], reading: Reading):
        number = Numbers(functools.partial(table7, reading=reading), results)
        heads = [head for head in number.columns if "paper" not in head and head != "steps"]
        self.narrow, self.wide = heads[0], heads[-1]
        both = lambda name: (number(name, self.narrow), number(name, self.wide))
        chosen = chosen_results(results, reading)
        of_models = {MODELS[model].label: both(MODELS[model].label) for model in chosen}
        self.of_rule = both(REFERENCES["quadrant"])
        self.at_narrow = functools.partial(number.cell, column=self.narrow)
        self.of_models = dict(sorted(of_models.items(), key=lambda row: sum(row[1])))
        self.length = _length(chosen)
        papers = [number.known(of_models, f"{delta}, paper") for delta in (self.narrow, self.wide)]
        comparing = papers[0] if self.length else ()  # regrets of shorter games do not compare with the paper's
        self._of_paper = {name: tuple(paper[name] for paper in papers) for name in comparing}

    def told(self, name: str) -> str:
        """'CNP 4 and 30 (the paper 4 and 38)'."""
        paper = f" (the paper {_pair(self._of_paper[name])})" if name in self._of_paper else ""
        return f"{name} {_pair(self.of_models[name])}{paper}"


def _by_heart(results: Sequence[Result]) -> Iterator[Finding]:
    """Whose validation loss says that the one batch of wheels was learnt by heart; it may be below 0."""
    told, found = [], chosen_results(results)
    for model, result in found.items():
        losses = result.content["validation_losses"]
        step, least = min(losses, key=lambda check: check[1] if math.isfinite(check[1]) else math.inf)
        if losses[-1][1] > least + 1:
            told.append(
                f"{MODELS[model].label} {digits(least)} after {step} steps and {digits(losses[-1][1])} at the end"
            )
    if told:
        yield Finding(
            f"Trained on one batch of wheels in every step, {len(told)} of {len(found)} models end more than a nat "
            f"above their least validation loss: {listed(told)}."
        )


def _beside(ours: _Regrets, published: _Regrets) -> Iterator[Finding]:
    """For which models the regret at the least delta is less than in the published reading.

    There the rule has nearly the same in all readings; at the largest delta it depends on the wheels that are played.
    """
    pairs = {
        name: (ours.at_narrow(name), published.at_narrow(name))
        for name in ours.of_models
        if name in published.of_models
    }
    fewer = [name for name, (own, other) in pairs.items() if own.mean < other.mean and not within_error(own, other)]
    if pairs:
        yield Finding(
            f"Beside {PUBLISHED}, whose models were trained apart from these, {len(fewer)} of {len(pairs)} models have "
            f"less regret at {ours.narrow}, by more than the joint deviation: {listed(fewer)}."
        )


def _without_context(results: Sequence[Result], reading: Reading) -> Iterator[Finding]:
    """Whether models that learn from fresh wheels by the likelihood of targets have learnt to read their contexts."""
    told, readers = [], []
    for result in itertools.chain(*(way.values() for way in _ways(results, reading)), _changed(results, reading)):
        task, losses = result.config["task"], result.content["validation_losses"]
        if task["name"] == "fresh_wheels" and task["drop"] and losses:
            wheels = settings.build_named(WHEELS, task, "config.task")
            blind = wheels.loss_without_context(result.config["model"].get("std_floor", 0.0))
            half, last = losses[(len(losses) - 1) // 2][1], losses[-1][1]
            drop = f"drop={result.axes['drop']}" if result.axes["drop"] != DROPS[0] else ""
            otherwise = " and ".join(filter(None, (changed(result), drop)))
            name = " with ".join(filter(None, (MODELS[result.axes["model"]].label, otherwise)))
            told.append(f"{name} {last:.2f} after {half:.2f} ({blind:.2f})")
            readers += [name] * (last < blind)
    if told:
        yield Finding(
            f"Trained on fresh wheels by the likelihood of targets ({reading}), the validation loss at the end after "
            "that of half the steps, and in brackets the least that normal distributions have without a look at the "
            f"context: {listed(told)}. Less than it: {listed(readers)}."
        )


def _changed(results: Sequence[Result], reading: Reading) -> list[Result]:
    """Those of a reading with another model, task or optimizer than configured, of the preset that the table shows."""
    return [result for result in _games(results, reading) if changed(result)]


def _games(results: Sequence[Result], reading: Reading) -> list[Result]:
    """All of a reading, of the preset that the table shows."""
    preset = next(iter(chosen_results(results, reading).values())).preset
    return [result for result in of_reading(results, reading) if result.preset == preset]


def _ways(results: Sequence[Result], reading: Reading) -> list[dict[str, Result]]:
    """Model -> result of each of DROPS, all of the preset that the table shows."""
    games = _games(results, reading)
    return [chosen_results([game for game in games if game.axes.get("drop") == drop], reading) for drop in DROPS]


def _dropping(results: Sequence[Result], reading: Reading) -> Iterator[Finding]:
    """What training on histories with unknown rewards, as games have, changes where one preset has both ways."""
    ways = [list(way.values()) for way in _ways(results, reading)]
    if not all(ways):
        return
    published, dropped = (_Regrets(way, reading).of_models for way in ways)
    told = [
        f"{name} {_pair(dropped[name])} in place of {_pair(published[name])}" for name in dropped if name in published
    ]
    if told:
        yield Finding(
            f"Trained by the likelihood of the targets alone, from contexts of which half the rewards are noise, as "
            f"those of the arms not pulled are in a game ({reading}): {listed(told)}."
        )


def _otherwise(results: Sequence[Result], regrets: _Regrets, reading: Reading) -> Iterator[Finding]:
    """What the regret is where the command line changed a model, its task or its optimizer."""
    told = []
    for result in _changed(results, reading):
        ((name, regret),) = _Regrets([result], reading).of_models.items()
        if name in regrets.of_models:
            told.append(f"{name} with {changed(result)} {_pair(regret)} in place of {_pair(regrets.of_models[name])}")
    if told:
        yield Finding(
            f"Configured otherwise ({reading}), regret in percent of the uniform policy's at delta = {regrets.narrow} "
            f"and {regrets.wide}: {listed(told)}."
        )


def _pair(numbers: Iterable[float]) -> str:
    """'4 and 30'."""
    return " and ".join(f"{number:.0f}" for number in numbers)


# Of the readings of which results/ has runs.
FINDINGS = {
    f"{name}_{preset}": functools.partial(wheel, reading=READINGS[name], preset=preset)
    for name in ("cmanp/table7", "cmanp/table7_best", "cmanp/table7_text")
    for preset in ("quick", "paper")
}
