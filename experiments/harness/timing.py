"""Comparing speeds on a machine with other load: functions are timed in turns, and compared within each turn."""

import statistics
import time
from collections.abc import Callable, Sequence

import jax

# Name -> seconds that have passed: for all, or for this process, on all its threads together. Other processes on the
# machine slow the first clock and not the second, which says nothing of work on an accelerator.
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def interleaved(
    functions: Sequence[Callable[[], object]], repeats: int, budget_s: float = 0.0, clock: str = "wall"
) -> list[list[float]]:
    """Times functions in turns, after one untimed call of each, so that whatever else happens falls on all of them.

    Args:
      functions: each returns arrays, for which the clock waits.
      repeats: number of turns.
      budget_s: seconds to spend in all; a turn calls a fast function several times in a row to fill its share of it.
      clock: a name of CLOCKS.

    Returns:
      Seconds of one call: [repeats][functions].
    """
    slowest = max((elapsed(function, 1, clock), elapsed(function, 1, clock))[1] for function in functions)
    calls = max(1, int(budget_s / (len(functions) * repeats * slowest)))
    return [[elapsed(function, calls, clock) for function in functions] for _ in range(repeats)]


def ratios(times: Sequence[Sequence[float]], of: int, over: int) -> list[float]:
    """How many times as long function `of` took as function `over`, in each turn."""
    return [row[of] / row[over] for row in times]


def ratio(times: Sequence[Sequence[float]], of: int, over: int) -> float:
    """The median of `ratios`."""
    return statistics.median(ratios(times, of, over))


def seconds(times: Sequence[Sequence[float]], of: int) -> float:
    """The median time of function `of`."""
    return statistics.median(row[of] for row in times)


def elapsed(function: Callable[[], object], calls: int = 1, clock: str = "wall") -> float:
    """Seconds of one of `calls` calls in a row, the last of which has ended. The function returns arrays."""
    start = CLOCKS[clock]()
    for _ in range(calls):
        out = function()
    jax.block_until_ready(out)
    return (CLOCKS[clock]() - start) / calls
