"""What the measured times say (CMANP paper, Figures 3 and 8): what constant memory is for, and what it costs."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Unsaid, digits
from experiments.harness.results import Result
from experiments.neural_processes.complexity.tables import chosen_run, number


def updates(results: Sequence[Result]) -> Iterator[Finding]:
    """Absorbing new points, and the query that comes after."""
    run = chosen_run(results, "update")
    if run is None:
        raise Unsaid("no result of neural_processes/complexity with what=update")
    series = run.config["series"]
    points, sizes = series["update"]["fixed"], series["update"]["sizes"]
    time = lambda name, model, size: number(run, name, size, model).mean
    ours = [time("update", "cmanp", size) for size in sizes]
    others = {label: time("update", model, sizes[-1]) for model, label in (("eqtnp", "EQTNP"), ("lbanp", "LBANP"))}
    yield Finding(
        f"An update of CMANP by {points} points takes {_range(ours)} ms, after {sizes[0]} points as "
        f"after {sizes[-1]}; EQTNP's takes {others['EQTNP']:.0f} ms and LBANP's {others['LBANP']:.0f} after "
        f"{sizes[-1]}.",
        max(ours) < 2 * min(ours) and max(ours) < min(others.values()),
    )
    query = {model: [time("query", model, size) for size in series["query"]["sizes"]] for model in ("cmanp", "lbanp")}
    yield Finding(
        f"What the update does not do, the query does: {series['query']['fixed']} targets take CMANP "
        f"{_range(query['cmanp'])} ms, LBANP {_range(query['lbanp'])}.",
        min(query["cmanp"]) > max(query["lbanp"]),
    )


def _range(numbers: Sequence[float]) -> str:
    """'0.71 to 0.86', or one number where both are told alike."""
    return " to ".join(dict.fromkeys(digits(number) for number in (min(numbers), max(numbers))))


FINDINGS = {"cmanp/figure8": updates}
