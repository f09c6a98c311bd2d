"""Intention: attention's least-squares sibling (Garnelo and Czarnecki 2023, arXiv 2305.10203).

    primal:  Q (K'K + alpha I_d)^-1 K'V         dual:  Q K' (KK' + alpha I_N)^-1 V

with sigma-Intention, the Informer forms, and the regression weights w(K, V) as an output. Rows are points: K [N, d],
V [N, k], Q [M, d]. The two forms (Sections 3 and 3.1) are equal for every alpha > 0; for alpha = 0 both mean
Q pinv(K) V. Under a mask [..., M, N] every query has a regression of its own, in M times the memory of the keys.
"""

import jax
import jax.numpy as jnp
from jax import Array

from kvq_jax.ops import least_squares
from kvq_jax.ops.linalg import matmul, transpose
from kvq_jax.ops.masks import Mask, Scalar


def intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    unit: str = "one",
    sample_weight: Array | None = None,
    route: str = "auto",
    form: str = "ridge",
) -> Array:
    """Q (K'WK + alpha I)^-1 K'WV: least squares of values on keys, read at the queries.

    Garnelo and Czarnecki 2023, Section 2: ridge regression. With sample weights W it is that of the proof of Section
    3.2; without, it also is Q K' (KK' + alpha I)^-1 V.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k].

    Args:
        alpha: a number >= 0 (0: Moore-Penrose, whatever the route), or an array > 0.
        unit: of alpha, a name of least_squares.UNITS: 'one', or 'trace': tr(K'WK) / d, the mean eigenvalue. Ours.
        sample_weight: [..., N], >= 0: the diagonal of W; None: ones.
        route: 'primal' (a d x d system), 'dual' (N x N), 'pinv' (singular values; the solution for alpha = 0 only), or
            'auto': primal or dual, whichever has fewer products for these shapes.
        form: 'ridge', or 'informer': (1 - alpha) KK' + alpha I, with alpha in [0, 1] (Appendix 8).

    Raises ValueError for route 'pinv' with an alpha other than the number 0 too.
    """
    route = least_squares.checked_route(alpha, route, form)

    def run(query, key, value, weight, alpha):
        rows, targets = least_squares.in_unit(unit, *least_squares.weighted(weight, key, value))
        return least_squares.predict(query, rows, targets, alpha, route, form)

    return least_squares.fit(run, query, key, value, mask, sample_weight=sample_weight, scalars=(alpha,))


def sigma_intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    unit: str = "one",
    route: str = "auto",
    form: str = "ridge",
) -> Array:
    """softmax_n(Q (K'K + alpha I)^-1 K') V = softmax_n(Q K' (KK' + alpha I)^-1) V.

    Garnelo and Czarnecki 2023, Section 2. The softmax runs over the N keys, with no further temperature.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k], options and
    errors as `intention`.
    """
    route = least_squares.checked_route(alpha, route, form)

    def run(query, key, value, keep, alpha):
        rows, query = least_squares.in_unit(unit, *least_squares.weighted(keep, key), query)
        z = least_squares.map_of(query, rows, alpha, route, form)
        return matmul(jax.nn.softmax(z, where=None if keep is None else transpose(keep) > 0), value)

    return least_squares.fit(run, query, key, value, mask, scalars=(alpha,))


def intention_weights(
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    unit: str = "one",
    sample_weight: Array | None = None,
    route: str = "auto",
    form: str = "ridge",
) -> Array:
    """w(K, V) = (K'WK + alpha I)^-1 K'WV, of a size that does not depend on N: Garnelo and Czarnecki 2023, Section 3.

    The paper writes this output as "E_Q := 0". `intention`, whose options and errors these are, is query @ w.

    key [..., N, d], value [..., N, k], mask [..., N] -> [..., d, k].
    """
    route = least_squares.checked_route(alpha, route, form)

    def run(query, key, value, weight, alpha):
        rows, targets = least_squares.in_unit(unit, *least_squares.weighted(weight, key, value))
        return least_squares.weights(rows, targets, alpha, route, form)

    nobody = jnp.zeros((1, *jnp.shape(key)[-1:]), jnp.result_type(key))
    return least_squares.fit(run, nobody, key, value, mask, sample_weight=sample_weight, scalars=(alpha,))


def informer(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 0.5,
    unit: str = "one",
    route: str = "auto",
) -> Array:
    """Q K' [(1 - alpha) KK' + alpha I]^-1 V: Intention in the Informer (Garnelo and Czarnecki 2023, Appendix 8).

    alpha is sigmoid(theta) there, with theta = 0 at the start: hence 0.5. Shapes, options and errors: see `intention`.
    """
    return intention(query, key, value, mask=mask, alpha=alpha, unit=unit, route=route, form="informer")


def sigma_informer(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 0.5,
    unit: str = "one",
    route: str = "auto",
) -> Array:
    """softmax_n(Q K' [(1 - alpha) KK' + alpha I]^-1) V: the sigma-Informer (Garnelo and Czarnecki 2023, Appendix 8).

    Shapes, options and errors: see `sigma_intention`.
    """
    return sigma_intention(query, key, value, mask=mask, alpha=alpha, unit=unit, route=route, form="informer")
