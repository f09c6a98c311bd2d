"""The laws that every member of KVQ space obeys, for every operator of the table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

import kvq_jax
from kvq_jax.ops import OPERATORS, OPS
from tests.kvq_jax.ops.reference import LABELS, REFERENCES, condition, values

SHAPES = [(3, 5, 2, 4), (2, 3, 4, 1), (1, 1, 1, 1), (4, 4, 4, 2)]  # M, N, d, k: N > d, N < d, all one, N = d
every_op = pytest.mark.parametrize("name", OPS)
# The only exceptions to the laws below, each with its reason.
# Labels have no derivative from differences, which would make them fractions of a key and some of them negative, and a
# class that a
# mask empties scores -inf; tests/kvq_jax/ops/test_discriminants.py has the derivatives by keys, queries, sample weights
# and alpha.
NOT_DIFFERENTIATED = LABELS
few = settings(max_examples=10, deadline=None, derandomize=True)
shape_and_seed = given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**16))

# One compilation per operator and shape serves all tests.
JITTED = {name: jax.jit(op) for name, op in OPS.items()}


def draw(name, shape, seed=0, dtype=np.float64):
    """Query, key and value for an operator; labels for those that take labels."""
    m, n, d, k = shape
    rng = np.random.default_rng(seed)
    query, key, value = (rng.normal(size=s) for s in ((m, d), (n, d), (n, k)))
    return [jnp.asarray(x, dtype) for x in (query, key, values(name, value))]


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def test_references_cover_the_table():
    assert REFERENCES.keys() == OPS.keys()
    assert kvq_jax.OPS is OPS


@every_op
@few
@shape_and_seed
def test_float64_reference(name, shape, seed):
    with jax.enable_x64(True):
        arrays = draw(name, shape, seed)
        close(
            JITTED[name](*arrays), REFERENCES[name](*map(np.asarray, arrays)), 1e-10 if shape[1] != shape[2] else 1e-8
        )


@every_op
@few
@shape_and_seed
def test_float32_error(name, shape, seed):
    q, k, v = draw(name, shape, seed, np.float32)
    expected = REFERENCES[name](*(np.asarray(x, np.float64) for x in (q, k, v)))
    out = np.asarray(JITTED[name](q, k, v))
    finite = np.isfinite(expected)
    close(out[~finite], expected[~finite])
    # The error of a regularised solve grows with the condition number of the system, whichever route it takes. The
    # jitter of Nystroem features is 10 N eps, and counts twice: in the queries and in the keys.
    rounding = 20 * (1 + len(k) * (name == "nystroem_intention")) * np.finfo(np.float32).eps
    bound = rounding * condition(name, np.asarray(k, np.float64)) * (1 + np.abs(expected[finite]).max())
    assert np.abs(out[finite] - expected[finite]).max() <= bound


@every_op
@few
@shape_and_seed
def test_permutation_laws(name, shape, seed):
    with jax.enable_x64(True):
        q, k, v = draw(name, shape, seed)
        rng = np.random.default_rng(seed)
        rows, queries = rng.permutation(len(k)), rng.permutation(len(q))
        out = JITTED[name](q, k, v)
        close(JITTED[name](q, k[rows], v[rows]), out, 1e-7)
        close(JITTED[name](q[queries], k, v), out[queries], 1e-12)


@every_op
@few
@given(seed=st.integers(0, 2**16), keep=st.lists(st.booleans(), min_size=5, max_size=5))
def test_masked_keys_are_absent_keys(name, seed, keep):
    with jax.enable_x64(True):
        q, k, v = draw(name, (3, 5, 2, 4), seed)
        keep = np.array(keep)
        expected = REFERENCES[name](*(np.asarray(x) for x in (q, k[keep], v[keep]))) if keep.any() else np.zeros((3, 4))
        spoil = jnp.where(keep, 0.0, jnp.nan)[:, None]
        close(JITTED[name](q, k, v, mask=jnp.asarray(keep)), expected, 1e-7)
        close(JITTED[name](q, k + spoil, v + spoil, mask=jnp.asarray(keep)), expected, 1e-7)


@every_op
def test_pair_mask_gives_each_query_its_own_keys(name, x64):
    q, k, v = draw(name, (3, 5, 2, 4))
    k, v = k.at[4].set(jnp.nan), v.at[4].set(jnp.inf)  # used by nobody but the last query
    mask = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1]], bool)
    out = JITTED[name](q, k, v, mask=jnp.asarray(mask))
    close(out[0], REFERENCES[name](*(np.asarray(x) for x in (q[:1], k[mask[0]], v[mask[0]])))[0], 1e-8)
    close(out[1], np.zeros(4))
    assert not np.isfinite(out[2]).any()  # a query that does use them is told so
    grads = jax.jit(jax.grad(lambda *a: OPS[name](*a, mask=jnp.asarray(mask))[:2].sum(), argnums=(0, 1, 2)))(q, k, v)
    assert all(np.isfinite(g[:2]).all() for g in grads)


@every_op
def test_pair_mask_of_equal_rows_is_a_key_mask(name, x64):
    q, k, v = draw(name, (3, 5, 2, 4))
    mask = jnp.array([True, False, True, True, False])
    expected = JITTED[name](q, k, v, mask=mask)
    close(JITTED[name](q, k, v, mask=jnp.broadcast_to(mask, (3, 5))), expected, 1e-8)
    close(JITTED[name](q, k, v, mask=mask[None]), expected, 1e-12)


@every_op
@pytest.mark.parametrize("mask_shape", [(5,), (3, 5)])
def test_no_key_left_gives_zeros_and_finite_gradients(name, mask_shape):
    q, k, v = draw(name, (3, 5, 2, 4), dtype=np.float32)
    k, v = k.at[0].set(jnp.nan), v.at[1].set(jnp.inf)
    loss = lambda q, k, v: (lambda out: (out.sum(), out))(OPS[name](q, k, v, mask=jnp.zeros(mask_shape, bool)))
    grads, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
    close(out, np.zeros((3, 4)))
    for g in grads:
        close(g, np.zeros_like(g))


@every_op
def test_no_key_at_all_gives_zeros(name):
    close(JITTED[name](jnp.ones((3, 2)), jnp.ones((0, 2)), jnp.ones((0, 4))), np.zeros((3, 4)))


@every_op
def test_gradient_through_a_masked_key_is_zero(name):
    q, k, v = draw(name, (3, 5, 2, 4), dtype=np.float32)
    k, v = k.at[2].set(jnp.nan), v.at[2].set(jnp.inf)
    mask = jnp.array([True, True, False, True, True])
    gq, gk, gv = jax.jit(jax.grad(lambda *a: OPS[name](*a, mask=mask).sum(), argnums=(0, 1, 2)))(q, k, v)
    assert all(np.isfinite(g).all() for g in (gq, gk, gv))
    assert not gk[2].any() and not gv[2].any() and gv[0].any()


@every_op
def test_batch_axes_are_loops(name, x64):
    q, k, v = (jnp.stack(x) for x in zip(*(draw(name, (3, 5, 2, 4), seed) for seed in range(4))))
    mask = jnp.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]], bool)
    loop = jnp.stack([JITTED[name](*x[:3], mask=x[3]) for x in zip(q, k, v, mask)])
    close(JITTED[name](q, k, v, mask=mask), loop, 1e-9)
    close(jax.jit(jax.vmap(lambda q, k, v, mask: OPS[name](q, k, v, mask=mask)))(q, k, v, mask), loop, 1e-9)
    fold = lambda x: x.reshape(2, 2, *x.shape[1:])
    close(JITTED[name](*map(fold, (q, k, v)), mask=fold(mask)), fold(loop), 1e-9)
    shared = jnp.stack([JITTED[name](x, k[0], v[0]) for x in q])  # one set, many batches of queries
    close(JITTED[name](q, k[0], v[0]), shared, 1e-9)
    per_value = jnp.stack([JITTED[name](q[0], k[0], x) for x in v])
    close(JITTED[name](q[0], k[0], v), per_value, 1e-9)


@every_op
def test_jit_changes_nothing(name, x64):
    arrays = draw(name, (3, 5, 2, 4))
    close(OPS[name](*arrays), JITTED[name](*arrays), 1e-12)


@pytest.mark.parametrize("name", [name for name in OPS if name not in LABELS])
def test_which_have_a_matrix_of_weights(name, x64):
    """Those of labels have none; of the others those that the table calls affine in the values."""
    q, k, v = draw(name, (3, 5, 2, 4))
    rest = JITTED[name](q, k, jnp.zeros((5, 1)))
    weights = JITTED[name](q, k, jnp.eye(5)) - rest
    holds = np.allclose(weights @ v + rest, JITTED[name](q, k, v), atol=1e-9)
    assert holds == OPERATORS[name].affine and not any(OPERATORS[label].affine for label in LABELS)


@every_op
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_in_low_precision_out(name, dtype):
    q, k, v = draw(name, (3, 5, 2, 4), dtype=dtype)
    out = JITTED[name](q, k, v)
    assert out.dtype == dtype
    expected = REFERENCES[name](*(np.asarray(x, np.float64) for x in (q, k, v)))
    close(np.asarray(out, np.float64), expected, 6 * float(jnp.finfo(dtype).eps))


@every_op
def test_integers_count_as_floats(name):
    q, k, v = jnp.ones((3, 2), int), jnp.eye(2, dtype=int), jnp.eye(2, dtype=int)
    out = JITTED[name](q, k, v)
    assert out.dtype == jnp.float32
    close(out, JITTED[name](q.astype(float), k.astype(float), v.astype(float)), 1e-6)


@pytest.mark.parametrize("name", [name for name in OPS if name not in NOT_DIFFERENTIATED])
@pytest.mark.parametrize("shape", [(3, 5, 2, 4), (2, 3, 4, 1)])
def test_gradients_against_finite_differences(name, shape, x64):
    arrays = draw(name, shape, 1)
    mask = jnp.arange(shape[1]) != 1
    check_grads(jax.jit(lambda *a: OPS[name](*a, mask=mask)), arrays, order=1, modes=["rev"], atol=1e-4, rtol=1e-4)


@every_op
@pytest.mark.parametrize(
    "shapes",
    [((3, 2), (5, 3), (5, 4)), ((3, 2), (5, 2), (4, 4)), ((2,), (5, 2), (5, 4)), ((2, 3, 2), (3, 5, 2), (5, 4))]
    + [((), (), ()), ((3, 2), (), (5, 4)), ((3, 2), (5, 2), ())],
)
def test_shapes_that_do_not_fit(name, shapes):
    with pytest.raises(ValueError, match="expected query") as error:
        OPS[name](*(jnp.ones(s) for s in shapes))
    assert "\n" not in str(error.value)


@every_op
def test_lists_are_no_arrays(name):
    rows = [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(TypeError):
        OPS[name](rows, rows, rows)
