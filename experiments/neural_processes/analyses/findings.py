"""What the analyses of CMANP say (CMANP paper, Figures 4 and 6): its sizes, and the blocks of CMANP-AND."""

from collections.abc import Collection, Iterator, Sequence

from experiments.harness.findings import Finding, Unsaid, digits, listed
from experiments.harness.results import Result, comparable, seeds_in, several
from experiments.neural_processes.analyses.tables import CONFIGS, curve, study_of_blocks
from experiments.neural_processes.gp.tables import KERNELS
from experiments.neural_processes.likelihoods import kind, log_likelihood


def blocks(results: Sequence[Result]) -> Iterator[Finding]:
    """CMANP-AND beside CMANP, and the size of its blocks."""
    study = study_of_blocks(_own(results))
    if len(study) < 2:
        raise Unsaid(f"{CONFIGS[0]} with study=blocks has results of {len(study)} of the two models")
    kernels = study["cmanp"].config["evaluation"]["kernels"]
    both, alone = ([_target(study[model], kernel) for kernel in kernels] for model in ("cmanp_and", "cmanp"))
    lacks = lambda model, kernel: digits(log_likelihood(study[model], f"{kernel}/gap_{kind(model)}").mean)
    told = listed(
        [
            f"{KERNELS[kernel]} {digits(ours)} and {digits(without)}, which is {lacks('cmanp_and', kernel)} and "
            f"{lacks('cmanp', kernel)} below the true posterior"
            for kernel, ours, without in zip(kernels, both, alone)
        ]
    )
    yield Finding(
        f"After {study['cmanp_and'].content['steps']} steps the likelihood of CMANP-AND, of all targets jointly, is "
        f"above that of CMANP, of each alone, as in the paper: {told}.",
        all(ours > without for ours, without in zip(both, alone)),
    )
    sizes = study["cmanp_and"].config["evaluation"]["block_sizes"]
    of_size = {size: log_likelihood(study["cmanp_and"], f"rbf/target@{size}").mean for size in sizes}
    told = listed([digits(mean, 3) for mean in of_size.values()])
    inner = [of_size[size] for size in sizes[1:-1]]
    yield Finding(
        f"Smaller blocks do not always help ({_trained([study['cmanp_and']])}): with blocks of "
        f"{listed(list(map(str, sizes)))} targets RBF is at {told}, best in between.",
        min(inner) > max(of_size[sizes[0]], of_size[sizes[-1]]),
    )


def sizes(results: Sequence[Result]) -> Iterator[Finding]:
    """More latents, more width."""
    own = [result for result in _own(results) if result.axes["study"] == "sizes"]
    for axis, words in (("width", "width"), ("block_latents", "block latents")):
        runs = curve(own, axis)
        of_size = {size: _target(result, "rbf") for size, result in runs.items()}
        if len(of_size) < 2:
            raise Unsaid(f"{CONFIGS[0]} has results of fewer than two sizes of {axis}")
        told = ", ".join(f"{size}: {digits(mean)}" for size, mean in of_size.items())
        smallest, *_, largest = of_size.values()
        helps = largest > smallest
        yield Finding(
            f"CMANP by {words}, RBF ({_trained(runs.values())}): {told}; the largest is "
            f"{'above' if helps else 'not above'} the smallest."
        )


def _trained(runs: Collection[Result]) -> str:
    """'5000 steps, 1 seed'."""
    return f"{several(run.steps for run in runs)} steps, {seeds_in(runs)}"


def _target(result: Result, kernel: str) -> float:
    return log_likelihood(result, f"{kernel}/target").mean


def _own(results: Sequence[Result]) -> list[Result]:
    own = list(comparable(results, CONFIGS[0], lambda result: tuple(sorted(result.axes.items()))).values())
    if not own:
        raise Unsaid(f"no result of {CONFIGS[0]}")
    return own


FINDINGS = {"cmanp/figure4": blocks, "cmanp/figure6": sizes}
