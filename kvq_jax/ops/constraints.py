"""Least squares with linear constraints on the weights: C'w >= c or C'w = c.

Garnelo and Czarnecki 2023, Section 3.2, after Theil and van de Panne 1960. For every column v of V the weights solve

    min_w |K w - v|^2 + alpha |w|^2   subject to   C'w >= c,      C [d, p], c [p].

Constraints that are met with equality are active. With G = K'K + alpha I, w* = G^-1 K'v, Z = G^-1 and the active C_a,
c_a:

    w = w* + Z C_a lambda,   (C_a'Z C_a) lambda = c_a - C_a'w*

which is the paper's w* - Z C_a (C_a'Z C_a)^-1 (C_a'w* - c_a). Methods differ in how they find the active set.
Derivatives are those of these equations for the final set, exact unless a constraint is on the verge of becoming
active. Where rounding leaves no such w in the metric of Z, the w is that nearest to w* in the unit metric.
"""

import functools
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from kvq_jax.names import choose
from kvq_jax.ops import least_squares, linalg, masks
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
    unit: str = "one",
    constraints: Array | None = None,
    bounds: Array | None = None,
    method: str = "exact",
    equality: Array | None = None,
    route: str = "auto",
) -> Array:
    """Q w for the least-squares w with C'w >= c: Garnelo and Czarnecki 2023, Section 3.2, last paragraph.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k]; NaN in a column
    whose constraints cannot be met, and only there. Each column of V has its own w and active set, and under a mask
    [..., M, N] each query its own regression.

    Args:
        alpha: a number >= 0, or an array > 0. alpha = 0 needs keys of full column rank; otherwise Z does not exist.
        unit: of alpha, as in `intention`.
        constraints: C [d, p], or [..., d, p] with the leading dimensions of the keys. None: the unit matrix.
        bounds: c [p], or [..., p, k] for bounds that differ between columns. None: zeros. With both None, w >= 0.
        method: one of METHODS:
            'exact': the solution of the quadratic program;
            'one_shot': the paper's: constraints that w* violates become equalities. Others that w* satisfied may become
                violated by that, and w need not be optimal. Equal to 'exact' for p = 1;
            'equality': all of them are equalities.
        equality: [p], True for constraints that are equalities whatever the method.
        route: 'primal', 'dual', or 'auto' for the cheaper. With w >= 0 alone a step solves N equations (dual)
            or d, else always p.
    """
    return _fit(matmul, query, key, value, mask, alpha, unit, constraints, bounds, method, equality, route)


def constrained_weights(
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    unit: str = "one",
    constraints: Array | None = None,
    bounds: Array | None = None,
    method: str = "exact",
    equality: Array | None = None,
    route: str = "auto",
) -> Array:
    """The w of `constrained_intention` [..., d, k], with its options and a mask [..., N].

    Zeros without keys, also where zeros do not meet the constraints.
    """
    nobody = jnp.zeros((1, *jnp.shape(key)[-1:]), jnp.result_type(key))
    return _fit(lambda query, w: w, nobody, key, value, mask, alpha, unit, constraints, bounds, method, equality, route)


def _fit(use, query, key, value, mask, alpha, unit, constraints, bounds, method, equality, route) -> Array:
    """use(query, w)."""
    find_active = choose(METHODS, method, "method")
    masks.output_shape(query, key, value)
    d, k = jnp.shape(key)[-1], jnp.shape(value)[-1]
    route = "primal" if least_squares.checked_route(alpha, route) == "pinv" else route
    if method == "exact" and constraints is bounds is equality is None:
        run = lambda query, *rest: use(query, _non_negative(*rest, unit, route))
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
    run = lambda query, *rest: use(query, _weights(*rest, unit, find_active, equality, route))
    return least_squares.fit(run, query, key, value, mask, scalars=(alpha,), matrices=(constraints, bounds))


def _non_negative(key, value, keep, alpha, unit, route) -> Array:
    """w >= 0 [..., d, k], from the least squares of the columns K_f of K whose constraint is not active.

    Primal: (K_f'K_f + alpha I) w_f = K_f'v. Dual: (K_f K_f' + alpha I) u = v, w_f = K_f'u. The multipliers are the
    gradients -K_a'(v - K_f w_f). There always is such a w, 0 for one.
    """
    rows, targets = least_squares.in_unit(unit, *least_squares.weighted(keep, key, value))
    targets = transpose(targets)
    n, d = rows.shape[-2:]
    length = jnp.sqrt((rows**2).sum(-2, keepdims=True) + alpha)
    length = jnp.where(length > 0, length, 1)
    ridge = alpha[..., None] if isinstance(alpha, Array) else alpha  # of a system for each column of values
    if keep is not None:  # a query without keys has the answer 0 from any system that is not singular
        ridge = jnp.where((keep > 0).any((-2, -1))[..., None, None, None], ridge, 1)
    dual = route == "dual" or route == "auto" and n < d
    # [d, N N] once: the Gram matrices of all choices of columns are then one product.
    columns = transpose(rows)
    products = (columns[..., :, None] * columns[..., None, :]).reshape(*columns.shape[:-1], n * n) if dual else None
    gram = None if dual else linalg.gram(linalg.left(rows))[..., None, :, :]
    # With fewer free columns than rows K_f K_f' is singular, and rounding may take more from it than the ridge adds.
    safe = jnp.maximum(ridge, n * jnp.finfo(rows.dtype).eps * (rows**2).sum(-1).max(-1)[..., None, None, None])

    # Vectors of all columns of values are the rows of one matrix.
    def predicted(weights):
        """K w: [..., k, d] -> [..., k, N]."""
        return matmul(weights, columns)

    def pulled(residual):
        """K'u: [..., k, N] -> [..., k, d]."""
        return matmul(residual, rows)

    def fitted(active, refined=True):
        """w_f and 0 for the others, and K'(v - K_f w_f), both [..., k, d]."""
        free = ~active
        if dual:
            matrix = matmul(free.astype(rows.dtype), products)
            matrix = matrix.reshape(*matrix.shape[:-1], n, n) + safe * jnp.eye(n, dtype=rows.dtype)
            solve = _vector_solver(matrix)
            scaled = solve(targets)
            found = jnp.where(free, pulled(scaled), 0)
            # The residual v - K_f w_f is alpha u: a difference would have no digits where K_f w_f is nearly v.
            residual = alpha * scaled
            step = lambda: jnp.where(free, pulled(solve(targets - residual - predicted(found))), 0)
        else:
            penalty = jnp.where(free[..., None], ridge, 1)
            both = free[..., :, None] & free[..., None, :]
            solve = _vector_solver(jnp.where(both, gram, 0) + penalty * jnp.eye(d, dtype=rows.dtype))
            found = solve(jnp.where(free, pulled(targets), 0))
            residual = targets - predicted(found)
            step = lambda: solve(jnp.where(free, pulled(residual) - alpha * found, 0))
        return found + lax.stop_gradient(step()) if refined else found, pulled(residual)

    def conditions(active):
        weights, pull = fitted(active, refined=False)
        return jnp.where(active, -pull / length, 0), jnp.where(active, 0, -weights * length)

    def guarded(weights):
        """Weights that rounding has made worse than none are as long as is best for their direction."""
        found = predicted(weights)
        square = (found**2).sum(-1, keepdims=True) + (alpha * weights**2).sum(-1, keepdims=True)
        gain = (found * targets).sum(-1, keepdims=True)
        length = jnp.where(2 * gain < square, jnp.maximum(gain, 0) / least_squares.positive(square), 1)
        return weights * lax.stop_gradient(length)

    shape = jnp.broadcast_shapes(rows.shape[:-2], targets.shape[:-2])
    nothing = jnp.zeros((*shape, targets.shape[-2], d), bool)
    size = jnp.broadcast_to(jnp.sqrt((targets**2).sum(-1, keepdims=True)), (*nothing.shape[:-1], 1))
    # Without active constraints all columns of values have one system.
    unconstrained = transpose(least_squares.weights(rows, transpose(targets), alpha, "dual" if dual else "primal"))
    active = _optimal(conditions, -unconstrained * length, nothing, _rounding(d, size))[0]
    return transpose(guarded(jnp.where(active, 0, jnp.maximum(fitted(active)[0], 0))))


def _vector_solver(matrix: Array) -> Callable[[Array], Array]:
    """For [..., p, p], symmetric and positive definite: [..., p] -> [..., p]."""
    solve = linalg.solver(matrix, 1)
    return lambda vector: solve(vector[..., None])[..., 0]


def _weights(key, value, keep, alpha, constraints, bounds, unit, find_active, equality, route) -> Array:
    """w [..., d, k]."""
    route = least_squares.checked_route(alpha, route)
    rows, targets = least_squares.in_unit(unit, *least_squares.weighted(keep, key, value))
    free = least_squares.weights(rows, targets, alpha, route)
    if constraints.shape[-1] == 0:
        return free
    nearest = functools.partial(_nearest, constraints, bounds, find_active, equality)
    found, met = nearest(free, least_squares.inverse_times(rows, constraints, alpha, route))  # Z C
    # Whether there is such a w does not depend on Z, but rounding may lose it in an ill-conditioned one.
    other = lambda: (lambda w, met: jnp.where(met, w, jnp.nan))(*nearest(found, constraints))
    return lax.cond(met.all(), lambda: found, lambda: jnp.where(met, found, other()))


def _nearest(constraints, bounds, find_active, equality, start, directions) -> tuple[Array, Array]:
    """The w [..., d, k] nearest to `start` of those that meet the constraints, and whether it does [..., 1, k].

    With directions Z C distances are |.|^2 in the metric of Z^-1.
    """
    system = matmul(transpose(constraints), directions)
    # In units where C'ZC has a unit diagonal one tolerance fits all constraints.
    unit = jnp.sqrt(least_squares.positive(jnp.diagonal(system, axis1=-2, axis2=-1)))[..., None, :]  # [..., 1, p]
    system = ((system + transpose(system)) / (2 * transpose(unit) * unit))[..., None, :, :]

    def missing(weights):
        """c - C'w [..., k, p], and the size of its terms [..., k, 1]."""
        terms = jnp.abs(bounds) + matmul(transpose(jnp.abs(constraints)), jnp.abs(weights))
        gap = bounds - matmul(transpose(constraints), weights)
        return transpose(gap) / unit, (transpose(terms) / unit).max(-1, keepdims=True)

    gap, size = missing(start)
    equality = jnp.broadcast_to(False if equality is None else equality, gap.shape)

    def conditions(active):
        multipliers = _multipliers(system, gap, active)
        return multipliers, gap - _times(system, multipliers)

    active, wanted = find_active(conditions, gap, equality, _rounding(gap.shape[-1], size))
    solution = start + matmul(directions, transpose(_multipliers(system, gap, active) / unit))
    step = _multipliers(system, missing(solution)[0], active) / unit  # what rounding has left
    solution = solution + lax.stop_gradient(matmul(directions, transpose(step)))
    violation, terms = missing(solution)
    missed = jnp.where(active, jnp.abs(violation), jnp.where(wanted, violation, 0))
    met = (missed <= jnp.sqrt(jnp.finfo(gap.dtype).eps) * jnp.maximum(size, terms)).all(-1, keepdims=True)
    return solution, transpose(met)


def _rounding(p: int, size: Array) -> Array:
    """What sums of p terms of a size may be off by."""
    return 10 * p * jnp.finfo(size.dtype).eps * size


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


def _optimal(conditions: Conditions, gap: Array, equality: Array, tolerance: Array) -> tuple[Array, Array]:
    """The active set of the optimum of the dual.

    The dual is min_lambda lambda'S lambda / 2 - gap'lambda with lambda >= 0, free for equalities. It has p variables
    whatever d is. Most columns are done after a few exchanges; a method that always ends does the others.
    """
    gap, constant = lax.stop_gradient(gap), lambda active: lax.stop_gradient(conditions(active))
    tolerance = lax.stop_gradient(tolerance)
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


# Name -> (conditions, gap, equality, tolerance) -> (active set, which constraints the solution must satisfy).
METHODS = {
    "exact": _optimal,
    "one_shot": lambda conditions, gap, equality, tolerance: (equality | (gap > 0), equality),
    "equality": lambda conditions, gap, equality, tolerance: (jnp.ones_like(equality), jnp.ones_like(equality)),
}
