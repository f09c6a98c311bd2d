"""From a config to a finished run directory."""

import dataclasses
import importlib
import json
import time
from pathlib import Path
from types import ModuleType

import jax
from ml_collections import ConfigDict
from rich.console import Console

from experiments.harness import results, weights
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.evaluation import summarise
from experiments.harness.experiment import Experiment
from experiments.harness.loop import Record, TrainSettings, train
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.placement import Placement, build_placement, device_name, is_writer, wait_for_all
from experiments.harness.run_directory import RunDirectory, check_ownership, config_hash, config_json, default_path
from experiments.harness.settings import build, check_sections
from experiments.harness.step import Program, TrainState, make_program
from experiments.harness.streams import stream

# An experiment adds its own sections to these, in its SECTIONS.
_SECTIONS = ("name", "experiment", "axes", "train", "optimizer", "evaluation")


@dataclasses.dataclass(frozen=True)
class Options:
    """What a run does not depend on, and so is not in its config."""

    data_dir: str | None = None  # the folder of original archives
    restart: bool = False
    tensorboard: bool = False
    weights: str | None = None  # a folder of weights to evaluate in place of a training


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """The part of the config's `evaluation` section that every experiment shares."""

    seed: int  # fixes the evaluation tasks: the same for every model of a table
    validation_batches: int
    untrained: bool  # evaluate the initial parameters too


def launch(config: ConfigDict, path: Path | None, options: Options, console: Console) -> results.Result:
    """Trains and evaluates what `config` describes in the folder `path` (None: the config's own), resuming what is there.

    Raises:
      UserError: a bad config, missing or damaged data, a folder that cannot be used. Nothing has been written.
      Diverged: the loss stopped being finite.
    """
    module = experiment_module(config)
    check_sections(config, (*_SECTIONS, *module.SECTIONS))
    given = weights.load(Path(options.weights)) if options.weights else None
    if given:
        config = _with_weights(config, given)
    path = path or default_path(Path("runs"), config)
    if not options.restart:
        check_ownership(path, config)
    if (path / "result.json").exists() and not options.restart:
        console.print(f"already finished: {path} (--restart runs it afresh and keeps the old folder)", soft_wrap=True)
        return results.load_results([path])[0]
    settings = build(TrainSettings, config.train, "config.train")
    evaluation, own = split_evaluation(config.evaluation)
    optimizer = build_optimizer(build(OptimizerSettings, config.optimizer, "config.optimizer"), settings.steps)
    placement = build_placement(config.train.placement, seeds=settings.seeds, batch_size=settings.batch_size)
    experiment = module.build(config, own, options.data_dir)
    _check_model(experiment)
    data = jax.device_put(experiment.data, placement.everywhere)
    program = make_program(
        experiment,
        optimizer,
        placement,
        batch_size=settings.batch_size,
        chunk_steps=settings.log_every,
        validation_batches=evaluation.validation_batches,
        evaluation_seed=evaluation.seed,
    )
    wait_for_all("checked")
    directory = RunDirectory(path, config, options.restart) if is_writer() else None
    wait_for_all("opened")
    console.print(f"run folder {path}", soft_wrap=True)
    reporter = {"console": console, "tensorboard": path / "tensorboard" if options.tensorboard else None}
    if given:
        state, record = _given_state(program, settings, given, placement), Record()
    else:
        state, record = train(program, data, settings, placement, path / "checkpoints", directory, reporter)
    started = time.monotonic()
    phases = {"trained": state}
    if evaluation.untrained:
        phases["untrained"] = program.init(settings.all_seeds)
    metrics, examples = _evaluate(program, phases, data["test"])
    content = {
        "name": config.name,
        "axes": config.axes.to_dict(),
        "metrics": metrics,
        "facts": experiment.facts,
        "steps": record.step,
        "seeds": settings.all_seeds.tolist(),
        "best_step": record.best_step,
        "validation_losses": record.validation_losses,
        "parameter_count": sum(leaf.size for leaf in jax.tree.leaves(state.params)) // settings.seeds,
        "steps_per_second": record.steps_per_second,
        "wall_time_s": record.wall_time_s + time.monotonic() - started,
        "device": device_name(),
        **results.provenance(),
        "config_hash": config_hash(config),
        "config": json.loads(config_json(config)),
    }
    result = results.Result(path, content)
    if directory:
        directory.write_examples(examples)
        directory.write_result(content)
        console.print(experiment.table([result]).terminal())
        console.print(f"figure {experiment.figure([result], path)}", soft_wrap=True)
    return result


def _with_weights(config: ConfigDict, given: weights.Weights) -> ConfigDict:
    """The config of an evaluation of weights: their model, one seed, and what identifies them. Raises UserError."""
    if given.model["name"] != config.model.name:
        raise UserError(f"the weights are those of a {given.model['name']}, config.model is a {config.model.name}")
    config = ConfigDict(config.to_dict() | {"model": given.model, "weights": given.digest})
    config.train.seeds = 1
    return config


def _given_state(program: Program, settings: TrainSettings, given: weights.Weights, placement: Placement) -> TrainState:
    """The state at step 0 with the given weights as its parameters. Raises UserError where they do not fit the model."""
    state = program.init(settings.all_seeds)
    params = weights.fit(jax.tree.map(lambda leaf: leaf[None], given.params), jax.eval_shape(lambda: state.params))
    return state.replace(params=jax.device_put(params, placement.state))


def split_evaluation(section: ConfigDict) -> tuple[EvaluationSettings, dict]:
    """What every experiment shares of the config's `evaluation` section, and what is the experiment's own. Raises ConfigError."""
    shared = {field.name for field in dataclasses.fields(EvaluationSettings)}
    common, own = ({k: v for k, v in section.items() if (k in shared) == wanted} for wanted in (True, False))
    return build(EvaluationSettings, common, "config.evaluation"), own


def experiment_module(config: ConfigDict) -> ModuleType:
    """The module experiments/<config.experiment>, which has SECTIONS and build(). Raises ConfigError where there is none."""
    try:
        return importlib.import_module(f"experiments.{config.experiment}")
    except ModuleNotFoundError as error:
        if not f"experiments.{config.experiment}".startswith(error.name):
            raise  # the module is there, but one that it imports is not
        raise ConfigError(f"config.experiment: no module experiments.{config.experiment}") from error


def _check_model(experiment: Experiment) -> None:
    """Builds the model without computing anything, so that one that cannot be built fails before anything is written."""
    try:
        jax.eval_shape(experiment.init, stream(0, "init"))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"config.model: {error}") from error


def _evaluate(program: Program, phases: dict[str, TrainState], data) -> tuple[dict, dict]:
    """Metrics and examples of each phase, their names as '<phase>/<name>'; examples that phases share are kept once."""
    metrics, examples = {}, {}
    for phase, state in phases.items():
        values = jax.device_get(program.evaluate(state, data))
        metrics |= {f"{phase}/{name}": summary for name, summary in summarise(values).items()}
        for name, array in jax.device_get(program.examples(state, data)).items():
            examples[f"{phase}/{name}" if name == "prediction" else name] = array
    return metrics, examples
