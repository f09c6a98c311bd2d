"""What a sweep varies: the points of a grid, and of a space that a file describes in Optuna's define-by-run form."""

import ast
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.harness import config_files
from experiments.harness.errors import UserError
from scripts.sweeps.cells import Point

Suggest = Callable[[Any], Point]  # of an Optuna trial
_OPENING, _CLOSING = "([{", ")]}"


def grid(texts: Sequence[str]) -> list[Point]:
    """The cross product of 'KEY=V1,V2' texts; the last varies fastest. Without texts, one point that changes nothing.

    A value is a Python literal, else the text itself. Raises UserError for a text of another form, a key or a value
    that is there twice.
    """
    named = [_named(text) for text in texts]
    keys = [key for key, _ in named]
    for key, values in named:
        if keys.count(key) > 1:
            raise UserError(f"--grid {key} is given twice")
        if len(set(map(repr, values))) < len(values):
            raise UserError(f"--grid {key} has a value twice: {', '.join(map(str, values))}")
    return [dict(zip(keys, values)) for values in itertools.product(*(values for _, values in named))]


def suggest_of(file: Path) -> Suggest:
    """The function suggest(trial) -> {key: value} of a file. Raises UserError, also where a call of it fails."""
    (suggest,) = config_files.definitions(file, "suggest")

    def point(trial) -> Point:
        with config_files.blamed(file):
            found = suggest(trial)
        config_files.check_returned(file, "suggest", found, dict)
        return found

    return point


def drawn(suggest: Suggest, number: int, seed: int) -> list[Point]:
    """As many points at random from a space: the first of 20 are those of 10. Raises UserError without Optuna."""
    optuna = import_optuna()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [suggest(study.ask()) for _ in range(number)]


def crossed(*factors: Sequence[Point]) -> list[Point]:
    """Every point of one with every point of the others. Raises UserError where they share a key."""
    for one, other in itertools.combinations(factors, 2):
        for key in {key for point in one for key in point} & {key for point in other for key in point}:
            raise UserError(f"{key} is in the grid and in the space")
    return [{key: value for point in points for key, value in point.items()} for points in itertools.product(*factors)]


def import_optuna():
    """Optuna, which says nothing of its own. Raises UserError where it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("--space needs optuna: python -m pip install '.[sweep]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _named(text: str) -> tuple[str, list[Any]]:
    """'key=1,(2, 3),x' as ('key', [1, (2, 3), 'x']). Raises UserError."""
    key, equals, values = text.partition("=")
    parts = _parts(values)
    if not (key and equals and all(parts)):
        raise UserError(f"--grid {text}: expected KEY=V1,V2")
    return key, [literal(part) for part in parts]


def _parts(text: str) -> list[str]:
    """The parts of a text between commas that stand in no bracket and no quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote or letter in "'\"":
            quote = "" if letter == quote else quote or letter
        depth += (not quote) * ((letter in _OPENING) - (letter in _CLOSING))
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def literal(text: str) -> Any:
    """The value of a Python literal; a text that is none stands for itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
