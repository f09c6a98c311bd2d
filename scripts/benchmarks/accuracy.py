"""Relative errors of the operators that solve, per route and precision, against the condition number of the system.

The keys have prescribed singular values s_i, with s_i^2 + alpha from 1 down to 1 / condition: the primal matrix K'K +
alpha I has that condition number, and the dual one, with an eigenvalue alpha more, twice as much. They have mean 0, so
that it holds of centred keys too; kernel matrices reach it by the width of the kernel. The reference solves the same
rounded inputs in NumPy: in float64, refined with residuals in `longdouble` (80 bits on x86), so that at condition 1e10
it is still right to 1e-8.

An error of about epsilon x condition is what a backward stable solve of the system leaves; beyond 1 / epsilon a
Cholesky factorisation may meet a pivot that is not positive, and gives nan. `pinv` works on K itself, of the root of
that condition number. What `nystroem_intention` has at condition 1 is the jitter of its features, 10 N epsilon.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kvq_jax.ops import OPS, chunked, intention_weights

Array = jax.Array
_Exact = np.longdouble

_CONDITIONS = (1e0, 1e2, 1e4, 1e6, 1e8, 1e10)
_SIZE, _VALUES, _DRAWS = 32, 4, 3


class Problem(NamedTuple):
    """What an operator is given; `alpha` is half of the smallest eigenvalue, 1 / condition."""

    query: np.ndarray  # [d, d]
    key: np.ndarray  # [d + 1, d]
    value: np.ndarray  # [d + 1, k]
    alpha: float
    gamma: float  # width of the Gaussian kernel; 1 for the keys of other operators


class Row(NamedTuple):
    run: Callable[..., Array]  # (query, key, value, *, alpha, gamma)
    exact: Callable[[Problem], np.ndarray]  # of a problem in longdouble
    kernel: bool = False


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right in longdouble: a float64 solve, refined."""
    solution = np.zeros_like(right)
    for _ in range(8):
        residual = right - matrix @ solution
        solution = solution + np.linalg.solve(matrix.astype(np.float64), residual.astype(np.float64))
    return solution


def _weights(p: Problem) -> np.ndarray:
    return _solve(p.key.T @ p.key + p.alpha * np.eye(p.key.shape[1]), p.key.T @ p.value)


def _ls_svm(p: Problem) -> np.ndarray:
    sign = 2 * p.value - 1
    centred = p._replace(key=p.key - p.key.mean(0), value=sign - sign.mean(0))
    return (p.query - p.key.mean(0)) @ _weights(centred) + sign.mean(0)


def _predicted(p: Problem) -> np.ndarray:
    return p.query @ _weights(p)


def _sigma_intention(p: Problem) -> np.ndarray:
    system = p.key.T @ p.key + p.alpha * np.eye(p.key.shape[1])
    return _softmax(np.sqrt(p.alpha) * p.query @ _solve(system, p.key.T)) @ p.value


def _kernel_ridge(p: Problem) -> np.ndarray:
    system = _gaussian(p.key, p.key, p.gamma) + p.alpha * np.eye(len(p.key))
    return _gaussian(p.query, p.key, p.gamma) @ _solve(system, p.value)


def _gaussian(x: np.ndarray, y: np.ndarray, gamma: float) -> np.ndarray:
    return np.exp(-gamma * ((x[:, None] - y) ** 2).sum(-1))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _ridge(op: Callable, exact: Callable[[Problem], np.ndarray], **options) -> Row:
    """An op with an alpha and linear keys."""
    return Row(lambda q, k, v, alpha, gamma: op(q, k, v, alpha=alpha, **options), exact)


def _scaled_sigma_intention(query: Array, key: Array, value: Array, *, alpha: Array, route: str) -> Array:
    """With queries times sqrt(alpha): else the map grows with the condition, and large scores have no error."""
    return OPS["sigma_intention"](jnp.sqrt(alpha) * query, key, value, alpha=alpha, route=route)


ROWS = {
    **{
        f"intention, {route}": _ridge(OPS["intention"], _predicted, route=route) for route in ("primal", "dual", "auto")
    },
    "intention, pinv (alpha=0)": Row(
        lambda q, k, v, alpha, gamma: OPS["intention"](q, k, v, alpha=0), lambda p: _predicted(p._replace(alpha=0.0))
    ),
    "intention_weights": _ridge(lambda q, k, v, alpha: intention_weights(k, v, alpha=alpha), _weights),
    "intention, streaming": _ridge(chunked("intention", 8), _predicted),
    **{f"ls_svm, {route}": _ridge(OPS["ls_svm"], _ls_svm, route=route) for route in ("primal", "dual")},
    **{
        f"sigma_intention, {route}": _ridge(_scaled_sigma_intention, _sigma_intention, route=route)
        for route in ("primal", "dual")
    },
    "kernel_intention": Row(OPS["kernel_intention"], _kernel_ridge, kernel=True),
    "nystroem_intention": Row(OPS["nystroem_intention"], _kernel_ridge, kernel=True),
    "softmax": Row(
        lambda q, k, v, alpha, gamma: OPS["softmax"](q, k, v), lambda p: _softmax(p.query @ p.key.T) @ p.value
    ),
}


def problem(condition: float, kernel: bool, size: int, seed: int) -> Problem:
    """A draw whose system has the condition number; of a kernel matrix at least 1.01: keys are not infinitely far."""
    rng = np.random.default_rng(seed)
    alpha = 0.5 / condition
    query, value = rng.normal(size=(size, size)), rng.normal(size=(size + 1, _VALUES))
    if kernel:
        key = rng.normal(size=(size + 1, size))
        return Problem(key[:size] + 0.1 * query, key, value, alpha, _width(key, alpha, max(condition, 1.01)))
    left = np.linalg.qr(np.concatenate([np.ones((size + 1, 1)), rng.normal(size=(size + 1, size))], 1))[0][:, 1:]
    right = np.linalg.qr(rng.normal(size=(size, size)))[0]
    singular = np.sqrt(np.geomspace(1, 1 / condition, size) - alpha)
    return Problem(query, left * singular @ right.T, value, alpha, 1.0)


def errors(
    dtype: np.dtype, conditions: Sequence[float] = _CONDITIONS, size: int = _SIZE, draws: int = _DRAWS
) -> dict[str, list[float]]:
    """|output - exact| / |exact|, Frobenius norms: for each of ROWS one number per condition, the worst draw."""
    result = {}
    with jax.enable_x64(True):
        problems = {
            kernel: [[problem(c, kernel, size, seed) for seed in range(draws)] for c in conditions]
            for kernel in (False, True)
        }
        for name, row in ROWS.items():
            run = jax.jit(row.run)
            result[name] = [max(_error(run, row, p, dtype) for p in drawn) for drawn in problems[row.kernel]]
    return result


def table(result: dict[str, list[float]], dtype: np.dtype, conditions: Sequence[float] = _CONDITIONS) -> str:
    """Plain columns, under a line with epsilon x condition."""
    rows = {"epsilon x condition": [float(jnp.finfo(dtype).eps) * c for c in conditions], **result}
    lines = [f"{np.dtype(dtype).name:28}" + "".join(f"{c:>9.0e}" for c in conditions)]
    return "\n".join(lines + [f"{name:28}" + "".join(f"{x:>9.0e}" for x in row) for name, row in rows.items()])


def main() -> None:
    """Prints a table for float32 and one for float64."""
    print(
        f"relative errors by condition number of the system, N = {_SIZE + 1}, d = M = {_SIZE}, k = {_VALUES}, "
        f"worst of {_DRAWS} draws, {jax.devices()[0].device_kind}"
    )
    for dtype in (np.float32, np.float64):
        print(f"\n{table(errors(dtype), dtype)}")


def _error(run: Callable, row: Row, drawn: Problem, dtype: np.dtype) -> float:
    given = [np.asarray(x, dtype) for x in drawn]
    exact = row.exact(Problem(*(x.astype(_Exact) for x in given)))
    query, key, value, alpha, gamma = given
    output = np.asarray(run(query, key, value, alpha=alpha, gamma=gamma), _Exact)
    return float(np.sqrt(((output - exact) ** 2).sum() / (exact**2).sum()))


def _width(key: np.ndarray, alpha: float, condition: float) -> float:
    """gamma at which the kernel matrix plus alpha I has a condition number, by bisection: it falls with gamma."""
    low, high = -12.0, 2.0  # powers of 10
    for _ in range(40):
        middle = (low + high) / 2
        spectrum = np.linalg.eigvalsh(_gaussian(key, key, 10**middle)) + alpha
        low, high = (middle, high) if spectrum[-1] / spectrum[0] > condition else (low, middle)
    return 10**high
