"""The routes through a least-squares system: each a product order, with its cost.

With G = K'K + alpha I [d, d] and D = KK' + alpha I [N, N], the same output is reached through either matrix, and the solve
can be made against the keys', the queries' or the values' side, whichever has fewer columns. A plan names its route, counts
its multiply-adds from static shapes, and runs. `system(rows)` is the regularised Gram matrix [..., n, n] of rows [..., n, m].
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from kvq_jax.ops import linalg
from kvq_jax.ops.linalg import cross, left, matmul, solve, transpose

Array = jax.Array


class Plan(NamedTuple):
    route: str  # 'primal', 'dual' or 'pinv'
    cost: Callable[[int, int, int, int], float]  # (M, N, d, k) -> multiply-adds
    run: Callable[..., Array]  # (query, key, value, mask, system) -> output


def cheapest(plans: tuple[Plan, ...], route: str, m: int, n: int, d: int, k: int) -> Plan:
    """The plan of a route ('auto': primal or dual) with the fewest multiply-adds."""
    routes = ("primal", "dual") if route == "auto" else (route,)
    return min((p for p in plans if p.route in routes), key=lambda p: p.cost(m, n, d, k))


def _factorise(n: int, m: int) -> float:
    """Half of a Gram matrix [n, n] of rows [n, m], and its Cholesky factor."""
    return n * n * m / 2 + n**3 / 6


# Q w and its two factors in either order. A solve against c columns costs n n c.
WEIGHTS = (
    Plan(
        "primal",
        lambda m, n, d, k: _factorise(d, n) + n * d * k + d * d * k,
        lambda q, key, v, mask, system: solve(system(left(key)), cross(key, v)),
    ),
    Plan(
        "dual",
        lambda m, n, d, k: _factorise(n, d) + n * n * k + n * d * k,
        lambda q, key, v, mask, system: cross(key, solve(system(key), v)),
    ),
    Plan("pinv", lambda m, n, d, k: 0, lambda q, key, v, mask, system: matmul(linalg.pinv(key), v)),
)

PREDICTIONS = (
    # Q [G^-1 (K'V)]
    Plan(
        "primal",
        lambda m, n, d, k: _factorise(d, n) + n * d * k + d * d * k + m * d * k,
        lambda q, key, v, mask, system: matmul(q, solve(system(left(key)), cross(key, v))),
    ),
    # [G^-1 Q']' (K'V): fewer queries than value columns
    Plan(
        "primal",
        lambda m, n, d, k: _factorise(d, n) + d * d * m + n * d * k + m * d * k,
        lambda q, key, v, mask, system: matmul(left(solve(system(left(key)), transpose(q))), cross(key, v)),
    ),
    # [G^-1 Q']' K' V: few queries, more value columns than keys
    Plan(
        "primal",
        lambda m, n, d, k: _factorise(d, n) + d * d * m + m * n * d + m * n * k,
        lambda q, key, v, mask, system: matmul(matmul(left(solve(system(left(key)), transpose(q))), transpose(key)), v),
    ),
    # Q (K' [D^-1 V])
    Plan(
        "dual",
        lambda m, n, d, k: _factorise(n, d) + n * n * k + n * d * k + m * d * k,
        lambda q, key, v, mask, system: matmul(q, cross(key, solve(system(key), v))),
    ),
    # (Q K') [D^-1 V]
    Plan(
        "dual",
        lambda m, n, d, k: _factorise(n, d) + n * n * k + m * n * d + m * n * k,
        lambda q, key, v, mask, system: matmul(matmul(q, transpose(key)), solve(system(key), v)),
    ),
    # [D^-1 (K Q')]' V
    Plan(
        "dual",
        lambda m, n, d, k: _factorise(n, d) + m * n * d + n * n * m + m * n * k,
        lambda q, key, v, mask, system: matmul(left(solve(system(key), matmul(key, transpose(q)))), v),
    ),
    Plan(
        "pinv",
        lambda m, n, d, k: n * d * k + m * d * k,
        lambda q, key, v, mask, system: matmul(q, matmul(linalg.pinv(key), v)),
    ),
    Plan(
        "pinv",
        lambda m, n, d, k: m * d * n + m * n * k,
        lambda q, key, v, mask, system: matmul(matmul(q, linalg.pinv(key)), v),
    ),
)


def _softmax(run: Callable[..., Array]) -> Callable[..., Array]:
    """softmax of the map that `run` makes, over the keys, times the values."""
    return lambda q, key, v, mask, system: matmul(jax.nn.softmax(run(q, key, system), where=mask), v)


# The map itself is [M, N], so V plays no part in the choice.
MAPS = (
    # [G^-1 Q']' K'
    Plan(
        "primal",
        lambda m, n, d, k: _factorise(d, n) + d * d * m + m * n * d,
        _softmax(lambda q, key, system: matmul(left(solve(system(left(key)), transpose(q))), transpose(key))),
    ),
    # Q [G^-1 K']
    Plan(
        "primal",
        lambda m, n, d, k: _factorise(d, n) + d * d * n + m * n * d,
        _softmax(lambda q, key, system: matmul(q, solve(system(left(key)), transpose(key)))),
    ),
    # [D^-1 (K Q')]'
    Plan(
        "dual",
        lambda m, n, d, k: _factorise(n, d) + n * n * m + m * n * d,
        _softmax(lambda q, key, system: transpose(solve(system(key), matmul(key, transpose(q))))),
    ),
    # Q [D^-1 K]'
    Plan(
        "dual",
        lambda m, n, d, k: _factorise(n, d) + n * n * d + m * n * d,
        _softmax(lambda q, key, system: matmul(q, transpose(solve(system(key), key)))),
    ),
    Plan("pinv", lambda m, n, d, k: 0, _softmax(lambda q, key, system: matmul(q, linalg.pinv(key)))),
)
