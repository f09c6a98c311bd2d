"""What the results of few-shot regression say (Intention paper, Section 5.1, Figure 7)."""

import functools
from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, digits, listed
from experiments.harness.results import Result, seeds_by_name, steps_by_name
from experiments.intention.few_shot_regression.tables import MODELS, TABLES, few_shot_results
from experiments.regression.labels import label


def sine(results: Sequence[Result], preset: str) -> Iterator[Finding]:
    """On sine curves: what Intention does before and after training, in runs of one preset."""
    results = [result for result in results if result.preset == preset]
    number = Numbers(TABLES["intention/figure7_sine"], results)
    named = {label(model): result for model, result in few_shot_results(results, "sine").items()}
    yield Finding(f"Sine curves, preset {preset}, {steps_by_name(named)}, {seeds_by_name(named)}.")
    first, last = number.columns[0], number.columns[-1]
    others = [label(model) for model in MODELS if model != "intention"]

    gain = {name: number(f"{name}, untrained", first) / number(f"{name}, untrained", last) for name in _names()}
    most = max(gain[name] for name in others)
    yield Finding(
        f"Untrained, Intention already interpolates sine curves: its squared error falls by a factor of "
        f"{digits(gain['Intention'])} from {first} observation to {last}, that of no other untrained model by more "
        f"than {digits(most)}.",
        gain["Intention"] > 10 > most,
    )
    trained = {name: number(f"{name}, trained", last) for name in _names()}
    second, best = min(others, key=trained.get), _best_at(number)
    beside = "".join(f", with {counts} {who}" for who, counts in _others_best(number).items())
    yield Finding(
        f"Trained, Intention has the least error on sine curves at each of {listed(best)} "
        f"observations{beside}: with {last} it is at {digits(trained['Intention'])}, {second}, the next, at "
        f"{digits(trained[second])}.",
        last in best and 2 * len(best) > len(number.columns),
    )


def pixels(results: Sequence[Result]) -> Iterator[Finding]:
    """The same on the pixels of images."""
    number = Numbers(TABLES["intention/figure7_pixels"], results)
    *_, before, last = number.columns
    yield Finding(
        f"Trained, Intention has the least error on pixels of images at each of {listed(number.columns)} pixels.",
        _best_at(number) == number.columns,
    )
    kept = {name: number(f"{name}, trained", last) / number(f"{name}, trained", before) for name in _names()}
    yield Finding(
        f"Intention and attention gain to the end: from {before} to {last} pixels "
        f"their error falls by {1 - kept['Intention']:.0%} and {1 - kept['Attention']:.0%}, that of the neural process "
        f"and of MAML by {1 - kept['Neural Process']:.1%} and {1 - kept['MAML']:.1%}.",
        max(kept["Intention"], kept["Attention"]) < 0.7 < 0.95 < min(kept["Neural Process"], kept["MAML"]),
    )
    curve = {column: number("Intention, untrained", column) for column in number.columns}
    peak = max(list(curve)[1:], key=curve.get)
    yield Finding(
        f"Untrained on pixels, Intention's error is {digits(curve[number.columns[0]])} with {number.columns[0]} pixel, "
        f"{digits(curve[peak], 3)} with {peak} and {digits(curve[last])} with {last}: it rises in between, and at the "
        f"end reaches the trained neural process's {digits(number('Neural Process, trained', last))}.",
        curve[last] < curve[number.columns[0]] < curve[peak]
        and curve[last] < 1.05 * number("Neural Process, trained", last),
    )


def _names() -> list[str]:
    return [label(model) for model in MODELS]


def _best_at(number: Numbers) -> list[str]:
    """The columns at which Intention, trained, is alone the best of those that are trained."""
    return [column for column in number.columns if number.best("Intention, trained", column, _trained())]


def _others_best(number: Numbers) -> dict[str, str]:
    """'none is alone the best' or 'Attention is' -> the columns where that is so, of those that are not Intention's."""
    found = {}
    for column in number.columns:
        first = number.first(column, _trained())
        if first != ["Intention, trained"]:
            who = f"{first[0].removesuffix(', trained')} is" if len(first) == 1 else "none is alone the best"
            found.setdefault(who, []).append(column)
    return {who: listed(columns) for who, columns in found.items()}


def _trained() -> list[str]:
    return [f"{name}, trained" for name in _names()]


FINDINGS = {
    "intention/figure7_sine_quick": functools.partial(sine, preset="quick"),
    "intention/figure7_sine_paper": functools.partial(sine, preset="paper"),
    "intention/figure7_pixels": pixels,
}
