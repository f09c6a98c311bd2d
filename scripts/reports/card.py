"""A released model: the weights of a finished run, and a card that says what they are and how well they do."""

from collections.abc import Iterator
from pathlib import Path

import kvq_jax
from experiments.harness.errors import UserError
from experiments.harness.results import Result
from experiments.harness.run_directory import write_text
from kvq_jax.models import MODELS


def release(result: Result, folder: Path) -> Path | None:
    """Writes folder/<paper>/<experiment>/<axes>: model.json, variables.safetensors and README.md, of the first seed.

    None for a run that keeps no weights. Raises UserError where its weights are damaged.
    """
    if not (result.folder / "weights").is_dir():
        return None
    try:
        model, variables = kvq_jax.load(result.folder)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    place = place_of(result, folder)
    kvq_jax.save(place, model, variables)
    write_text(place / "README.md", "\n".join(_card(result, place, type(model))) + "\n")
    return place


def place_of(result: Result, folder: Path) -> Path:
    """folder/<paper>/<experiment>/<axes>, where a run's weights are released."""
    return folder / result.name / result.folder.name.removesuffix(f"-{result.content['config_hash'][:8]}")


def _card(result: Result, place: Path, model: type) -> Iterator[str]:
    content, config = result.content, result.config
    seeds = content["seeds"]
    yield f"# {model.__name__}, {result.name}\n"
    yield "```python"
    yield f'import kvq_jax\n\ntrained = kvq_jax.load("{place}")'
    yield "```\n"
    yield f"- made by: `{result.command}`"
    yield f"- config: {content['config_hash']}; code: {result.code}; device: {result.device}"
    for section in ("task", "data"):
        if config.get(section):
            yield f"- {section}: {', '.join(f'{key}={value}' for key, value in config[section].items())}"
    yield from (f"- {fact}: {value}" for fact, value in content["facts"].items())
    yield f"- steps: {result.steps}; parameters: {content['parameter_count']:,}"
    yield f"- seed: {seeds[0]}, the first of {len(seeds)}"
    yield f"- versions: {', '.join(f'{name} {version}' for name, version in content['versions'].items() if version)}\n"
    if any(row.cls is model for row in MODELS.values()):
        yield "This computes the numbers of this seed again (with `--data_dir` where the data are in a folder):\n"
        yield f"```\n{result.command} --weights {place}\n```\n"
    yield "| metric | this seed | all seeds | standard error | n |"
    yield "| --- | --- | --- | --- | --- |"
    for name, told in result.metrics.items():
        if told["seeds"] and told["seeds"][0] is not None:
            numbers = (told["seeds"][0], told["mean"], told["sem"])
            yield f"| {name} | {' | '.join(_number(number) for number in numbers)} | {told['n']} |"


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"
