"""What an event costs by the number of events before it, from results."""

from collections.abc import Sequence

from experiments.harness.results import Result, comparable
from experiments.harness.tables import Cell, Table, measured
from kvq_jax.models import EVENT_MODELS

CONFIGS = ("point_processes/serving",)
# Metric -> (its name, unit, scale).
QUANTITIES = {
    "state": ("state", "KiB", 2**-10),
    "event": ("absorb an event and forecast", "ms", 1e3),
    "training": ("gradient of a sequence", "ms", 1e3),
    "memory": ("memory of the gradient", "MiB", 2**-20),
}


def chosen_run(results: Sequence[Result]) -> Result | None:
    """The run of the most serious preset; None without one."""
    return comparable(results, CONFIGS[0], lambda result: ()).get(())


def number(run: Result, what: str, model: str, events: int) -> Cell:
    """A measured number in the unit of QUANTITIES."""
    return measured(run.metrics.get(f"{what}/{model}@{events}"), QUANTITIES[what][2])


def models_of(run: Result) -> list[str]:
    """The models of a run, in the order of tables."""
    return [model for model in EVENT_MODELS if model in run.config["models"]]


def serving(results: Sequence[Result]) -> Table | None:
    """All numbers of the chosen run; None without results."""
    run = chosen_run(results)
    return run and run_table(run)


def run_table(run: Result) -> Table:
    """One run: a row for each quantity of each model, a column for each number of events."""
    sizes = run.config["measurement"]["events"]
    rows = [
        (f"{name}, {unit}: {EVENT_MODELS[model].label}", [number(run, what, model, size) for size in sizes])
        for what, (name, unit, _) in QUANTITIES.items()
        for model in models_of(run)
    ]
    caption = (
        f"By the number of events before, on {run.content['device']}; preset {run.preset}. The state is what is kept "
        "of them. The gradient is that of the loss of one sequence, its memory is the compiler's."
    )
    return Table(
        "Time and memory of event processes", ["", *map(str, sizes)], rows, caption, facts={"preset": run.preset}
    )


TABLES = {"events/serving": serving}
