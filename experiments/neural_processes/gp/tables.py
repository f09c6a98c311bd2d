"""Table 4 of the CMANP paper, one-dimensional meta-regression; ANP by its attention; and the table of one run."""

from collections.abc import Sequence

from experiments.harness.results import Result, comparable, drawn, facts, seeds_by_name, steps_by_name
from experiments.harness.tables import BEST, MISSING, Cell, Table, mark_best
from experiments.neural_processes import attention_results
from experiments.neural_processes.likelihoods import LIKELIHOODS, kind, log_likelihood
from experiments.neural_processes.paper_numbers import TABLE4, printed
from kvq_jax.models import MODELS, family

CONFIGS = ("neural_processes/gp",)
KERNELS = {"rbf": "RBF", "matern": "Matern 5/2", "periodic": "periodic"}
HEADLINE = f"trained/{next(iter(KERNELS))}/target"  # the metric whose n is quoted
_PROTOCOLS = ("code", "text", "slides")  # the protocol of the paper's numbers first

PUBLISHED, SAME = "published", "same std"  # forms

# What of a command line makes a row of its own -> how the row says it.
_CHANGES = {
    "model.num_latents": "{} latents",
    "optimizer.clip_norm": "gradient clipped at {:g}",
    "train.seed": "seed {}",
}

Cells = dict[tuple[str, str], Result]  # (model, form) -> its result


def chosen_results(results: Sequence[Result]) -> Cells:
    """(model, form) -> result, all of one preset and one protocol."""
    return comparable(
        results,
        CONFIGS[0],
        lambda result: (result.axes["model"], form(result)),
        variant=lambda result: _PROTOCOLS.index(result.axes["protocol"]),
    )


def form(result: Result) -> str:
    """How a run departs from the published training: PUBLISHED, SAME, or '8 latents, seed 1', from its command line."""
    std = [f"{result.axes['std']} std"] if result.axes["std"] != "published" else []
    changes = [text.format(result.overrides[key]) for key, text in _CHANGES.items() if key in result.overrides]
    return ", ".join(std + changes) or PUBLISHED


def title(result: Result) -> str:
    """'CNP, protocol code, std published': the model and its axes, without the preset."""
    others = [f"{axis} {value}" for axis, value in result.axes.items() if axis not in ("model", "preset")]
    return ", ".join([MODELS[result.axes["model"]].label, *others])


def has_floor(model: str) -> bool:
    """Whether the published standard deviation of a model has a floor; std=same takes it away."""
    return getattr(MODELS[model].cls, "std_floor", 0.0) > 0


def paper(model: str, form: str, protocol: str, kernel: str) -> Cell | str:
    """The number of Table 4; a dash where there is none, and for another form or protocol than the paper's."""
    return printed(TABLE4, model, kernel) if (form, protocol) == (PUBLISHED, _PROTOCOLS[0]) else "-"


def row_label(model: str, form: str) -> str:
    """'CNP', 'CNP, same std' or 'LBANP, 8 latents': the name of a row of Table 4."""
    return MODELS[model].label + (f", {form}" if form != PUBLISHED else "")


def table4(results: Sequence[Result]) -> Table | None:
    """Our log-likelihoods beside the paper's and those of the true kernel's posterior; None without results."""
    cells = chosen_results(results)
    if not cells:
        return None
    first = next(iter(cells.values()))
    rows = [row for likelihood in LIKELIHOODS for row in _block(cells, first, likelihood)]
    columns = ["model", "steps"]
    for kernel, name in KERNELS.items():
        columns += [name, *([f"{name}, paper"] if _in_paper(kernel) else []), f"{name}, gap"]
    low, high = first.config["task"]["length_scale"]
    told = facts(cells.values(), HEADLINE)
    seeds = seeds_by_name({row_label(*cell): result for cell, result in cells.items()})
    caption = (
        f"Log-likelihood per target, higher is better; trained on RBF. Preset {told['preset']}, protocol "
        f"{first.axes['protocol']} (length-scale U({low:g}, {high:g})), {seeds}: mean ± standard error "
        f"over {drawn(told)} functions, in bold the best of each block and those within the joint error of it; the "
        "paper's ± is over its 5 seeds, each of 100000 steps. Upper block: each target alone; lower block: all targets "
        "jointly, over their number, which is another metric. Oracle: the posterior of the true kernel and its "
        "parameters; gap: how far a model is below it on the same functions. Same std: the published floor of 0.1 "
        "under the standard deviation replaced by the exponential of all other models."
    )
    return Table("1-D meta-regression (CMANP paper, Table 4)", columns, rows, caption, error="±", facts=told)


def attention(results: Sequence[Result]) -> Table | None:
    """ANP with each attention of the ANP slides, beside the true kernel's posterior; None without results."""
    cells = attention_results.of_anp(results, "gp")
    if not cells:
        return None
    first, told = next(iter(cells.values())), facts(cells.values(), HEADLINE)
    columns = []
    for kernel in KERNELS:
        ours = mark_best([log_likelihood(run, f"{kernel}/target") for run in cells.values()], smaller_is_better=False)
        columns.append([*ours, log_likelihood(first, f"{kernel}/oracle_{kind('anp')}")])
    rows = list(zip([*cells, "oracle"], map(list, zip(*columns))))
    caption = (
        f"Log-likelihood of each target alone, higher is better; trained on RBF. Preset {told['preset']}, protocol "
        f"{first.axes['protocol']}, {steps_by_name(cells)}, {seeds_by_name(cells)}: mean ± standard error over "
        f"{drawn(told)} functions of each kernel, {BEST}. Oracle: the posterior of the true kernel. The slides print "
        "no numbers."
    )
    return Table("ANP by what it reads the context with", ["attention", *KERNELS.values()], rows, caption, facts=told)


def run_table(result: Result) -> Table:
    """One run: its likelihoods on each kernel beside the oracle's and the paper's."""
    model = result.axes["model"]
    kernels = result.config["evaluation"]["kernels"]
    metrics = ("target", f"oracle_{kind(model)}", f"gap_{kind(model)}")
    rows = []
    for kernel in kernels:
        ours = [log_likelihood(result, f"{kernel}/{metric}") for metric in metrics]
        own = result.name == CONFIGS[0]
        beside = paper(model, form(result), result.axes["protocol"], kernel) if own else "-"
        rows.append((KERNELS[kernel], [*ours, beside]))
    told = facts([result], f"trained/{kernels[0]}/target")
    caption = (
        f"Log-likelihood per point over {told['n']} functions of each kernel; preset {told['preset']}, {result.steps} "
        f"steps (the paper: 100000). Oracle: the {kind(model)} likelihood of the true kernel."
    )
    columns = ["kernel", "targets", "oracle", "gap", "paper"]
    return Table(title(result), columns, rows, caption, error="±", facts=told)


def _block(cells: Cells, first: Result, likelihood: str) -> list[tuple[str, list]]:
    """The rows of all models measured by one of the two likelihoods, and the oracle's."""
    models = [model for model in family("neural_process") if kind(model) == likelihood]
    wanted = [(model, PUBLISHED) for model in models] + [(model, SAME) for model in models if has_floor(model)]
    wanted += [(model, form) for model, form in cells if model in models and form not in (PUBLISHED, SAME)]
    labels = [row_label(*which) for which in wanted]
    found = [cells.get(which) for which in wanted]
    columns = [[result.steps if result else MISSING for result in found] + [""]]
    for kernel in KERNELS:
        ours = mark_best([log_likelihood(result, f"{kernel}/target") for result in found], smaller_is_better=False)
        columns.append([*ours, log_likelihood(first, f"{kernel}/oracle_{likelihood}")])
        if _in_paper(kernel):
            columns.append([paper(*which, first.axes["protocol"], kernel) for which in wanted] + ["-"])
        columns.append([log_likelihood(result, f"{kernel}/gap_{likelihood}") for result in found] + [""])
    return list(zip([*labels, f"oracle, {likelihood}"], map(list, zip(*columns))))


def _in_paper(kernel: str) -> bool:
    return any(kernel in of_model for of_model in TABLE4.values())


TABLES = {"cmanp/table4": table4, "anp/functions": attention}
