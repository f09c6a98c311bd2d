"""Timing by a clock that the timed functions move."""

import jax.numpy as jnp

from experiments.harness import timing


def test_times_are_of_one_call_however_many_fill_the_budget(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setitem(timing.CLOCKS, "wall", lambda: now[0])

    def takes(duration):
        def function():
            now[0] += duration
            calls.append(duration)
            return jnp.zeros(())

        return function

    times = timing.interleaved([takes(1.0), takes(3.0)], repeats=4, budget_s=240.0)
    assert times == [[1.0, 3.0]] * 4 and timing.ratio(times, 1, 0) == timing.seconds(times, 1) == 3
    assert calls[-20:] == [1.0] * 10 + [3.0] * 10  # 10 of the slower one are its eighth of the budget
