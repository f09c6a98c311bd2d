"""From a config to a finished run directory."""

import contextlib
import dataclasses
import functools
import importlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from experiments.harness import config_text, progress, results, weights
from experiments.harness.checks import check_memory, check_programs
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.evaluation import summarise
from experiments.harness.experiment import Experiment, PyTree
from experiments.harness.loop import Record, TrainSettings, train
from experiments.harness.optimizer import OptimizerSettings, build_optimizer, check_given
from experiments.harness.parts import Parts, drop_parts, joined
from experiments.harness.placement import Placement, build_placement, device_name, is_writer, on_host, wait_for_all
from experiments.harness.provenance import provenance
from experiments.harness.run_directory import (
    AFRESH,
    EVALUATION,
    RunDirectory,
    check_ownership,
    config_hash,
    config_json,
    default_path,
    tidy,
)
from experiments.harness.settings import build, check_sections
from experiments.harness.step import Program, TrainState, make_program
from kvq_jax import saved
from kvq_jax.domains import Count, Seed

# An experiment adds its own sections to these, in its SECTIONS.
_EVERY_RUN = ("name", "experiment", "axes")
_TRAINING = ("train", "optimizer", "evaluation")
# What is kept of an origin -> how a run that another worked on says so, from that one and its own.
_ORIGINS = {
    "code": lambda first, now: f"another code, {first['code_version']}",
    "device": lambda first, now: f"another device, {first['device']}",
    "versions": lambda first, now: f"other versions, {_differing(first['versions'], now['versions'])}",
}

Show = Callable[[results.Result, Path, Console], None]
Outcome = tuple[dict[str, Any], dict[str, np.ndarray]]  # what result.json says of the work itself; arrays for figures


@dataclasses.dataclass(frozen=True)
class Options:
    """What a run does not depend on, and so is not in its config."""

    data_dir: str | None = None  # the folder of original archives
    restart: bool = False
    tensorboard: bool = False
    weights: str | None = None  # a folder of weights to evaluate in place of a training
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # config key -> value from the command line


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """The part of the config's `evaluation` section that every experiment shares."""

    seed: Seed  # fixes the evaluation tasks: the same for every model of a table
    validation_batches: Count
    untrained: bool  # evaluate the initial parameters too


def launch(
    config: ConfigDict, path: Path | None, options: Options, console: Console, show: Show | None = None
) -> results.Result:
    """Runs what `config` describes in the folder `path` (None: the config's own), resuming what is there.

    A module with build() trains and evaluates a model; one with measure() measures, and resumes nothing.

    Args:
      config: of the run.
      path: the run folder.
      options: what the result does not depend on.
      console: for messages.
      show: called with the result, the run folder and the console once the result of a new run is written.

    Raises:
      UserError: a bad config, missing or damaged data, a folder that cannot be used. Nothing has been written.
      Diverged: the loss stopped being finite.
    """
    module = experiment_module(config)
    training = hasattr(module, "build")
    check_sections(config, (*_EVERY_RUN, *(_TRAINING if training else ()), *module.SECTIONS))
    given = weights.load(Path(options.weights)) if options.weights else None
    if given:
        config = _with_weights(config, given, options.overrides)
    if options.tensorboard and (given or not training):
        raise UserError("--tensorboard: nothing is trained here")
    path = path or default_path(Path("runs"), config, options.overrides)
    path = path if path.name else path.absolute()  # '.' would go along where --restart puts it aside
    if not options.restart:
        check_ownership(path, config)
    if (path / "result.json").exists() and not options.restart:
        told = f"already finished: {path} (--restart runs it afresh and keeps the old folder)"
        console.print(told, soft_wrap=True, markup=False)
        return _finished(path, console, show)
    work, facts = _training(module, config, options, given) if training else (_measurement(module, config), {})
    wait_for_all("checked")
    directory = RunDirectory(path, config, options.restart) if is_writer() else None
    wait_for_all("opened")
    console.print(f"run folder {path}", soft_wrap=True, markup=False)
    with directory.errors_kept() if directory else contextlib.nullcontext():
        started = time.monotonic()
        origin = _origin(directory, config, facts, console)  # before the work: files may change while it goes on
        outcome, examples = work(path, directory, console)
        content = {
            "name": config.name,
            "axes": config.axes.to_dict(),
            "overrides": json.loads(json.dumps(dict(options.overrides))),
            **outcome,
            **origin,
            "config_hash": config_hash(config),
            "config": json.loads(config_json(config)),
        }
        result = results.Result(path, results.sealed(content))
        if directory:
            directory.write_examples(examples)
            directory.write_result(result.content)
            drop_parts(path)
            if show:
                show(result, path, console)
            console.print(f"finished in {progress.duration(time.monotonic() - started)}", highlight=False)
    return result


def _origin(
    directory: RunDirectory | None, config: ConfigDict, facts: Mapping[str, Any], console: Console
) -> dict[str, Any]:
    """What makes the run, with `begun_with` and `went_on_with` where something else worked on it, which is told.

    Raises UserError where it was begun with other data.
    """
    placed = config.train.placement if "train" in config else None
    origin = {"device": device_name(placed)} | provenance(config.experiment)
    first, *others = directory.origins(origin, json.loads(json.dumps(facts))) if directory else [origin]
    others = [other for other in others if _unlike(other, origin)]
    for other in (first, *others):
        for what in _unlike(other, origin):
            worked = "was begun" if other is first else "went on"
            console.print(f"note: the run {worked} with {_ORIGINS[what](other, origin)}", soft_wrap=True)
    begun = {"begun_with": first} if _unlike(first, origin) else {}
    return origin | begun | ({"went_on_with": others} if others else {})


def _unlike(other: Mapping[str, Any], origin: Mapping[str, Any]) -> list[str]:
    """In what another origin is not this one."""
    return [what for what in _ORIGINS if other[what] != origin[what]]


def _differing(first: Mapping[str, str], now: Mapping[str, str]) -> str:
    """'jax 0.10.0, numpy 2.0.0': the packages of `first` that are others now."""
    return ", ".join(f"{name} {version}" for name, version in first.items() if (name, version) not in now.items())


def _finished(path: Path, console: Console, show: Show | None) -> results.Result:
    """The result of a finished run, with its picture, if it was killed before that. Raises UserError if damaged."""
    try:
        result = results.Result(path, results.read(path / "result.json"))
    except UserError as error:
        raise UserError(f"{error}: {AFRESH}") from error
    undrawn = show and not any(path.glob("*.png"))
    if (undrawn or (path / EVALUATION).exists()) and tidy(path):
        drop_parts(path)
        if undrawn:
            show(result, path, console)
    return result


def _training(
    module: ModuleType, config: ConfigDict, options: Options, given: weights.Weights | None
) -> tuple[Callable[[Path, RunDirectory | None, Console], Outcome], dict[str, Any]]:
    """The training and evaluation of a config, everything checked that can be without a step, and its facts.

    Raises UserError.
    """
    settings = build(TrainSettings, config.train, "config.train")
    evaluation, own = split_evaluation(config.evaluation)
    rule = build(OptimizerSettings, config.optimizer, "config.optimizer")
    check_given(rule, options.overrides)
    optimizer = build_optimizer(rule, settings.steps)
    batch = dict(batch_size=settings.batch_size, micro_batches=settings.micro_batches)
    placement = build_placement(config.train.placement, seeds=settings.seeds, **batch)
    experiment = module.build(config, own, options.data_dir)
    if settings.size_classes and not experiment.sizes:
        raise ConfigError("config.train.size_classes: the batches of this task have one size, so expected 0")
    data = jax.device_put(experiment.data, placement.everywhere)
    program = make_program(
        experiment,
        optimizer,
        placement,
        **batch,
        chunk_steps=settings.log_every,
        validation_batches=evaluation.validation_batches,
        evaluation_seed=evaluation.seed,
    )
    check_programs(program, settings.all_seeds, data, placement.shares_of_seeds, trains=given is None)
    initial = _given_state(program, settings, given, placement) if given else None

    def work(path: Path, directory: RunDirectory | None, console: Console) -> Outcome:
        reporter = {"console": console, "tensorboard": path / "tensorboard" if options.tensorboard else None}
        state, record = initial, Record()
        if not given:
            state, record = train(program, data, settings, placement, path / "checkpoints", directory, reporter)
            _keep_weights(experiment, state, settings.all_seeds, path if directory else None, console)
        started = time.monotonic()
        phases = {"trained": state}
        if evaluation.untrained:
            phases["untrained"] = program.init(settings.all_seeds)
        names = program.evaluate.eval_shape(state, data["test"], 0)
        kept = Parts(path, experiment.parts, names, writes=directory is not None and experiment.parts > 1)
        wait_for_all("parts read")  # before one of them is written
        metrics, examples = _evaluate(program, experiment, phases, data["test"], kept, console)
        return {
            "metrics": metrics,
            "facts": experiment.facts,
            "steps": record.step,
            "seeds": settings.all_seeds.tolist(),
            "best_step": record.best_step,
            "validation_losses": record.validation_losses,
            "parameter_count": sum(leaf.size for leaf in jax.tree.leaves(state.params)) // settings.seeds,
            "steps_per_second": record.steps_per_second,
            "wall_time_s": record.wall_time_s + kept.wall_time_s + time.monotonic() - started,
        }, examples

    return work, experiment.facts


def _measurement(module: ModuleType, config: ConfigDict) -> Callable[[Path, RunDirectory | None, Console], Outcome]:
    """What measure() of an experiment finds, in the form of a run of no steps."""

    def work(path: Path, directory: RunDirectory | None, console: Console) -> Outcome:
        started = time.monotonic()
        with progress.phase(console, "measuring"):
            metrics, examples, facts = module.measure(config)
        untrained = {"steps": 0, "seeds": [], "best_step": None, "validation_losses": [], "parameter_count": 0}
        timed = {"steps_per_second": 0.0, "wall_time_s": time.monotonic() - started}
        return {"metrics": metrics, "facts": facts} | untrained | timed, examples

    return work


def _with_weights(config: ConfigDict, given: weights.Weights, overrides: Mapping[str, Any]) -> ConfigDict:
    """The config of an evaluation of weights: their model, one seed, and their digest.

    Raises UserError, also where a command line asks for another model.
    """
    if "model" not in config:
        raise UserError(f"--weights: {config.name} has no model to evaluate")
    if given.model["name"] != config.model.name:
        raise UserError(f"the weights are those of a {given.model['name']}, config.model is a {config.model.name}")
    own = ConfigDict(config.to_dict() | {"model": given.model, "weights": given.digest})
    own.train.seeds = 1
    for key in (key for key in overrides if key.startswith("model.")):
        asked, held = (config_text.value_of(each, key) for each in (config, own))
        if asked != held:
            raise UserError(f"config.{key}: {asked!r} is asked for, the weights are of a model with {held!r}")
    return own


def _given_state(program: Program, settings: TrainSettings, given: weights.Weights, placement: Placement) -> TrainState:
    """The state at step 0 with the given weights as parameters. Raises UserError where they do not fit the model."""
    state = program.init(settings.all_seeds)
    params = weights.fit(jax.tree.map(lambda leaf: leaf[None], given.params), jax.eval_shape(lambda: state.params))
    return state.replace(params=jax.device_put(params, placement.state))


def _keep_weights(
    experiment: Experiment, state: TrainState, seeds: np.ndarray, path: Path | None, console: Console
) -> None:
    """Writes the variables of every seed below the run folder `path` (None: of another process), for kvq_jax.load.

    It says so where kvq_jax.save refuses them, such as those of a model that is no class of kvq_jax.
    """
    variables = jax.tree.map(on_host, state.variables)
    if path is None or experiment.model is None:
        return
    try:
        for index, seed in enumerate(seeds):
            own = jax.tree.map(lambda leaf: leaf[index], variables)  # noqa: B023
            saved.save(path / "weights" / str(seed), experiment.model, own)
    except ValueError as error:
        console.print(f"note: the run keeps no weights: {error}", soft_wrap=True)


def split_evaluation(section: ConfigDict) -> tuple[EvaluationSettings, dict]:
    """The shared part of the config's `evaluation` section, and the experiment's own part. Raises ConfigError."""
    shared = {field.name for field in dataclasses.fields(EvaluationSettings)}
    common, own = ({k: v for k, v in section.items() if (k in shared) == wanted} for wanted in (True, False))
    return build(EvaluationSettings, common, "config.evaluation"), own


def experiment_module(config: ConfigDict) -> ModuleType:
    """The module experiments.<config.experiment>.experiment: SECTIONS, and build() or measure(). Raises ConfigError."""
    if "experiment" not in config:
        raise ConfigError("config.experiment: missing key")
    name = f"experiments.{config.experiment}.experiment"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name):
            raise  # the module is there, but one that it imports is not
        raise ConfigError(f"config.experiment: no module {name}") from error


def _evaluate(
    program: Program, experiment: Experiment, phases: dict[str, TrainState], data: PyTree, kept: Parts, console: Console
) -> tuple[dict, dict]:
    """Metrics and examples of each phase, named '<phase>/<name>'; examples that phases share are kept once.

    Raises ConfigError where a batch of tasks takes more memory than there is.
    """
    metrics, examples = {}, {}
    with progress.phase(console, "evaluating", len(phases) * experiment.parts - len(kept.found)) as part_done:

        @functools.cache
        def compiled():
            made = program.evaluate.lower(phases["trained"], data, 0).compile()
            check_memory(made, "config.evaluation: it")
            return made

        def evaluated(phase, number):
            values = jax.device_get(compiled()(phases[phase], data, number))
            part_done()
            return values

        for phase, state in phases.items():
            values = joined([kept.part(phase, number, evaluated) for number in range(experiment.parts)])
            values = experiment.host(values) if experiment.host else values
            metrics |= {f"{phase}/{name}": summary for name, summary in summarise(values).items()}
            for name, array in jax.device_get(program.examples(state, data)).items():
                examples[f"{phase}/{name}" if name.startswith("prediction") else name] = array
    return metrics, examples
