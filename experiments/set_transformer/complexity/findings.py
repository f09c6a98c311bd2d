"""What the measured times of blocks of the Set Transformer say: whose time grows with the square of the set."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Unsaid, digits
from experiments.harness.results import Result
from experiments.set_transformer.complexity.tables import CLOCKS, CONFIG, chosen_run, ends, label_of, number, power


def growth(results: Sequence[Result]) -> Iterator[Finding]:
    """SAB beside ISAB at the largest set, and the powers of n of their operations and times."""
    run = chosen_run(results)
    if run is None:
        raise Unsaid(f"no result of {CONFIG}")
    first, last = run.config["measurement"]["sizes"][0], run.config["measurement"]["sizes"][-1]
    times = {
        (block, size): number(run, "time", "forward", block, size)
        for block in ("sab", "isab")
        for size in (first, last)
    }
    if not all(cell.known for cell in times.values()):
        raise Unsaid(f"{CONFIG}: a block did not fit in memory")
    ratio = {size: times["sab", size].mean / times["isab", size].mean for size in (first, last)}
    isab, sab = (label_of(run, block) for block in ("isab", "sab"))
    unit = CLOCKS[run.config["measurement"]["clock"]]
    yield Finding(
        f"On a set of {first} elements {sab} takes {digits(ratio[first])} times as long as {isab}, on one of {last} "
        f"{digits(ratio[last])} times, {digits(times['sab', last].mean)} beside {digits(times['isab', last].mean)} "
        f"{unit}.",
        ratio[last] > 10 * ratio[first],
    )
    of, time = (
        {block: power(run, quantity, "forward", block) for block in ("sab", "isab")}
        for quantity in ("operations", "time")
    )
    if None in (*of.values(), *time.values()):
        raise Unsaid(f"{CONFIG}: too few sizes")
    yield Finding(
        f"From {ends(run)[0]} elements on the operations of {sab} grow with n to the power of {of['sab']:.2f}, its "
        f"time with that of {time['sab']:.2f}; those of {isab} with {of['isab']:.2f} and {time['isab']:.2f}.",
        of["sab"] > 1.8 and of["isab"] < 1.1,
    )


FINDINGS = {"set_transformer/complexity": growth}
