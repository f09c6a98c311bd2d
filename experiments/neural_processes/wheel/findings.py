"""What the results of the wheel bandit say (CMANP paper, Table 7)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, listed
from experiments.harness.results import Result
from experiments.neural_processes.wheel.tables import REFERENCES, chosen_results, table7
from kvq_jax.models import MODELS


def wheel(results: Sequence[Result]) -> Iterator[Finding]:
    """Who has learnt to act, beside the rule that needs no learning, and how much training there was."""
    number = Numbers(table7, results)
    heads = [head for head in number.columns if "paper" not in head and head != "steps"]
    narrow, wide = heads[0], heads[-1]
    chosen = {MODELS[model].label: result for model, result in chosen_results(results).items()}
    regret = {name: (number(name, narrow), number(name, wide)) for name in chosen}
    order = sorted(regret, key=lambda name: sum(regret[name]))
    yield Finding(
        f"The wheel bandit, regret in percent of the uniform policy's at delta = {narrow} and {wide}: "
        f"{listed([f'{name} {regret[name][0]:.0f} and {regret[name][1]:.0f}' for name in order])}."
    )
    rule = REFERENCES["quadrant"]
    within = [name for name in order if abs(regret[name][1] - number(rule, wide)) < 1]
    yield Finding(
        f"The policy '{rule}' learns nothing and has {number(rule, narrow):.1f} and {number(rule, wide):.0f}, less "
        f"than every model at {narrow}; at {wide} {listed(within)} {'is' if len(within) == 1 else 'are'} within a "
        "percent of it.",
        bool(within) and number(rule, narrow) < min(first for first, _ in regret.values()),
    )


FINDINGS = {"cmanp/table7": wheel}
