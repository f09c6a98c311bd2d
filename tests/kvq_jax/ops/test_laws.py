"""The laws that every member of KVQ space obeys, for every operator of the table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvq_jax
from kvq_jax.ops import OPERATORS, OPS, streaming
from tests.kvq_jax.ops import reference
from tests.kvq_jax.ops.programs import compiled
from tests.kvq_jax.ops.reference import LABELS, REFERENCES, condition, values

SHAPES = [(3, 5, 2, 4), (2, 3, 4, 1), (1, 1, 1, 1), (4, 4, 4, 2)]  # M, N, d, k: N > d, N < d, all one, N = d
every_op = pytest.mark.parametrize("name", OPS)
# The only exceptions to the laws below, each with its reason.
# Labels have no derivative from differences, which would make them fractions of a key and some of them negative, and a
# class that a mask empties scores -inf; tests/kvq_jax/ops/test_discriminants.py has the derivatives by keys, queries,
# sample weights and alpha.
NOT_DIFFERENTIATED = LABELS
few = settings(max_examples=10, deadline=None, derandomize=True)
shape_and_seed = given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**16))


# One compilation per operator and shape serves all tests.
JITTED = {name: compiled(op) for name, op in OPS.items()}


@functools.cache
def pulled(name):
    """(query, key, value, mask, cotangent) -> (output, gradients of the sum of its products with the cotangent)."""

    def run(query, key, value, mask, cotangent):
        out, pull = jax.vjp(functools.partial(OPS[name], mask=mask), query, key, value)
        return out, pull(cotangent)

    return jax.jit(run)


def draw(name, shape, seed=0, dtype=np.float64):
    """Query, key and value for an operator; labels for those that take labels."""
    m, n, d, k = shape
    rng = np.random.default_rng(seed)
    query, key, value = (rng.normal(size=s) for s in ((m, d), (n, d), (n, k)))
    return [x.astype(dtype) for x in (query, key, values(name, value))]


def close(a, b, tolerance=1e-10):
    reference.close(a, b, tolerance)


def test_references_cover_the_table():
    assert REFERENCES.keys() == OPS.keys()
    assert kvq_jax.OPS is OPS


@every_op
@few
@shape_and_seed
def test_float64_reference(name, shape, seed):
    with jax.enable_x64(True):
        arrays = draw(name, shape, seed)
        close(JITTED[name](*arrays), REFERENCES[name](*arrays), 1e-10 if shape[1] != shape[2] else 1e-8)


@every_op
@few
@shape_and_seed
def test_float32_error(name, shape, seed):
    q, k, v = draw(name, shape, seed, np.float32)
    expected = REFERENCES[name](*map(np.float64, (q, k, v)))
    out = JITTED[name](q, k, v)
    finite = np.isfinite(expected)
    close(out[~finite], expected[~finite])
    # The error of a regularised solve grows with the condition number of the system, whichever route it takes. The
    # jitter of Nystroem features is 10 N eps, and counts twice: in the queries and in the keys.
    rounding = 20 * (1 + len(k) * (name == "nystroem_intention")) * np.finfo(np.float32).eps
    bound = rounding * condition(name, np.float64(k)) * (1 + np.abs(expected[finite]).max())
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
        expected = REFERENCES[name](q, k[keep], v[keep]) if keep.any() else np.zeros((3, 4))
        spoil = np.where(keep, 0.0, np.nan)[:, None]
        close(JITTED[name](q, k, v, mask=keep), expected, 1e-7)
        close(JITTED[name](q, k + spoil, v + spoil, mask=keep), expected, 1e-7)


PAIRS = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1]], bool)


@every_op
def test_pair_mask_gives_each_query_its_own_keys(name, x64):
    q, k, v = draw(name, (3, 5, 2, 4))
    k[4], v[4] = np.nan, np.inf  # used by nobody but the last query
    out = JITTED[name](q, k, v, mask=PAIRS)
    close(out[0], REFERENCES[name](q[:1], k[PAIRS[0]], v[PAIRS[0]])[0], 1e-8)
    close(out[1], np.zeros(4))
    assert not np.isfinite(out[2]).any()  # a query that does use them is told so


@every_op
def test_pair_mask_keeps_gradients_apart(name):
    q, k, v = draw(name, (3, 5, 2, 4), dtype=np.float32)
    k[4], v[4] = np.nan, np.inf
    _, grads = pulled(name)(q, k, v, PAIRS, np.float32([[1] * 4, [1] * 4, [0] * 4]))
    assert all(np.isfinite(np.asarray(g)[:2]).all() for g in grads)


@every_op
def test_pair_mask_of_equal_rows_is_a_key_mask(name, x64):
    q, k, v = draw(name, (3, 5, 2, 4))
    mask = np.array([True, False, True, True, False])
    expected = JITTED[name](q, k, v, mask=mask)
    close(JITTED[name](q, k, v, mask=np.tile(mask, (3, 1))), expected, 1e-8)
    close(JITTED[name](q, k, v, mask=mask[None]), expected, 1e-12)


@every_op
@pytest.mark.parametrize("mask_shape", [(5,), (3, 5)])
def test_no_key_left_gives_zeros_and_finite_gradients(name, mask_shape):
    q, k, v = draw(name, (3, 5, 2, 4), dtype=np.float32)
    k[0], v[1] = np.nan, np.inf
    out, grads = pulled(name)(q, k, v, np.zeros(mask_shape, bool), np.ones((3, 4), np.float32))
    close(out, np.zeros((3, 4)))
    for g in grads:
        close(g, np.zeros_like(g))


@every_op
def test_no_key_at_all_gives_zeros(name):
    close(JITTED[name](np.ones((3, 2)), np.ones((0, 2)), np.ones((0, 4))), np.zeros((3, 4)))


@every_op
def test_a_query_without_keys_gets_zeros_whatever_it_holds(name):
    query = np.full((8, 2), np.nan, np.float32)
    key, value = draw(name, (8, 9, 2, 2), dtype=np.float32)[1:]
    close(JITTED[name](query, key, value, mask=np.zeros(9, bool)), np.zeros((8, value.shape[-1])))


@every_op
def test_gradient_through_a_masked_key_is_zero(name):
    q, k, v = draw(name, (3, 5, 2, 4), dtype=np.float32)
    k[2], v[2] = np.nan, np.inf
    mask = np.array([True, True, False, True, True])
    _, grads = pulled(name)(q, k, v, mask, np.ones((3, 4), np.float32))
    gq, gk, gv = map(np.asarray, grads)
    assert all(np.isfinite(g).all() for g in (gq, gk, gv))
    assert not gk[2].any() and not gv[2].any() and gv[0].any()


@every_op
def test_batch_axes_are_loops(name, x64):
    q, k, v = (np.stack(x) for x in zip(*(draw(name, (3, 5, 2, 4), seed) for seed in range(4))))
    mask = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]], bool)
    loop = np.stack([JITTED[name](*x[:3], mask=x[3]) for x in zip(q, k, v, mask)])
    close(JITTED[name](q, k, v, mask=mask), loop, 1e-9)
    close(jax.jit(jax.vmap(lambda q, k, v, mask: OPS[name](q, k, v, mask=mask)))(q, k, v, mask), loop, 1e-9)
    fold = lambda x: x.reshape(2, 2, *x.shape[1:])
    close(JITTED[name](*map(fold, (q, k, v)), mask=fold(mask)), fold(loop), 1e-9)
    shared = np.stack([JITTED[name](x, k[0], v[0]) for x in q])  # one set, many batches of queries
    close(JITTED[name](q, k[0], v[0]), shared, 1e-9)
    per_value = np.stack([JITTED[name](q[0], k[0], x) for x in v])
    close(JITTED[name](q[0], k[0], v), per_value, 1e-9)


@every_op
def test_jit_changes_nothing(name, x64):
    arrays = draw(name, (3, 5, 2, 4))
    close(OPS[name](*map(jnp.asarray, arrays)), JITTED[name](*arrays), 1e-12)


@pytest.mark.parametrize("name", [name for name in OPS if name not in LABELS])
def test_which_have_a_matrix_of_weights(name, x64):
    """Those of labels have none; of the others those that the table calls affine in the values."""
    q, k, v = draw(name, (3, 5, 2, 4))
    rest = JITTED[name](q, k, np.zeros((5, 4)))[:, :1]
    columns = np.split(np.eye(5, 8), 2, axis=1)  # four at a time, like v
    weights = np.hstack([JITTED[name](q, k, x) for x in columns])[:, :5] - rest
    holds = np.allclose(weights @ v + rest, JITTED[name](q, k, v), atol=1e-9)
    assert holds == OPERATORS[name].affine and not any(OPERATORS[label].affine for label in LABELS)


@every_op
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_in_low_precision_out(name, dtype):
    q, k, v = draw(name, (3, 5, 2, 4), dtype=dtype)
    out = JITTED[name](q, k, v)
    assert out.dtype == dtype
    expected = REFERENCES[name](*map(np.float64, (q, k, v)))
    close(np.float64(out), expected, 6 * float(jnp.finfo(dtype).eps))


@every_op
def test_integers_count_as_floats(name):
    q, k, v = np.ones((3, 2), int), np.arange(10).reshape(5, 2) % 3, np.eye(5, 4, dtype=int)
    out = JITTED[name](q, k, v)
    assert out.dtype == jnp.float32
    close(out, JITTED[name](*map(np.float32, (q, k, v))), 1e-6)


@pytest.mark.parametrize("name", [name for name in OPS if name not in NOT_DIFFERENTIATED])
@pytest.mark.parametrize("shape", [(3, 5, 2, 4), (2, 3, 4, 1)])
def test_gradients_against_finite_differences(name, shape, x64):
    arrays, mask = draw(name, shape, 1), np.arange(shape[1]) != 1
    rng, step = np.random.default_rng(0), 1e-5
    cotangent, directions = rng.normal(size=(shape[0], shape[3])), [rng.normal(size=x.shape) for x in arrays]
    run = lambda t: pulled(name)(*(x + t * u for x, u in zip(arrays, directions)), mask, cotangent)
    numeric = (cotangent * (np.asarray(run(step)[0]) - np.asarray(run(-step)[0]))).sum() / (2 * step)
    close(sum((np.asarray(g) * u).sum() for g, u in zip(run(0.0)[1], directions)), numeric, 1e-4)


@every_op
@pytest.mark.parametrize(
    "shapes",
    [((3, 2), (5, 3), (5, 4)), ((3, 2), (5, 2), (4, 4)), ((2,), (5, 2), (5, 4)), ((2, 3, 2), (3, 5, 2), (5, 4))]
    + [((), (), ()), ((3, 2), (), (5, 4)), ((3, 2), (5, 2), ())],
)
def test_shapes_that_do_not_fit(name, shapes):
    with pytest.raises(ValueError, match="expected query") as error:
        OPS[name](*(np.ones(s) for s in shapes))
    assert "\n" not in str(error.value)


@every_op
def test_lists_are_no_arrays(name):
    rows = [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(TypeError):
        OPS[name](rows, rows, rows)


@pytest.mark.parametrize("name", [name for name in OPS if name not in LABELS])
def test_what_a_masked_key_holds_reaches_no_query_under_a_mask_of_pairs(name):
    query, key, value = _rows(3, 5)
    pairs = np.arange(5) < np.array([[3], [4], [5]])
    pairs[:, 2] = False
    held = key.at[2].set(1e25), value.at[2].set(1e25)
    op = JITTED[name]
    np.testing.assert_array_equal(op(query, key, value, mask=pairs), op(query, *held, mask=pairs))


@pytest.mark.parametrize("name", [name for name, row in OPERATORS.items() if row.affine])
def test_a_mask_may_lead_where_keys_do_not(name):
    query, key, value = _rows(3, 4)
    mask = np.arange(4) < np.array([1, 2, 3, 4, 4])[:, None]
    whole = JITTED[name](query, key[None], value[None], mask=mask)
    parts = [JITTED[name](query, key, value, mask=own) for own in mask]
    assert whole.shape == (5, 3, 1)
    np.testing.assert_allclose(whole, parts, rtol=2e-4, atol=2e-5)
    if name == "softmax":  # as accelerators compute it
        wide = jnp.concatenate([value, -value], -1)  # it wants k = d
        library = OPS[name](query, key[None], wide[None], mask=mask, implementation="xla")
        np.testing.assert_allclose(library[..., :1], parts, rtol=2e-4, atol=2e-5)
    if OPERATORS[name].stream:
        op = compiled(streaming.chunked(name, 3))
        np.testing.assert_allclose(op(query, key[None], value[None], mask=mask), parts, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", [name for name, row in OPERATORS.items() if row.alpha and not row.labels])
def test_a_number_of_numpy_is_a_number(name, x64):
    arguments = _rows(3, 4)
    found = OPS[name](*arguments, alpha=np.float64(0.3))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, OPS[name](*arguments, alpha=0.3))


def _rows(m, n):
    """Queries [m, 2], keys [n, 2] and values [n, 1]."""
    rng = np.random.default_rng(4)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((m, 2), (n, 2), (n, 1))]
