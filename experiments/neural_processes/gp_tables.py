"""Table 4 of the CMANP paper, one-dimensional meta-regression, from results; and the table of one run."""

from collections.abc import Sequence

from experiments.harness.results import Result, comparable, facts
from experiments.harness.tables import MISSING, Cell, Table, mark_best, measured
from experiments.neural_processes.published import FLOORED, JOINT, MODELS, TABLE4

KERNELS = {"rbf": "RBF", "matern": "Matern 5/2", "periodic": "periodic"}
_PROTOCOLS = ("code", "text", "slides")  # the one that the paper's numbers were made with first

Cells = dict[tuple[str, str], Result]  # (model, std) -> its result


def chosen_results(results: Sequence[Result]) -> Cells:
    """(model, std) -> result, all of one preset and one protocol; std is 'published' or 'same' for all models."""
    return comparable(
        results,
        "neural_processes/gp",
        lambda result: (_axis(result, "model"), _axis(result, "std")),
        variant=lambda result: _PROTOCOLS.index(_axis(result, "protocol")),
    )


def log_likelihood(result: Result | None, metric: str) -> Cell:
    """The cell of the trained model's `<kernel>/<what>`; missing where there is no such number."""
    return measured(result.metrics.get(f"trained/{metric}") if result else None)


def title(result: Result) -> str:
    """'CNP, protocol code, std published': the model, and the axes that it has beside the preset."""
    others = [f"{axis} {value}" for axis, value in result.content["axes"].items() if axis not in ("model", "preset")]
    return ", ".join([MODELS[_axis(result, "model")], *others])


def kind(model: str) -> str:
    """Which of the two likelihoods a model is measured by: 'marginal' or 'joint'."""
    return "joint" if model in JOINT else "marginal"


def paper_number(model: str, kernel: str) -> Cell | str:
    """1.39 ± 0.01 as Table 4 prints it; a dash where it has none."""
    number = TABLE4.get(model, {}).get(kernel)
    return Cell(*number, decimals=2) if number else "-"


def table4(results: Sequence[Result]) -> Table | None:
    """Our log-likelihoods beside the paper's and those of the true kernel's posterior; None without results."""
    cells = chosen_results(results)
    if not cells:
        return None
    first = next(iter(cells.values()))
    rows = [row for likelihood in ("marginal", "joint") for row in _block(cells, first, likelihood)]
    columns = ["model", "steps"]
    for kernel, name in KERNELS.items():
        columns += [name, *([f"{name}, paper"] if _in_paper(kernel) else []), f"{name}, gap"]
    low, high = first.config["task"]["length_scale"]
    told = facts(cells.values(), f"trained/{next(iter(KERNELS))}/target")
    caption = (
        f"Log-likelihood per target, higher is better; trained on RBF. Preset {told['preset']}, protocol "
        f"{_axis(first, 'protocol')} (length-scale U({low:g}, {high:g})), {told['seeds']} seed(s): mean ± standard error over "
        f"{told['n']} functions, in bold the best of each block and those within the joint error of it; the paper's ± is over "
        "its 5 seeds, each of 100000 steps. Upper block: each target alone; lower block: all targets jointly, over their number, "
        "which is another metric. Oracle: the posterior of the true kernel and its parameters; gap: how far a model is below it on "
        "the same functions. Same std: the published floor of 0.1 under the standard deviation replaced by the exponential of "
        "all other models."
    )
    return Table("1-D meta-regression (CMANP paper, Table 4)", columns, rows, caption, error="±", facts=told)


def run_table(results: Sequence[Result]) -> Table:
    """One run: its likelihoods on each kernel beside the oracle's and the paper's."""
    (result,) = results
    model = _axis(result, "model")
    kernels = result.config["evaluation"]["kernels"]
    metrics = ("target", "context", f"oracle_{kind(model)}", f"gap_{kind(model)}")
    rows = [
        (
            KERNELS[kernel],
            [*(log_likelihood(result, f"{kernel}/{metric}") for metric in metrics), paper_number(model, kernel)],
        )
        for kernel in kernels
    ]
    told = facts(results, f"trained/{kernels[0]}/target")
    caption = (
        f"Log-likelihood per point over {told['n']} functions of each kernel; preset {told['preset']}, {result.steps} steps "
        f"(the paper: 100000). Oracle: the {kind(model)} likelihood of the true kernel."
    )
    columns = ["kernel", "targets", "context", "oracle", "gap", "paper"]
    return Table(title(result), columns, rows, caption, error="±", facts=told)


def _block(cells: Cells, first: Result, likelihood: str) -> list[tuple[str, list]]:
    """The rows of all models of one of the two metrics, and the oracle's."""
    wanted = [
        (model, std) for std in ("published", "same") for model in MODELS if std == "published" or model in FLOORED
    ]
    wanted = [(model, std) for model, std in wanted if kind(model) == likelihood]
    labels = [MODELS[model] if std == "published" else f"{MODELS[model]}, same std" for model, std in wanted]
    found = [cells.get(which) for which in wanted]
    columns = [[result.steps if result else MISSING for result in found] + [""]]
    for kernel in KERNELS:
        ours = mark_best([log_likelihood(result, f"{kernel}/target") for result in found], smaller_is_better=False)
        columns.append([*ours, log_likelihood(first, f"{kernel}/oracle_{likelihood}")])
        if _in_paper(kernel):
            columns.append(
                [paper_number(model, kernel) if std == "published" else "-" for model, std in wanted] + ["-"]
            )
        columns.append([log_likelihood(result, f"{kernel}/gap_{likelihood}") for result in found] + [""])
    return list(zip([*labels, f"oracle, {likelihood}"], map(list, zip(*columns))))


def _in_paper(kernel: str) -> bool:
    return any(kernel in of_model for of_model in TABLE4.values())


def _axis(result: Result, name: str) -> str:
    return result.content["axes"][name]
