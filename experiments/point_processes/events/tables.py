"""Tables of event sequences from results: Tables 5 and 6 of the CMANP paper, all processes, all recorded data."""

import functools
from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, drawn, facts, of_one_data, seeds_of, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.point_processes.paper_numbers import TABLE6
from kvq_jax.models import EVENT_MODELS

CONFIG = "point_processes/events"
CONFIGS = (CONFIG,)
PROCESSES = {
    "poisson": "Poisson",
    "renewal": "renewal",
    "self_correcting": "self-correcting",
    "hawkes": "Hawkes",
    "hawkes2": "Hawkes, two kernels",
    "multivariate": "Hawkes, five marks",
}
RECORDED = {
    "mooc": "Mooc",
    "reddit": "Reddit",
    "stackoverflow": "Stack Overflow",
    "wikipedia": "Wikipedia",
    "book_order": "Book order",
    "yelp": "Yelp",
}
PLACES = PROCESSES | RECORDED
# Metric -> (what it is called, whether it is in the unit of time, whether smaller is better).
_METRICS = {
    "nll": ("NLL", False, True),
    "nll_time": ("NLL of times", False, True),
    "nll_mark": ("NLL of marks", False, True),
    "rmse": ("RMSE", True, True),
    "mae": ("MAE", True, True),
    "rmse_median": ("RMSE by median", True, True),
    "mae_median": ("MAE by median", True, True),
    "rmse_log": ("RMSE of log time", False, True),
    "rmse_published": ("RMSE of signed sums", True, True),
    "accuracy": ("accuracy", False, False),
    "calibration": ("calibration", False, True),
    "calibration_bound": ("calibration, 95 % bound", False, True),
}
_OF_RECORDED = ("nll_time", "nll_mark", "rmse", "rmse_median", "mae_median", "rmse_log", "accuracy", "calibration")
_EXPLAINED = (
    "NLL: minus the log-likelihood per event, natural logarithm, density of times per unit of time; with the survival "
    "after the last event. RMSE: of the forecast of the next gap, by its mean."
)


def chosen_results(results: Sequence[Result], data: Sequence[str]) -> dict[tuple[str, str], Result]:
    """(model, data) -> result, of one preset, for the data named."""
    own = [result for result in results if result.name == CONFIG and result.axes["data"] in data]
    own = of_one_data(own, lambda result: result.axes["data"], "data", "unit")
    return comparable(own, CONFIG, lambda result: (result.axes["model"], result.axes["data"]))


def metric(result: Result | None, name: str) -> Cell:
    """A metric of a run with its standard error; missing where there is no run, or no such metric."""
    return measured(result and result.metrics.get(f"trained/{name}"))


def of_paper(results: Sequence[Result], number: int, data: Sequence[str]) -> Table | None:
    """Table 5 or 6 of the CMANP paper beside ours; None without results of recorded data, if only of other data."""
    every = chosen_results(results, tuple(RECORDED))
    if not every:
        return None
    cells = {cell: result for cell, result in every.items() if cell[1] in data}
    columns, found = [], []
    for place in data:
        for name, printed in (("rmse_median", "rmse"), ("nll", "nll"), ("accuracy", "accuracy")):
            head, _, smaller = _METRICS[name]
            columns += [f"{RECORDED[place]} {head}", f"{RECORDED[place]} {_METRICS[printed][0]}, paper"]
            found.append(mark_best([metric(cells.get((model, place)), name) for model in EVENT_MODELS], smaller))
            found.append([_printed(model, place, printed) for model in EVENT_MODELS])
    rows = [(EVENT_MODELS[model].label, list(row)) for model, *row in zip(EVENT_MODELS, *found)]
    told = _facts(cells)
    missing = [RECORDED[place] for place in data if all(place != its for _, its in cells)]
    caption = (
        f"{_described(cells, told)}The paper's numbers are means ± standard deviations; it names neither the unit of "
        f"time nor the split, so ours stand beside each other, not beside the paper's. {_MODELS} {_EXPLAINED} "
        "By median: by its median, since the mean of a mixture of log-normals may be infinite; the paper does not say."
        f"{_missing(missing)}"
    )
    title = f"Next event prediction (CMANP paper, Table {number})"
    return Table(title, ["model", *columns], rows, caption, facts=told)


def processes(results: Sequence[Result]) -> Table | None:
    """What every model lacks of the likelihood of the process that events are drawn from; None without results."""
    cells = chosen_results(results, tuple(PROCESSES))
    if not cells:
        return None
    places = [place for place in PROCESSES if any(place == its for _, its in cells)]
    found = [mark_best([metric(cells.get((model, place)), "gap_nll") for model in EVENT_MODELS]) for place in places]
    rows = [(EVENT_MODELS[model].label, list(row)) for model, *row in zip(EVENT_MODELS, *found)]
    rows.append(("NLL of the process itself", [oracle(cells, place) for place in places]))
    told = _facts(cells)
    caption = (
        f"What a model lacks of the log-likelihood of the process, nats per event, smaller is better; 0 is the best "
        f"that there is. {_described(cells, told)}{_MODELS} {BEST.capitalize()}. No paper has this table."
    )
    return Table("Events of known processes", ["model", *map(PROCESSES.get, places)], rows, caption, facts=told)


def recorded(results: Sequence[Result]) -> Table | None:
    """Every metric of every model on recorded sequences; None without results."""
    cells = chosen_results(results, tuple(RECORDED))
    if not cells:
        return None
    rows = []
    for place in RECORDED:
        models = [model for model in EVENT_MODELS if (model, place) in cells]
        columns = [
            mark_best([metric(cells[model, place], name) for model in models], _METRICS[name][2])
            for name in _OF_RECORDED
        ]
        rows += [
            (f"{RECORDED[place]}, {EVENT_MODELS[model].label}", list(row)) for model, *row in zip(models, *columns)
        ]
    told = _facts(cells)
    bounds = {place: metric(result, "calibration_bound").text() for (_, place), result in cells.items()}
    caption = (
        f"{_described(cells, told)}{_MODELS} {_EXPLAINED} RMSE and MAE are in the unit of the data. Calibration: the "
        "largest distance of the distribution of F(gap) from the uniform one; for 95 of 100 samples of uniform numbers "
        f"it is below {', '.join(f'{bound} ({RECORDED[place]})' for place, bound in sorted(bounds.items()))}. In "
        "bold the best model of each set of data and those within the joint error of it. No paper has this table."
    )
    heads = ["data, model", *(_METRICS[name][0] for name in _OF_RECORDED)]
    return Table("Recorded events", heads, rows, caption, facts=told)


def run_table(result: Result) -> Table:
    """One run: every metric in its unit, beside those of the process where it is known."""
    unit = result.content["facts"]["unit"]
    rows = []
    for name, (head, in_unit, _) in _METRICS.items():
        cell = metric(result, name)
        if cell.known or f"trained/{name}" in result.metrics:
            best = metric(result, f"oracle_{name}")
            rows.append((f"{head}, {unit}" if in_unit else head, [cell, best if best.known else "-"]))
    told = facts([result], "trained/nll")
    place = result.axes["data"]
    caption = (
        f"{PLACES[place]}: {data_of(result)}; mean ± standard error over {drawn(told)} "
        f"sequences, each event counting alike; {result.steps} steps of {result.config['train']['batch_size']} "
        f"sequences. {_EXPLAINED}"
    )
    title = f"{EVENT_MODELS[result.axes['model']].label} on {place}, preset {result.preset}"
    return Table(title, ["metric", "ours", "the process itself"], rows, caption, facts=told)


def data_of(result: Result) -> str:
    """What a run's sequences are: 'Mooc (re-split): 40,000 events, of 7 % of the sequences the first 128'."""
    known = result.content["facts"]
    if not known.get("cut_sequences"):
        return known["data"]
    left, cut = sum(known["events"].values()), 100 * known["cut_sequences"]
    longest = result.config["data"]["max_events"]
    return f"{known['data']}: {left:,} events, of {cut:.2g} % of the sequences the first {longest}"


def oracle(cells: Mapping[tuple[str, str], Result], place: str) -> Cell:
    """The negative log-likelihood per event of a process, on the sequences that all its results are judged on."""
    return metric(next(result for (_, its), result in cells.items() if its == place), "oracle_nll")


def _printed(model: str, place: str, name: str) -> Cell | str:
    numbers = TABLE6.get((model, place))
    return Cell(*numbers[name], decimals=3) if numbers else "-"


def _facts(cells: Mapping[tuple[str, str], Result]) -> dict[str, str]:
    return facts(cells.values(), "trained/nll")


def _described(cells: Mapping[tuple[str, str], Result], told: Mapping[str, str]) -> str:
    """The preset, seeds and sequences of a table, and of each set of data what it is, its unit and its training."""
    of_data = {}
    for (_, place), result in cells.items():
        of_data.setdefault(place, []).append(result)
    described = []
    for place, own in of_data.items():
        unit, steps = own[0].content["facts"]["unit"], several(result.steps for result in own)
        described.append(f"{PLACES[place]}: {data_of(own[0])}, in {unit}, {steps} steps")
    if not cells:
        return ""
    return (
        f"Preset {told['preset']}, {seeds_of(told)}; mean ± standard error over {drawn(told)} sequences. "
        f"{'; '.join(described)}. "
    )


# What the names of the models do not say.
_MODELS = (
    "THP has the intensity of Zuo et al. (2020), for Wikipedia and Reddit one for all marks and a softmax of marks; "
    "'THP, mixture' is the CMANP paper's THP; Intention Hawkes, ours, is CMHP with Intention that forgets."
)


def _missing(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f" Missing: {', '.join(names)}, whose marked sequences the project does not have."


TABLES = {
    "cmanp/table5": functools.partial(of_paper, number=5, data=("reddit",)),
    "cmanp/table6": functools.partial(of_paper, number=6, data=("mooc", "reddit")),
    "events/processes": processes,
    "events/recorded": recorded,
}
