"""Tables of runs of intention/untrained: the numbers behind Figures 4, 5 and 15 of the Intention paper."""

from collections.abc import Sequence

from experiments.harness.results import Result, comparable
from experiments.harness.tables import Cell, Table, measured, median

EXPERIMENT = "intention/untrained"
CONFIGS = (EXPERIMENT,)
SETTINGS = ("interpolation", "extrapolation")  # of the queries of Figure 4
# Form of Intention whose time is measured -> its name.
FORMS = {"inverse": "explicit inverse, as the paper writes it", "intention": "Cholesky, route by cost (ours)"}
_OPS = {"softmax": "Attention", "linear": "Linear attention", "intention": "Intention", "sigma_intention": "σIntention"}
_SCALINGS = {"none": "unscaled", "sqrt": "scaled by √d"}


def chosen(results: Sequence[Result], figure: str) -> Result | None:
    """The run that measured a figure ('4', '5' or '15'), of the most serious preset; None where there is none."""
    own = [result for result in results if result.name == EXPERIMENT and result.axes["figure"] == figure]
    return next(iter(comparable(own, EXPERIMENT, lambda result: figure).values()), None)


def name_of(op: str) -> str:
    """The paper's name of an operator; its own where the paper has none."""
    return _OPS.get(op, op)


def op_names(result: Result) -> list[str]:
    """The operators of a run for Figure 4, in the order of its metrics."""
    return list(dict.fromkeys(metric.split("/")[1] for metric in result.metrics))


def run_table(results: Sequence[Result]) -> Table:
    """What one run measured."""
    (result,) = results
    return _TABLES[result.axes["figure"]](result)


def _correlations(result: Result) -> Table:
    rows = [
        (name_of(op), [measured(result.metrics[f"{setting}/{op}/r"]) for setting in SETTINGS])
        for op in op_names(result)
    ]
    draws = result.metrics[f"{SETTINGS[0]}/{op_names(result)[0]}/r"]["n"]
    caption = f"Mean ± standard error over {draws} functions. Nothing is trained."
    return Table("Pearson's r with a noiseless linear function (Figure 4)", ["operator", *SETTINGS], rows, caption)


def _slowdowns(result: Result) -> Table:
    summaries = {form: result.metrics[f"{form}/slowdown"] for form in FORMS}
    rows = [(FORMS[form], [measured(summary), median(summary)]) for form, summary in summaries.items()]
    repetitions = summaries["intention"]["n"]
    caption = f"Mean ± standard error and median over {repetitions} repetitions on {result.content['device']}."
    return Table("Time of Intention / time of attention (Figure 5)", ["form", "mean", "median"], rows, caption)


def _variances(result: Result) -> Table:
    summaries = {scaling: result.metrics[f"{scaling}/relative_error"] for scaling in _SCALINGS}
    rows = [(_SCALINGS[scaling], [Cell(summary["mean"]), median(summary)]) for scaling, summary in summaries.items()]
    caption = (
        f"Over the {summaries['none']['n']} N and d with a finite variance. The regularised map has no closed form."
    )
    title = "Variance of the Intention map: relative error of the closed form (Figure 15)"
    return Table(title, ["scaling", "mean", "median"], rows, caption)


_TABLES = {"4": _correlations, "5": _slowdowns, "15": _variances}
