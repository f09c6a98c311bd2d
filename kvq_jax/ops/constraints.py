"""Least squares with linear constraints on the weights: C'w >= c or C'w = c.

Garnelo and Czarnecki 2023, Section 3.2, after Theil and van de Panne 1960. For every column v of V the weights solve

    min_w |K w - v|^2 + alpha |w|^2   subject to   C'w >= c,      C [d, p], c [p].

Constraints that are met with equality are active. With G = K'K + alpha I, w* = G^-1 K'v, Z = G^-1 and the active C_a,
c_a:

    w = w* + Z C_a lambda,   (C_a'Z C_a) lambda = c_a - C_a'w*

which is the paper's w* - Z C_a (C_a'Z C_a)^-1 (C_a'w* - c_a). Methods differ in how they find the active set.
Derivatives are those of these equations for the final set, exact unless a constraint is on the verge of becoming
active.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from kvq_jax.names import choose
from kvq_jax.ops import least_squares, linalg
from kvq_jax.ops.linalg import matmul, transpose
from kvq_jax.ops.masks import Mask, Scalar

# Active set -> (multipliers, 0 where not active; violation c - C'w), all [..., k, p].
Conditions = Callable[[Array], tuple[Array, Array]]


def constrained_intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    constraints: Array | None = None,
    bounds: Array | None = None,
    method: str = "exact",
    equality: Array | None = None,
    route: str = "auto",
) -> Array:
    """Q w for the least-squares w with C'w >= c: Garnelo and Czarnecki 2023, Section 3.2, last paragraph.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k]; NaN in a column
    whose constraints cannot be met. Each column of V has its own w and active set, and under a mask [..., M, N] each
    query its own regression.

    Args:
        alpha: a number >= 0, or an array > 0. alpha = 0 needs keys of full column rank; otherwise Z does not exist.
        constraints: C [d, p], or [..., d, p] with the leading dimensions of the keys. None: the unit matrix.
        bounds: c [p], or [..., p, k] for bounds that differ between columns. None: zeros. With both None, w >= 0.
        method: one of METHODS:
            'exact': the solution of the quadratic program;
            'one_shot': the paper's: constraints that w* violates become equalities. Others that w* satisfied may become
                violated by that, and w need not be optimal. Equal to 'exact' for p = 1;
            'equality': all of them are equalities.
        equality: [p], True for constraints that are equalities whatever the method.
        route: 'primal', 'dual', or 'auto' for the cheaper. With w >= 0 alone a dual step solves N equations, else
            always p.
    """
    return _fit(matmul, query, key, value, mask, alpha, constraints, bounds, method, equality, route)


def constrained_weights(
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    constraints: Array | None = None,
    bounds: Array | None = None,
    method: str = "exact",
    equality: Array | None = None,
    route: str = "auto",
) -> Array:
    """The w of `constrained_intention` [..., d, k], with its options and a mask [..., N].

    Zeros without keys, also where zeros do not meet the constraints.
    """
    nobody = jnp.zeros((1, jnp.shape(key)[-1]), key.dtype)
    return _fit(lambda query, w: w, nobody, key, value, mask, alpha, constraints, bounds, method, equality, route)


def _fit(use, query, key, value, mask, alpha, constraints, bounds, method, equality, route) -> Array:
    """use(query, w)."""
    find_active = choose(METHODS, method, "method")
    (n, d), k = jnp.shape(key)[-2:], jnp.shape(value)[-1]
    few = (route == "dual" or route == "auto" and n < d) and least_squares.checked_route(alpha, route) != "pinv"
    if few and method == "exact" and constraints is bounds is equality is None:
        run = lambda query, *rest: use(query, _non_negative(*rest))
        return least_squares.fit(run, query, key, value, mask, scalars=(alpha,))
    constraints = jnp.eye(d) if constraints is None else jnp.asarray(constraints)
    p = constraints.shape[-1]
    bounds = jnp.zeros(p) if bounds is None else jnp.asarray(bounds)
    bounds = bounds[:, None] if bounds.ndim == 1 else bounds
    if constraints.ndim < 2 or constraints.shape[-2] != d or bounds.shape[-2:] not in ((p, 1), (p, k)):
        raise ValueError(
            f"expected constraints [..., {d}, p] and bounds [p] or [..., p, {k}], "
            f"got {constraints.shape} and {bounds.shape}"
        )
    if equality is not None and jnp.shape(equality) != (p,):
        raise ValueError(f"expected equality [{p}], got {jnp.shape(equality)}")
    run = lambda query, *rest: use(query, _weights(*rest, find_active, equality, route))
    return least_squares.fit(run, query, key, value, mask, scalars=(alpha,), matrices=(constraints, bounds))


def _non_negative(key, value, keep, alpha) -> Array:
    """w >= 0 [..., d, k] from systems of N equations.

    With K_f the columns of K whose constraint is not active,

        w_f = K_f'u,   w_a = 0,   lambda_a = -alpha K_a'u,   (K_f K_f' + alpha I) u = v.
    """
    rows, targets = least_squares.root(keep) * key, transpose(least_squares.root(keep) * value)[..., None]
    n, d = rows.shape[-2:]
    products = transpose(rows)[..., :, None] * transpose(rows)[..., None, :]  # [..., d, N, N]
    ridge = (alpha[..., None] if isinstance(alpha, Array) else alpha) * jnp.eye(n, dtype=rows.dtype)
    unit = lax.rsqrt((rows**2).sum(-2, keepdims=True) + alpha)

    def pull(active):
        """K'u, [..., k, d]."""
        grams = matmul((~active).astype(rows.dtype), products.reshape(*products.shape[:-2], n * n))
        u = linalg.solve(grams.reshape(*grams.shape[:-1], n, n) + ridge, targets)[..., 0]
        return matmul(u, rows)

    def conditions(active):
        pulled = pull(active)
        return jnp.where(active, -alpha * pulled, 0) * unit, jnp.where(active, 0, -pulled) / unit

    active = jnp.zeros((*jnp.broadcast_shapes(rows.shape[:-2], targets.shape[:-3]), targets.shape[-3], d), bool)
    gap = conditions(active)[1]
    active, wanted = _optimal(conditions, gap, active)
    solution = jnp.where(active, 0, pull(active))
    return transpose(jnp.where(_met(-solution / unit, gap, active, wanted), solution, jnp.nan))


def _weights(key, value, keep, alpha, constraints, bounds, find_active, equality, route) -> Array:
    """w [..., d, k]."""
    route = least_squares.checked_route(alpha, route)
    rows = least_squares.root(keep) * key
    free = least_squares.weights(rows, least_squares.root(keep) * value, alpha, route)
    if constraints.shape[-1] == 0:
        return free
    directions = least_squares.inverse_times(rows, constraints, alpha, route)  # Z C
    system = matmul(transpose(constraints), directions)
    gap = jnp.swapaxes(bounds - matmul(transpose(constraints), free), -1, -2)  # c - C'w*, [..., k, p]
    # In units where C'ZC has a unit diagonal one tolerance fits all constraints.
    unit = jnp.sqrt(least_squares.positive(jnp.diagonal(system, axis1=-2, axis2=-1)))  # [..., p]
    system = ((system + transpose(system)) / (2 * unit[..., :, None] * unit[..., None, :]))[..., None, :, :]
    gap = gap / unit[..., None, :]
    equality = jnp.broadcast_to(False if equality is None else equality, gap.shape)

    def conditions(active):
        multipliers = _multipliers(system, gap, active)
        return multipliers, gap - _times(system, multipliers)

    active, wanted = find_active(conditions, gap, equality)
    multipliers, violation = conditions(active)
    solution = free + matmul(directions, jnp.swapaxes(multipliers / unit[..., None, :], -1, -2))
    return jnp.where(transpose(_met(violation, gap, active, wanted)), solution, jnp.nan)


def _met(violation: Array, gap: Array, active: Array, wanted: Array) -> Array:
    """Whether a column meets its constraints, [..., k, 1]."""
    missed = jnp.where(active, jnp.abs(violation), jnp.where(wanted, violation, 0)).max(-1, keepdims=True)
    return missed <= jnp.sqrt(jnp.finfo(gap.dtype).eps) * (1 + jnp.abs(gap).max(-1, keepdims=True))


def _multipliers(system: Array, gap: Array, active: Array) -> Array:
    """lambda [..., p] with system_aa lambda_a = gap_a for the active constraints a, and 0 for the others."""
    p = gap.shape[-1]
    both = active[..., :, None] & active[..., None, :]
    # The jitter keeps the factorisation of active constraints that repeat each other finite.
    diagonal = jnp.where(active, p * jnp.finfo(gap.dtype).eps, 1)
    matrix = jnp.where(both, system, 0) + diagonal[..., None] * jnp.eye(p, dtype=gap.dtype)
    return linalg.solve(matrix, jnp.where(active, gap, 0)[..., None])[..., 0]


def _times(system: Array, vector: Array) -> Array:
    return matmul(system, vector[..., None])[..., 0]


def _optimal(conditions: Conditions, gap: Array, equality: Array) -> tuple[Array, Array]:
    """The active set of the optimum of the dual.

    The dual is min_lambda lambda'S lambda / 2 - gap'lambda with lambda >= 0, free for equalities. It has p variables
    whatever d is. Most columns are done after a few exchanges; a method that always ends does the others.
    """
    gap, constant = lax.stop_gradient(gap), lambda active: lax.stop_gradient(conditions(active))
    tolerance = 10 * gap.shape[-1] * jnp.finfo(gap.dtype).eps * (1 + jnp.abs(gap).max(-1, keepdims=True))
    active = _stepped(constant, gap, equality, tolerance, *_exchanged(constant, gap, equality, tolerance))
    return active, jnp.ones_like(active)


def _exchanged(conditions: Conditions, gap: Array, equality: Array, tolerance: Array) -> tuple[Array, Array]:
    """(active set, whether it is the optimum's [..., 1]) by block principal pivoting.

    Portugal, Judice and Vicente 1994; Kim and Park 2011, Section 4. Active constraints with a negative multiplier and
    inactive ones that are violated change sides, all at once. If they are no fewer than ever before, only those change
    that are at least half as wrong as the worst of their side. The published rule, one at a time, always ends; this one
    may not, but takes far fewer exchanges, and all columns wait for the last.
    """
    p = gap.shape[-1]

    def unfinished(state):
        step, done, *_ = state
        return (step <= p) & ~done.all()

    def exchange(state):
        step, done, active, fewest = state
        multipliers, violation = conditions(active)
        wrong = jnp.where(active, ~equality & (multipliers < 0), violation > tolerance)
        number = wrong.sum(-1, keepdims=True)
        amount = jnp.where(wrong, jnp.where(active, -multipliers, violation), 0)
        worst = [jnp.where(side, amount, 0).max(-1, keepdims=True) for side in (active, ~active)]
        chosen = wrong & ((number < fewest) | (amount >= jnp.where(active, *worst) / 2))
        done = done | (number == 0)
        return step + 1, done, jnp.where(done, active, active ^ chosen), jnp.minimum(number, fewest)

    done = jnp.zeros((*gap.shape[:-1], 1), bool)
    start = (0, done, equality | (gap > 0), jnp.full(done.shape, p + 1))
    _, done, active, _ = lax.while_loop(unfinished, exchange, start)
    return active, done


def _stepped(
    conditions: Conditions, gap: Array, equality: Array, tolerance: Array, active: Array, done: Array
) -> Array:
    """The active set by the method of Lawson and Hanson 1974, Section 23.3; where `done`, `active` as it is.

    A step solves for the active multipliers and activates the constraint that is violated most. If a multiplier would
    become negative, the step goes only as far as the first zero and deactivates that constraint.
    """
    p = gap.shape[-1]

    def unfinished(state):
        step, done, *_ = state
        return (step < 10 * (p + 1)) & ~done.all()

    def advance(state):
        step, done, active, barred, current = state
        target, violation = conditions(active)
        negative = active & ~equality & (target <= 0)
        stays = ~negative.any(-1, keepdims=True)
        wanted = ~active & ~barred & (violation > tolerance)
        worst = jnp.arange(p) == jnp.argmax(jnp.where(wanted, violation, -jnp.inf), -1, keepdims=True)
        fraction = jnp.where(negative, current / jnp.where(current > target, current - target, 1), jnp.inf)
        first = fraction.min(-1, keepdims=True)
        dropped = negative & (fraction <= first)
        moved = jnp.where(dropped, 0, current + jnp.where(stays, 0, first) * (target - current))
        # Only rounding makes a multiplier negative as soon as it is activated; it would be chosen for ever.
        barred = barred | (~stays & dropped & (current == 0))
        grown = jnp.where(stays, active | (worst & wanted), active & ~dropped)
        active, current = jnp.where(done, active, grown), jnp.where(done, current, jnp.where(stays, target, moved))
        return step + 1, done | (stays & ~wanted.any(-1, keepdims=True)), active, barred, current

    start = (0, done, jnp.where(done, active, equality), jnp.zeros_like(equality), jnp.zeros_like(gap))
    return lax.while_loop(unfinished, advance, start)[2]


# Name -> (conditions, gap, equality) -> (active set, which constraints the solution must satisfy).
METHODS = {
    "exact": _optimal,
    "one_shot": lambda conditions, gap, equality: (equality | (gap > 0), equality),
    "equality": lambda conditions, gap, equality: (jnp.ones_like(equality), jnp.ones_like(equality)),
}
