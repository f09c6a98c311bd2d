"""Least squares: shapes, masks, weights and dtypes in one call, `fit`, and the routes through a system.

A system is given by its rows A [N, d] (keys, perhaps weighted or centred) and a ridge. With the primal matrix
G = A'A + alpha I [d, d] and the dual matrix D = AA' + alpha I [N, N],

    Q G^-1 A'B = Q A' D^-1 B

for every alpha > 0; for alpha = 0 both mean Q pinv(A) B. A solve can be made against the rows', the queries' or the
targets' side, whichever has fewer columns. Each order of products is a `Plan`; the cheapest runs.
"""

import math
import numbers
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from kvq_jax.names import choose
from kvq_jax.ops import linalg, masks
from kvq_jax.ops.linalg import cross, left, matmul, solve, transpose
from kvq_jax.ops.masks import Mask, Scalar, per_batch

# Name -> alpha -> (factor on the Gram matrix, ridge): the system is factor * AA' + ridge * I.
FORMS: dict[str, Callable] = {
    "ridge": lambda alpha: (1.0, alpha),  # Garnelo and Czarnecki 2023 (arXiv 2305.10203), Section 3
    "informer": lambda alpha: (1.0 - alpha, alpha),  # Appendix 8
}
ROUTES = ("auto", "primal", "dual", "pinv")


def fit(
    run: Callable[..., Array],
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    sample_weight: Array | None = None,
    scalars: Sequence[Scalar | str] = (),
    matrices: Sequence[Array] = (),
) -> Array:
    """run(query, key, value, weight, *scalars, *matrices), all in the dtype to compute in and shaped to broadcast.

    Under a mask [..., M, N] every query has a system of its own: M becomes a leading dimension of all arguments of
    `run`.

    `weight` [..., N, 1] is the sample weight, 0 for masked keys, or None where there are neither weights nor a mask.
    Keys and values masked for all queries are zeros. The output is what `run` returns, in the inputs' dtype; zeros for
    a query without keys. Raises ValueError if shapes do not fit.

    Args:
        run: returns [..., rows, k], one row for each query, or any number of rows where one system serves all queries.
        sample_weight: [..., N], >= 0; None: ones.
        scalars: numbers and names, given to `run` as they are, and arrays [...], given as [..., 1, 1].
        matrices: arrays [..., a, b] whose leading dimensions are those of the keys.
    """
    pairs, batch = masks.resolve(query, key, value, mask), masks.output_shape(query, key, value)[:-2]
    out, compute = linalg.dtypes(query, key, value)
    query, key, value = (jnp.asarray(x, compute) for x in (query, key, value))
    if sample_weight is not None:
        if jnp.shape(sample_weight)[-1:] != key.shape[-2:-1]:
            raise ValueError(f"expected sample_weight [..., {key.shape[-2]}], got {jnp.shape(sample_weight)}")
        masks.check_leading("sample_weight", jnp.shape(sample_weight)[:-1], batch)
    for matrix in matrices:
        masks.check_leading("a matrix", jnp.shape(matrix)[:-2], batch)
    if key.shape[-2] == 0:  # one absent key, so that `run` needs no case for none
        key, value = (jnp.zeros((*x.shape[:-2], 1, x.shape[-1]), compute) for x in (key, value))
        pairs, sample_weight = jnp.zeros((1, 1), bool), None
    key, value, spoilt = masks.absent(key, value, pairs)
    scalars = [per_batch(x, compute, batch) for x in scalars]
    matrices = [jnp.asarray(x, compute) for x in matrices]
    weight = None if pairs is None else pairs.astype(compute)
    if sample_weight is not None:
        weight = jnp.asarray(sample_weight, compute)[..., None, :]
        weight = weight if pairs is None else jnp.where(pairs, weight, 0)
    if pairs is None or pairs.shape[-2] == 1:
        output = run(query, key, value, weight if weight is None else transpose(weight), *scalars, *matrices)
    else:
        scalars = [x[..., None] if isinstance(x, Array) else x for x in scalars]
        each = query[..., :, None, :], key[..., None, :, :], value[..., None, :, :], weight[..., None]
        output = run(*each, *scalars, *(x[..., None, :, :] for x in matrices))[..., 0, :]
    if pairs is not None:
        output = jnp.where(pairs.any(-1, keepdims=True), output, 0)
    return masks.owe(output, spoilt).astype(out)


def checked_route(alpha: Scalar, route: str = "auto", form: str = "ridge") -> str:
    """The route to take; for the number 0 'pinv', whatever was asked for.

    Raises ValueError for an unknown route or form, a number alpha out of range, and 'pinv' with an alpha other than 0.
    """
    choose(dict.fromkeys(ROUTES), route, "route")
    choose(dict.fromkeys(FORMS), form, "form")
    if isinstance(alpha, numbers.Real):
        if not alpha >= 0 or (form == "informer" and alpha > 1):
            wanted = "in [0, 1]" if form == "informer" else ">= 0"
            raise ValueError(f"alpha must be {wanted} for form {form!r}, got {alpha}")
        if alpha == 0:
            return "pinv"
    if route == "pinv":
        raise ValueError("route 'pinv' is the solution for alpha = 0: pass alpha=0")
    return route


def in_unit(unit: str, rows: Array, *others: Array) -> tuple[Array, ...]:
    """Rows A [..., N, d] and other arrays, divided so that an alpha in `unit` becomes a plain number.

    Unit 'trace' divides by the square root of the mean eigenvalue of A'A. With targets B divided by the same, G^-1 A'B
    is that of A and B with an alpha so many times as large. Raises ValueError for an unknown unit.
    """
    if choose(UNITS, unit, "unit of alpha") is None:
        return rows, *others
    length = jnp.sqrt(UNITS[unit](rows))
    return tuple(x / length for x in (rows, *others))


def mean_eigenvalue(rows: Array) -> Array:
    """tr(A'A) / d of rows A [..., N, d] -> [..., 1, 1]; 1 where all are zeros."""
    return positive((rows**2).sum((-2, -1), keepdims=True) / rows.shape[-1])


# Name of a unit of alpha -> rows A -> what it is; None: 1.
UNITS: dict[str, Callable[[Array], Array] | None] = {"one": None, "trace": mean_eigenvalue}


def predict(query: Array, rows: Array, targets: Array, alpha: Scalar, route: str, form: str = "ridge") -> Array:
    """Q G^-1 A'B for query Q [..., M, d], rows A [..., N, d], targets B [..., N, k] -> [..., M, k]."""
    return _run(PREDICTIONS, query, rows, targets, alpha, route, form)


def weights(rows: Array, targets: Array, alpha: Scalar, route: str, form: str = "ridge") -> Array:
    """G^-1 A'B for rows A [..., N, d], targets B [..., N, k] -> [..., d, k]."""
    return _run(WEIGHTS, rows, rows, targets, alpha, route, form)


def map_of(query: Array, rows: Array, alpha: Scalar, route: str, form: str = "ridge") -> Array:
    """Q G^-1 A' for query Q [..., M, d], rows A [..., N, d] -> [..., M, N]."""
    return _run(MAPS, query, rows, rows, alpha, route, form)


def inverse_times(rows: Array, right: Array, alpha: Scalar, route: str) -> Array:
    """G^-1 R for any R [..., d, k], also one outside the span of the rows -> [..., d, k].

    The dual route is Woodbury's identity, (R - A'(AA' + alpha I)^-1 A R) / alpha. Its relative error grows as lambda /
    alpha for the part of R along an eigenvector of A'A with eigenvalue lambda, so use `weights` where R is A'B.
    """
    if route == "pinv":
        inverse = linalg.pinv(rows)
        return matmul(inverse, cross(inverse, right))
    if route == "auto":
        route = "primal" if rows.shape[-1] <= rows.shape[-2] else "dual"
    if route == "primal":
        return solve(system(left(rows), alpha), right)
    return (right - cross(rows, solve(system(rows, alpha), matmul(rows, right)))) / alpha


def system(rows: Array, alpha: Scalar, form: str = "ridge") -> Array:
    """rows rows' + alpha I, or what `form` makes of it: [..., n, m] -> [..., n, n]."""
    return regularised(linalg.gram(rows), alpha, form)


def regularised(gram: Array, alpha: Scalar, form: str = "ridge") -> Array:
    """factor * gram + ridge * I for a Gram matrix [..., n, n], with both numbers from FORMS."""
    factor, ridge = FORMS[form](alpha)
    gram = gram if isinstance(factor, numbers.Real) and factor == 1 else factor * gram
    return gram + ridge * jnp.eye(gram.shape[-1], dtype=gram.dtype)


def weighted(weight: Array | None, *rows: Array) -> tuple[Array, ...]:
    """sqrt(W) times each of the rows [..., N, *], for weighted least squares; as they are where weight is None."""
    return rows if weight is None else tuple(root(weight) * x for x in rows)


def root(weight: Array | None) -> Array | float:
    """Square root of weights; 1 for None. Its derivative is taken as 0 where a weight is 0: masks have no gradient."""
    if weight is None:
        return 1.0
    return jnp.where(weight > 0, jnp.sqrt(jnp.where(weight > 0, weight, 1)), 0)


def mean(x: Array, weight: Array | None) -> Array:
    """Weighted mean of rows [..., N, d] -> [..., 1, d], whatever those without weight hold; 0 if no row has weight."""
    if weight is None:
        return x.mean(-2, keepdims=True)
    return (weight * jnp.where(weight > 0, x, 0)).sum(-2, keepdims=True) / positive(weight.sum(-2, keepdims=True))


def positive(x: Array) -> Array:
    """x where it is positive, else 1: a divisor for sums that are 0 as well."""
    return jnp.where(x > 0, x, 1)


class Plan(NamedTuple):
    """One order of products."""

    route: str  # 'primal', 'dual' or 'pinv'
    products: str  # sizes that each multiplies: "ndk ddk" for n d k + d d k multiply-adds
    output: Callable[..., Array]  # (query, rows, targets, x -> the inverse of the route's system times x)

    def cost(self, m: int, n: int, d: int, k: int) -> float:
        """Multiply-adds for M, N, d, k: half of a Gram matrix [size, size], its Cholesky factor, and the products."""
        size, other = {"primal": (d, n), "dual": (n, d), "pinv": (0, 0)}[self.route]
        total = size * size * other / 2 + size**3 / 6
        for product in self.products.split():
            total += math.prod({"m": m, "n": n, "d": d, "k": k}[letter] for letter in product)
        return total

    def run(self, query: Array, rows: Array, targets: Array, system: Callable[[Array], Array]) -> Array:
        """The output, where system(rows) is the regularised Gram matrix [..., n, n] of rows [..., n, m]."""

        def inverse(x):
            return solve(system(left(rows) if self.route == "primal" else rows), x)

        return self.output(query, rows, targets, inverse)


def cheapest(plans: tuple[Plan, ...], route: str, m: int, n: int, d: int, k: int) -> Plan:
    """The plan of a route ('auto': primal or dual) with the fewest multiply-adds."""
    routes = ("primal", "dual") if route == "auto" else (route,)
    return min((p for p in plans if p.route in routes), key=lambda p: p.cost(m, n, d, k))


def _run(plans: tuple[Plan, ...], query, rows, targets, alpha, route, form) -> Array:
    plan = cheapest(plans, route, *query.shape[-2:-1], *rows.shape[-2:], targets.shape[-1])
    return plan.run(query, rows, targets, lambda x: system(x, alpha, form))


# G^-1 A'B and its two factors in either order. A solve against c columns costs n n c.
WEIGHTS = (
    Plan("primal", "ndk ddk", lambda q, a, b, inverse: inverse(cross(a, b))),
    Plan("dual", "nnk ndk", lambda q, a, b, inverse: cross(a, inverse(b))),
    Plan("pinv", "", lambda q, a, b, inverse: matmul(linalg.pinv(a), b)),
)

PREDICTIONS = (
    # Q [G^-1 (A'B)]
    Plan("primal", "ndk ddk mdk", lambda q, a, b, inverse: matmul(q, inverse(cross(a, b)))),
    # [G^-1 Q']' (A'B): fewer queries than columns of targets
    Plan("primal", "ddm ndk mdk", lambda q, a, b, inverse: matmul(left(inverse(transpose(q))), cross(a, b))),
    # [G^-1 Q']' A' B: few queries, more columns of targets than rows
    Plan(
        "primal", "ddm mnd mnk", lambda q, a, b, inverse: matmul(matmul(left(inverse(transpose(q))), transpose(a)), b)
    ),
    # Q (A' [D^-1 B])
    Plan("dual", "nnk ndk mdk", lambda q, a, b, inverse: matmul(q, cross(a, inverse(b)))),
    # (Q A') [D^-1 B]
    Plan("dual", "nnk mnd mnk", lambda q, a, b, inverse: matmul(matmul(q, transpose(a)), inverse(b))),
    # [D^-1 (A Q')]' B
    Plan("dual", "mnd nnm mnk", lambda q, a, b, inverse: matmul(left(inverse(matmul(a, transpose(q)))), b)),
    Plan("pinv", "ndk mdk", lambda q, a, b, inverse: matmul(q, matmul(linalg.pinv(a), b))),
    Plan("pinv", "mdn mnk", lambda q, a, b, inverse: matmul(matmul(q, linalg.pinv(a)), b)),
)

# Q G^-1 A', without targets.
MAPS = (
    # [G^-1 Q']' A'
    Plan("primal", "ddm mnd", lambda q, a, b, inverse: matmul(left(inverse(transpose(q))), transpose(a))),
    # Q [G^-1 A']
    Plan("primal", "ddn mnd", lambda q, a, b, inverse: matmul(q, inverse(transpose(a)))),
    # [D^-1 (A Q')]'
    Plan("dual", "nnm mnd", lambda q, a, b, inverse: transpose(inverse(matmul(a, transpose(q))))),
    # Q [D^-1 A]'
    Plan("dual", "nnd mnd", lambda q, a, b, inverse: matmul(q, transpose(inverse(a)))),
    Plan("pinv", "", lambda q, a, b, inverse: matmul(q, linalg.pinv(a))),
)
