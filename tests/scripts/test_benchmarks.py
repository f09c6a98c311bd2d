"""Benchmarks, on sizes that take a second: what they return, not what they measure. Accuracy is no measurement, and is checked."""
import numpy as np
import pytest

from scripts.benchmarks import accuracy, ops


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_grow_no_faster_than_the_condition_number(dtype):
    conditions = (1e0, 1e3, 1e6)
    result = accuracy.errors(dtype, conditions, size=8, draws=1)
    epsilon = np.finfo(dtype).eps
    for name, row in result.items():
        for condition, error in zip(conditions, row, strict=True):
            assert error <= 100 * epsilon * condition, (name, condition)   # not NaN
        assert dtype == np.float32 or row[0] < 1e-12
    assert result["softmax"][2] < 100 * epsilon   # solves no system
    lines = accuracy.table(result, dtype, conditions).splitlines()
    assert len(lines) == 2 + len(accuracy.ROWS) and len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("condition", [1e2, 1e8])
def test_problems_have_their_condition_number(kernel, condition):
    drawn = accuracy.problem(condition, kernel, size=8, seed=0)
    gram = accuracy._gaussian(drawn.key, drawn.key, drawn.gamma) if kernel else drawn.key.T @ drawn.key
    np.testing.assert_allclose(np.linalg.cond(gram + drawn.alpha * np.eye(len(gram))), condition, rtol=0.01)


def test_the_grid_of_operators(capsys):
    cells = ops.main(points=(4, 8), widths=(4, 8), turns=1, budget_s=0)
    assert [(c.n, c.d) for c in cells] == 2 * [(4, 4), (4, 8), (8, 4), (8, 8)] and all(c.intention > 0 and c.plain > 0 for c in cells)
    printed = capsys.readouterr().out
    assert printed.count("median") == 4 and printed.count("N \\ d") == 4
