"""What the results of the wheel bandit say (CMANP paper, Table 7)."""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, digits, listed
from experiments.harness.results import Result
from experiments.neural_processes.wheel.tables import PUBLISHED, READINGS, REFERENCES, Reading, chosen_results, table7
from kvq_jax.models import MODELS


def wheel(results: Sequence[Result], reading: Reading = PUBLISHED) -> Iterator[Finding]:
    """Who has learnt to act, beside the rule that needs no learning and beside the published reading."""
    regrets = _Regrets(results, reading)
    models, (narrow, wide) = regrets.of_models, regrets.of_rule
    yield Finding(
        f"The wheel bandit ({reading}), regret in percent of the uniform policy's at delta = {regrets.narrow} and "
        f"{regrets.wide}: {listed([f'{name} {a:.0f} and {b:.0f}' for name, (a, b) in models.items()])}."
    )
    yield Finding(
        f"The policy '{REFERENCES['quadrant']}' learns nothing and has {narrow:.1f} and {wide:.0f} ({reading}). Less "
        f"than it at {regrets.narrow}: {_named(name for name, (a, _) in models.items() if a < narrow)}; less "
        f"at {regrets.wide}, by a percent or more: {_named(name for name, (_, b) in models.items() if b <= wide - 1)}; "
        f"within a percent of it there: {_named(name for name, (_, b) in models.items() if abs(b - wide) < 1)}."
    )
    if reading == PUBLISHED:
        yield from _by_heart(results)
    else:
        yield from _beside(regrets, _Regrets(results, PUBLISHED))


class _Regrets:
    """The regrets of one reading at its least and its largest delta, of the rule and of each model, the least first."""

    def __init__(self, results: Sequence[Result], reading: Reading):
        number = Numbers(functools.partial(table7, reading=reading), results)
        heads = [head for head in number.columns if "paper" not in head and head != "steps"]
        self.narrow, self.wide = heads[0], heads[-1]
        both = lambda name: (number(name, self.narrow), number(name, self.wide))
        of_models = {MODELS[model].label: both(MODELS[model].label) for model in chosen_results(results, reading)}
        self.of_rule = both(REFERENCES["quadrant"])
        self.of_models = dict(sorted(of_models.items(), key=lambda row: sum(row[1])))


def _by_heart(results: Sequence[Result]) -> Iterator[Finding]:
    """How far validation says that the one batch of wheels was learnt by heart."""
    told, found = [], chosen_results(results)
    for model, result in found.items():
        losses = result.content["validation_losses"]
        step, least = min(losses, key=lambda check: check[1] if math.isfinite(check[1]) else math.inf)
        if losses[-1][1] > 2 * least > 0:
            told.append(
                f"{MODELS[model].label} {digits(least)} after {step} steps and {digits(losses[-1][1])} at the end"
            )
    if told:
        yield Finding(
            f"Of {len(found)} models that see one batch of wheels in every step, {len(told)} end with more than twice "
            f"their least validation loss: {listed(told)}."
        )


def _beside(ours: _Regrets, published: _Regrets) -> Iterator[Finding]:
    """For which models the regret at the least delta is less than in the published reading.

    There the rule has nearly the same in all readings; at the largest delta it depends on the wheels that are played.
    """
    shared = [name for name in ours.of_models if name in published.of_models]
    fewer = [name for name in shared if ours.of_models[name][0] < published.of_models[name][0]]
    if shared:
        yield Finding(
            f"Beside {PUBLISHED}, {len(fewer)} of {len(shared)} models have less regret at {ours.narrow}: "
            f"{_named(fewer)}."
        )


def _named(names: Iterable[str]) -> str:
    """'none', 'A', 'A and B'."""
    return listed(list(names) or ["none"])


_TOLD = ("cmanp/table7", "cmanp/table7_best", "cmanp/table7_text")  # that results/ has; wheel() takes the others, too
FINDINGS = {name: functools.partial(wheel, reading=READINGS[name]) for name in _TOLD}
