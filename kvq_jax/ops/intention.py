"""Intention: attention's least-squares sibling (Garnelo and Czarnecki 2023, arXiv 2305.10203), with sigma-Intention, the
Informer forms and the regression weights w(K, V) as an output. Rows are points: K [N, d], V [N, k], Q [M, d].

    primal:  Q (K'K + alpha I_d)^-1 K'V         dual:  Q K' (KK' + alpha I_N)^-1 V

The two (Sections 3 and 3.1) are equal for every alpha > 0, and for alpha = 0 both mean Q pinv(K) V. The systems are solved in
float32 at least, whatever the inputs' dtype, with all products at full precision; the output has the inputs' dtype. Masks are
those of kvq_jax.ops.masks; under a mask [..., M, N] every query has a regression of its own.
"""

import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp

from kvq_jax.ops import linalg, masks, routes

Array = jax.Array

# (factor on the Gram matrix, ridge) for the system factor * KK' + ridge * I.
FORMS: dict[str, Callable] = {
    "ridge": lambda alpha: (1.0, alpha),  # Section 3
    "informer": lambda alpha: (1.0 - alpha, alpha),  # Appendix 8
}
ROUTES = ("auto", "primal", "dual", "pinv")


def intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    alpha: float | Array = 1e-3,
    route: str = "auto",
    form: str = "ridge",
) -> Array:
    """Q (K'K + alpha I)^-1 K'V = Q K' (KK' + alpha I)^-1 V: Garnelo and Czarnecki 2023, Section 2.

    Args:
        query: [..., M, d].
        key: [..., N, d].
        value: [..., N, k].
        mask: [..., N], or [..., M, N] for one regression per query (memory M times that of the keys); True = take part.
        alpha: a number >= 0 (0: Moore-Penrose, whatever the route), or an array > 0, which may be learnt and broadcasts
            against the leading dimensions ([H]: per head).
        route: 'primal' (a d x d system), 'dual' (N x N), 'pinv' (singular values; the solution for alpha = 0 only), or
            'auto': primal or dual, whichever has fewer products for these shapes.
        form: 'ridge', or 'informer': (1 - alpha) KK' + alpha I, with alpha in [0, 1] (Appendix 8).

    Returns:
        [..., M, k].

    Raises:
        ValueError: if shapes do not fit, for an unknown route or form, for a number alpha that is out of range, and for route
            'pinv' with any other alpha than 0.
    """
    pairs = masks.resolve(query, key, value, mask)
    route = checked_route(alpha, route, form)
    return _predict(routes.PREDICTIONS, query, key, value, pairs, alpha, route, form)


def sigma_intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    alpha: float | Array = 1e-3,
    route: str = "auto",
    form: str = "ridge",
) -> Array:
    """softmax_n(Q (K'K + alpha I)^-1 K') V = softmax_n(Q K' (KK' + alpha I)^-1) V: Garnelo and Czarnecki 2023, Section 2.

    The softmax runs over the N keys, with no further temperature. Arguments, routes and errors are those of `intention`.

    Args:
        query: [..., M, d].
        key: [..., N, d].
        value: [..., N, k].
        mask: [..., N] or [..., M, N], True = take part.
        alpha: a number >= 0, or an array > 0 that broadcasts against the leading dimensions.
        route: 'auto', 'primal', 'dual' or 'pinv'.
        form: 'ridge' or 'informer'.

    Returns:
        [..., M, k].

    Raises:
        ValueError: as `intention`.
    """
    pairs = masks.resolve(query, key, value, mask)
    route = checked_route(alpha, route, form)
    return _predict(routes.MAPS, query, key, value, pairs, alpha, route, form)


def intention_weights(
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    alpha: float | Array = 1e-3,
    route: str = "auto",
    form: str = "ridge",
) -> Array:
    """w(K, V) = (K'K + alpha I)^-1 K'V, of a size that does not depend on N: Garnelo and Czarnecki 2023, Section 3.

    The paper writes this output as "E_Q := 0". `intention` is query @ w.

    Args:
        key: [..., N, d].
        value: [..., N, k].
        mask: [..., N], True = take part.
        alpha: a number >= 0, or an array > 0 that broadcasts against the leading dimensions.
        route: 'auto', 'primal', 'dual' or 'pinv'.
        form: 'ridge' or 'informer'.

    Returns:
        [..., d, k].

    Raises:
        ValueError: as `intention`.
    """
    nobody = jnp.zeros((1, jnp.shape(key)[-1]), key.dtype)
    pairs = masks.resolve(nobody, key, value, mask)
    return _solve(routes.WEIGHTS, nobody, key, value, pairs, alpha, checked_route(alpha, route, form), form)


def informer(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    alpha: float | Array = 0.5,
    route: str = "auto",
    form: str = "informer",
) -> Array:
    """Q K' [(1 - alpha) KK' + alpha I]^-1 V: `intention` as the Informer uses it (Garnelo and Czarnecki 2023, Appendix 8).

    alpha is sigmoid(theta) there, with theta = 0 at the start: hence 0.5. Shapes, options and errors: see `intention`.
    """
    return intention(query, key, value, mask=mask, alpha=alpha, route=route, form=form)


def sigma_informer(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    alpha: float | Array = 0.5,
    route: str = "auto",
    form: str = "informer",
) -> Array:
    """softmax_n(Q K' [(1 - alpha) KK' + alpha I]^-1) V: the sigma-Informer (Garnelo and Czarnecki 2023, Appendix 8).

    Shapes, options and errors: see `sigma_intention`.
    """
    return sigma_intention(query, key, value, mask=mask, alpha=alpha, route=route, form=form)


def checked_route(alpha: float | Array, route: str, form: str) -> str:
    """The route to take; alpha = 0 leaves only one."""
    if route not in ROUTES:
        raise ValueError(f"unknown route {route!r}: expected one of {', '.join(ROUTES)}")
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}: expected one of {', '.join(FORMS)}")
    if isinstance(alpha, numbers.Real):
        if not alpha >= 0 or (form == "informer" and alpha > 1):
            raise ValueError(
                f"alpha must be {'in [0, 1]' if form == 'informer' else '>= 0'} for form {form!r}, got {alpha}"
            )
        if alpha == 0:
            return "pinv"
    if route == "pinv":
        raise ValueError("route 'pinv' is the solution for alpha = 0: pass alpha=0")
    return route


def _predict(plans: tuple[routes.Plan, ...], query, key, value, mask, alpha, route, form) -> Array:
    """One system for all queries, or under a mask [..., M, N] one per query: M becomes a leading dimension."""
    if mask is None or mask.shape[-2] == 1:
        return _solve(plans, query, key, value, mask, alpha, route, form)
    key, value, spoilt = masks.absent(key, value, mask)
    alpha = alpha if isinstance(alpha, numbers.Real) else jnp.asarray(alpha)[..., None]
    out = _solve(
        plans,
        query[..., :, None, :],
        key[..., None, :, :],
        value[..., None, :, :],
        mask[..., :, None, :],
        alpha,
        route,
        form,
    )
    return masks.owe(out[..., 0, :], spoilt)


def _solve(plans: tuple[routes.Plan, ...], query, key, value, mask, alpha, route, form) -> Array:
    """Runs the cheapest plan of a route. mask is [..., 1, N] or None."""
    out, compute = linalg.dtypes(query, key, value)
    query, key, value = (jnp.asarray(x, compute) for x in (query, key, value))
    key, value, _ = masks.absent(key, value, mask)
    m, d, n, k = *query.shape[-2:], *value.shape[-2:]
    if n == 0:
        rows = d if plans is routes.WEIGHTS else m
        return jnp.zeros((*masks.output_shape(query, key, value)[:-2], rows, k), out)
    alpha = alpha if isinstance(alpha, numbers.Real) else jnp.asarray(alpha, compute)[..., None, None]
    factor, ridge = FORMS[form](alpha)

    def system(rows):
        gram = linalg.gram(rows)
        gram = gram if isinstance(factor, numbers.Real) and factor == 1 else factor * gram
        return gram + ridge * jnp.eye(rows.shape[-2], dtype=compute)

    return routes.cheapest(plans, route, m, n, d, k).run(query, key, value, mask, system).astype(out)
