"""What the least-squares operators beside Intention share: one call for shapes, masks, sample weights and dtypes, and the solves.

A system is given by its rows A [N, d] (keys, perhaps weighted or centred) and a ridge: Sigma = A'A + alpha I. Where A has fewer
rows than columns everything here works with the N x N matrix AA' + alpha I instead.
"""

import numbers
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from kvq_jax.ops import linalg, masks, routes
from kvq_jax.ops.linalg import cross, left, matmul, transpose

Array = jax.Array

ROUTES = ("auto", "primal", "dual")


def fit(
    run: Callable[..., Array],
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    *,
    sample_weight: Array | None = None,
    scalars: Sequence[float | Array | str] = (),
    matrices: Sequence[Array] = (),
) -> Array:
    """run(query, key, value, weight, *scalars, *matrices) with everything in the dtype to compute in and shaped for broadcasting.

    Under a mask [..., M, N] every query has a system of its own: M becomes a leading dimension of all arguments of `run`.

    Args:
        run: returns [..., rows, k]; its rows are the queries'.
        query: [..., M, d].
        key: [..., N, d].
        value: [..., N, k].
        mask: [..., N] or [..., M, N], True = take part.
        sample_weight: [..., N], >= 0.
        scalars: numbers and names, given to `run` as they are, and arrays [...], given as [..., 1, 1].
        matrices: arrays [..., a, b] whose leading dimensions are those of the keys.

    Returns:
        what `run` does, in the inputs' dtype; zeros for a query without keys. `weight` [..., N, 1] is the sample weight, 0 for
        masked keys, or None where there are neither weights nor a mask. Keys and values masked for all queries are zeros.

    Raises:
        ValueError: if shapes do not fit.
    """
    pairs = masks.resolve(query, key, value, mask)
    out, compute = linalg.dtypes(query, key, value)
    query, key, value = (jnp.asarray(x, compute) for x in (query, key, value))
    if key.shape[-2] == 0:  # a set of one absent key, which `run` needs not know of
        key, value = (jnp.zeros((*x.shape[:-2], 1, x.shape[-1]), compute) for x in (key, value))
        pairs, sample_weight = jnp.zeros((1, 1), bool), None
    key, value, spoilt = masks.absent(key, value, pairs)
    scalars = [x if isinstance(x, (numbers.Real, str)) else jnp.asarray(x, compute)[..., None, None] for x in scalars]
    matrices = [jnp.asarray(x, compute) for x in matrices]
    weight = None if pairs is None else pairs.astype(compute)
    if sample_weight is not None:
        if jnp.shape(sample_weight)[-1:] != key.shape[-2:-1]:
            raise ValueError(f"expected sample_weight [..., {key.shape[-2]}], got {jnp.shape(sample_weight)}")
        weight = jnp.asarray(sample_weight, compute)[..., None, :]
        weight = weight if pairs is None else jnp.where(pairs, weight, 0)
    if pairs is None or pairs.shape[-2] == 1:
        output = run(query, key, value, weight if weight is None else transpose(weight), *scalars, *matrices)
    else:
        scalars = [x[..., None] if isinstance(x, jax.Array) else x for x in scalars]
        output = run(
            query[..., :, None, :],
            key[..., None, :, :],
            value[..., None, :, :],
            weight[..., None],
            *scalars,
            *(x[..., None, :, :] for x in matrices),
        )[..., 0, :]
    if pairs is not None:
        output = jnp.where(pairs.any(-1, keepdims=True), output, 0)
    return masks.owe(output, spoilt).astype(out)


def checked_route(alpha: float | Array, route: str) -> str:
    """The route to take: 'auto', 'primal' or 'dual'; for the number 0 'pinv'.

    Raises:
        ValueError: for an unknown route, or a number alpha < 0.
    """
    if route not in ROUTES:
        raise ValueError(f"unknown route {route!r}: expected one of {', '.join(ROUTES)}")
    if isinstance(alpha, numbers.Real):
        if not alpha >= 0:
            raise ValueError(f"alpha must be >= 0, got {alpha}")
        return "pinv" if alpha == 0 else route
    return route


def predict(query: Array, rows: Array, targets: Array, alpha: float | Array, route: str) -> Array:
    """Q Sigma^-1 A'B for query Q [..., M, d], rows A [..., N, d], targets B [..., N, k] -> [..., M, k]."""
    return _run(routes.PREDICTIONS, query, rows, targets, alpha, route)


def weights(rows: Array, targets: Array, alpha: float | Array, route: str) -> Array:
    """Sigma^-1 A'B for rows A [..., N, d], targets B [..., N, k] -> [..., d, k]."""
    return _run(routes.WEIGHTS, rows, rows, targets, alpha, route)


def inverse_times(rows: Array, right: Array, alpha: float | Array, route: str) -> Array:
    """Sigma^-1 R for any R [..., d, k], also one outside the span of the rows -> [..., d, k].

    The dual route is Woodbury's identity, (R - A'(AA' + alpha I)^-1 A R) / alpha. Its relative error grows as lambda / alpha for the
    part of R along an eigenvector of A'A with eigenvalue lambda, so use `weights` where R is A'B.
    """
    if route == "pinv":
        inverse = linalg.pinv(rows)
        return matmul(inverse, cross(inverse, right))
    if route == "auto":
        route = "primal" if rows.shape[-1] <= rows.shape[-2] else "dual"
    if route == "primal":
        return linalg.solve(system(left(rows), alpha), right)
    return (right - cross(rows, linalg.solve(system(rows, alpha), matmul(rows, right)))) / alpha


def system(rows: Array, alpha: float | Array) -> Array:
    """rows rows' + alpha I, [..., n, m] -> [..., n, n]."""
    return linalg.gram(rows) + alpha * jnp.eye(rows.shape[-2], dtype=rows.dtype)


def root(weight: Array | None) -> Array | float:
    """Square root of weights; 1 for None. Its derivative is defined as 0 where a weight is 0, so that masks have none."""
    if weight is None:
        return 1.0
    return jnp.where(weight > 0, jnp.sqrt(jnp.where(weight > 0, weight, 1)), 0)


def mean(x: Array, weight: Array | None) -> Array:
    """Weighted mean of rows [..., N, d] -> [..., 1, d]; 0 if no row has weight."""
    if weight is None:
        return x.mean(-2, keepdims=True)
    return (weight * x).sum(-2, keepdims=True) / positive(weight.sum(-2, keepdims=True))


def positive(x: Array) -> Array:
    """x where it is positive, else 1: a divisor for sums that are 0 as well."""
    return jnp.where(x > 0, x, 1)


def _run(plans: tuple[routes.Plan, ...], query, rows, targets, alpha, route) -> Array:
    m, d, n, k = *query.shape[-2:], *targets.shape[-2:]
    plan = routes.cheapest(plans, route, m, n, d, k)
    return plan.run(query, rows, targets, None, lambda x: system(x, alpha))
