"""Table 3 of the CMANP paper, image completion, from results; every operator on images; and the table of one run."""

from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, drawn, facts, of_one_data, seeds_of, several
from experiments.harness.tables import BEST, MISSING, Table, mark_best
from experiments.neural_processes import attention_results
from experiments.neural_processes.complexity import tables as complexity
from experiments.neural_processes.likelihoods import LIKELIHOODS, kind, log_likelihood
from experiments.neural_processes.paper_numbers import TABLE3, printed
from kvq_jax.models import MODELS, family
from kvq_jax.ops import OPERATORS

CONFIGS = ("neural_processes/images",)
_PROTOCOLS = ("code", "text")
# The columns: (data, part) -> head.
PLACES = {
    ("celeba32", "test"): "CelebA 32",
    ("celeba64", "test"): "CelebA 64",
    ("celeba128", "test"): "CelebA 128",
    ("emnist", "seen"): "EMNIST seen",
    ("emnist", "unseen"): "EMNIST unseen",
}
# Likelihood -> name of a reference -> its metric.
REFERENCES = {
    "marginal": {"Gaussian of each pixel": "reference_pixelwise", "Gaussian process": "reference_gp"},
    "joint": {"Gaussian process, joint": "reference_gp_joint"},
}

Cells = dict[tuple[str, str], Result]  # (model, data) -> its result


def chosen_results(results: Sequence[Result]) -> Cells:
    """(model, data) -> result on the paper's data, all of one preset and one protocol."""
    used = {data for data, _ in PLACES}
    own = [result for result in results if result.name == CONFIGS[0] and result.axes["data"] in used]
    return comparable(
        of_one_data(own, lambda result: result.axes["data"], "data"),
        CONFIGS[0],
        lambda result: (result.axes["model"], result.axes["data"]),
        variant=lambda result: _PROTOCOLS.index(result.axes["protocol"]),
    )


def title(result: Result) -> str:
    """'CNP on emnist, protocol code', and the kind of attention and the operator where they are not the model's own."""
    axes = result.axes
    others = [f", {axis} {axes[axis]}" for axis in ("attention", "op") if axes.get(axis, "own") != "own"]
    return f"{MODELS[axes['model']].label} on {axes['data']}, protocol {axes['protocol']}{''.join(others)}"


def parts(result: Result) -> list[str]:
    """The parts of the test images that a result is judged on, in order."""
    found = (name.split("/") for name in result.metrics)
    return sorted(part for phase, part, what in found if (phase, what) == ("trained", "target"))


def table3(results: Sequence[Result]) -> Table | None:
    """Our log-likelihoods beside the paper's and the references'; None without results of the paper's data.

    Where a model has no result, the memory that its training would take stands in place of the number, if it is known.
    """
    cells = chosen_results(results)
    if not cells:
        return None
    needed = memory_needed(results)
    rows = [row for likelihood in LIKELIHOODS for row in _block(cells, likelihood, needed)]
    columns = ["model", "steps"]
    for head in PLACES.values():
        columns += [head, f"{head}, paper"]
    measured_at = {place: [r for (_, data), r in cells.items() if data == place[0]] for place in PLACES}
    told = _facts([(result, part) for (_, part), own in measured_at.items() for result in own])
    trained = "; ".join(f"{name}: {_batches(cells, data)}" for data, name in _data(cells).items())
    caption = (
        "Log-likelihood per target pixel, summed over channels, higher is better. Preset "
        f"{told['preset']}, protocol {next(iter(cells.values())).axes['protocol']}, {seeds_of(told)}: mean ± "
        f"standard error over {drawn(told)} images of a part, in bold the best of each block and those within the "
        f"joint error of it. Trained on {trained}. The paper's ± is over its 5 seeds, each of 200 epochs of the whole "
        "CelebA or EMNIST (balanced); -: the paper has no number, at 64x64 and 128x128 for want of memory. GiB: not "
        "trained; what the gradient of a published batch takes, by the compiler for a CPU, where one large matrix of "
        "scores is held at a time. Upper block: each target alone; lower block: all targets jointly, over their "
        "number, which is another metric. Gaussian of each pixel: mean and deviation of the training images, no "
        "deviation below "
        f"{several(r.config['evaluation']['least_std'] for r in cells.values())}. Gaussian process: Matern 1/2 on the "
        "observed pixels, fitted to training images."
    )
    return Table("Image completion (CMANP paper, Table 3)", columns, rows, caption, error="±", facts=told)


def operators(results: Sequence[Result]) -> Table | None:
    """ANP and CMANP with every operator over the context, on real images before digits; None without results.

    The operator is that of ANP's cross-attention, or the one by which CMANP's blocks read the context.
    """
    found = comparable(
        [result for result in results if _on_images(result) and result.axes["op"] != "own"],
        attention_results.CONFIG,
        lambda result: (result.axes["data"], result.axes["model"], result.axes["op"]),
        data=lambda result: result.axes["data"] == "digits",
        variant=lambda result: _PROTOCOLS.index(result.axes["protocol"]),
    )
    if not found:
        return None
    ops = [op for op in OPERATORS if any(op == its for _, _, its in found)]
    places = sorted({(data, model, part) for (data, model, _), result in found.items() for part in parts(result)})
    columns = [
        mark_best(
            [log_likelihood(found.get((data, model, op)), f"{part}/target") for op in ops], smaller_is_better=False
        )
        for data, model, part in places
    ]
    told = _facts([(result, part) for result in found.values() for part in parts(result)])
    steps = several(result.content["steps"] for result in found.values())
    return Table(
        "KVQ space on images: the attention over the context replaced by other operators",
        ["operator", *(f"{MODELS[model].label}, {data} {part}" for data, model, part in places)],
        [(op, list(cells)) for op, *cells in zip(ops, *columns)],
        f"Log-likelihood per target pixel, summed over channels, higher is better. Preset {told['preset']}, "
        f"{seeds_of(told)}, {steps} steps; mean ± standard error over {drawn(told)} images of a part; {BEST}. "
        "The operator is that of ANP's cross-attention, or the one by which CMANP's blocks read the context; all other "
        f"attention is softmax. Images: {'; '.join(sorted({r.content['facts']['data'] for r in found.values()}))}. "
        "No paper has this table.",
        error="±",
        facts=told,
    )


def _on_images(result: Result) -> bool:
    """Whether a result is one of the models of the config `attention` on images, with no other kind of attention."""
    own = result.name == attention_results.CONFIG
    return own and result.axes["data"] != "gp" and result.axes["attention"] == "own"


def run_table(result: Result) -> Table:
    """One run: its likelihoods on each part, by number of observed pixels, beside the references' and the paper's."""
    model, data, counts = result.axes["model"], result.axes["data"], result.config["evaluation"]["counts"]
    own = parts(result)
    reference = "reference_gp_joint" if kind(model) == "joint" else "reference_gp"
    names = {"target": "targets", "bits_per_dim": "bits per dimension"}
    names |= {f"target@{count}": f"targets, {count} observed" for count in counts}
    names |= {"reference_pixelwise": "Gaussian of each pixel", reference: "Gaussian process"}
    rows = [(name, [log_likelihood(result, f"{part}/{metric}") for part in own]) for metric, name in names.items()]
    if result.name == CONFIGS[0]:
        rows.append(("the paper", [printed(TABLE3, model, (data, part)) for part in own]))
    told = _facts([(result, part) for part in own])
    by_count = several(result.metrics[f"trained/{part}/target@{counts[0]}"]["n"] for part in own)
    caption = (
        f"Log-likelihood per pixel, summed over channels, over {told['n']} images of a part of "
        f"{result.content['facts']['data']}; {result.steps} steps of {result.config['train']['batch_size']} images. "
        f"After so many observed pixels: {by_count} images, the same targets for all. Bits: lower is better; of a "
        "density, not the length of a code."
    )
    heading = f"{title(result)}, preset {result.preset}"
    return Table(heading, ["log-likelihood", *own], rows, caption, error="±", facts=told)


def memory_needed(results: Sequence[Result]) -> dict[tuple[str, str], str]:
    """(model, data) -> '12 GiB': what the gradient of a published batch takes, where a run has measured it."""
    run = complexity.chosen_run(results, "images")
    if run is None:
        return {}
    found = {
        (model, data): complexity.number(run, data, size, model)
        for data, series in run.config["series"].items()
        for size in series["sizes"]
        for model in series["models"]
    }
    return {place: f"{cell.mean / 1024:.2g} GiB" for place, cell in found.items() if cell.known}


def _block(cells: Cells, likelihood: str, needed: Mapping[tuple[str, str], str]) -> list[tuple[str, list]]:
    """The rows of all models measured by one of the two likelihoods, and of its references."""
    models = [model for model in family("neural_process") if kind(model) == likelihood]
    own = [[cells[model, data] for data in _data(cells) if (model, data) in cells] for model in models]
    steps = [" / ".join(dict.fromkeys(result.steps for result in of_model)) or MISSING for of_model in own]
    columns = [[*steps, *("" for _ in REFERENCES[likelihood])]]
    for data, part in PLACES:
        found = [cells.get((model, data)) for model in models]
        ours = mark_best([log_likelihood(result, f"{part}/target") for result in found], smaller_is_better=False)
        shown = [cell if cell.known else needed.get((model, data), cell) for model, cell in zip(models, ours)]
        first = next((result for (_, its), result in cells.items() if its == data), None)
        columns.append([*shown, *(log_likelihood(first, f"{part}/{name}") for name in REFERENCES[likelihood].values())])
        columns.append([printed(TABLE3, model, (data, part)) for model in models] + ["-"] * len(REFERENCES[likelihood]))
    names = [*(MODELS[model].label for model in models), *REFERENCES[likelihood]]
    return list(zip(names, map(list, zip(*columns))))


def _data(cells: Cells) -> dict[str, str]:
    """The data of the cells in the order of the columns -> how to quote it."""
    order = dict.fromkeys(data for data, _ in PLACES)
    quoted = {data: result.content["facts"]["data"] for (_, data), result in cells.items()}
    return {data: f"{quoted[data]} ({data})" for data in order if data in quoted}


def _batches(cells: Cells, data: str) -> str:
    """'2000 steps of 16 images'."""
    own = [result for (_, its), result in cells.items() if its == data]
    sizes = several(result.config["train"]["batch_size"] for result in own)
    return f"{several(result.content['steps'] for result in own)} steps of {sizes} images"


def _facts(measured: Sequence[tuple[Result, str]]) -> Mapping[str, str]:
    """As results.facts, where the metric depends on the result: pairs of a result and a part that it is judged on."""
    found = [facts([result], f"trained/{part}/target") for result, part in measured]
    return {name: several(one[name] for one in found) for name in ("preset", "seeds", "n")}


TABLES = {"cmanp/table3": table3, "kvq/images": operators}
