"""Streaming states: equal to the operators for any chunks, order, masks and merges; of constant size; exact least squares."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.sharding import Mesh, PartitionSpec as P
from scipy import special

from kvq_jax.ops import OPS, intention, intention_weights, softmax_attention
from kvq_jax.ops import streaming
from kvq_jax.ops.streaming import STREAMS

OPTIONS = {name: {} for name in STREAMS} | {"softmax": {"scale": 0.7}, "intention": {"alpha": 0.3}}
FADING = ("linear", "uniform", "intention", "informer")
FIXED = ("softmax", "laplace", "erf")
M, N, D, K = 3, 12, 2, 4
every_stream = pytest.mark.parametrize("name", STREAMS)
every_state = pytest.mark.parametrize("name", ["softmax", "erf", "linear", "uniform", "intention"])   # one stream of each kind
# One compilation per stream, dtype and chunk size serves all examples.
SIZES = (1, 3)
BATCH = {name: jax.jit(functools.partial(OPS[name], **OPTIONS[name])) for name in STREAMS}
UPDATE = {name: jax.jit(lambda q, s, k, v, m, name=name: make(name, q).update(s, k, v, m)) for name in STREAMS}
MERGE = {name: jax.jit(lambda q, a, b, name=name: make(name, q).merge(a, b)) for name in STREAMS}
READ = {name: jax.jit(lambda q, s, name=name: make(name, q).read(s)) for name in STREAMS}


def make(name, query, **options):
    return STREAMS[name](query, **OPTIONS[name], **options)


def draw(seed=0, dtype=np.float64, n=N, batch=()):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=(*batch, *s)), dtype) for s in ((M, D), (n, D), (n, K))]


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def trees_close(a, b, tolerance=1e-12):
    jax.tree.map(lambda x, y: close(x, y, tolerance), a, b)


def streamed(name, q, k, v, mask, seed):
    """The state after random chunks in a random order, into one to three states merged in a random order."""
    rng = np.random.default_rng(seed)
    order, stream = rng.permutation(len(k)), make(name, q)
    states = [stream.init(D, K, dtype=q.dtype) for _ in range(rng.integers(1, 4))]
    while len(order):
        size = rng.choice([s for s in SIZES if s <= len(order)])
        rows, order = order[:size], order[size:]
        i = rng.integers(len(states))
        states[i] = UPDATE[name](q, states[i], k[rows], v[rows], mask[rows])
    while len(states) > 1:
        a, b = (states.pop(rng.integers(len(states))) for _ in range(2))
        states.append(MERGE[name](q, a, b))
    return states[0]


def numpy_ridge(k, v, c, alpha):
    k, v = np.asarray(k, np.float64), np.asarray(v, np.float64)
    return np.linalg.solve(k.T @ (c[:, None] * k) + alpha * np.eye(k.shape[1]), k.T @ (c[:, None] * v))


@every_stream
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2 ** 16), keep=st.lists(st.booleans(), min_size=N, max_size=N))
def test_streaming_is_batch(name, dtype, tolerance, seed, keep):
    with jax.enable_x64(dtype == np.float64):
        q, k, v = draw(seed, dtype)
        keep = jnp.asarray(keep)
        out = READ[name](q, streamed(name, q, k, v, keep, seed))
        assert out.dtype == dtype
        expected = BATCH[name](q, k, v, mask=keep)
        close(out, expected, tolerance * (1 + float(jnp.abs(expected).max())))


BATCH_PLAIN = jax.jit(softmax_attention)


@jax.jit
def in_four_parts(q, k, v):
    stream = streaming.softmax_stream(q)
    state = stream.init(1, K)
    for part in zip(jnp.split(k, [3, 4, 7]), jnp.split(v, [3, 4, 7])):
        state = stream.merge(stream.update(stream.init(1, K), *part), state)
    return stream.read(state), state.log_normaliser


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2 ** 16), spread=st.sampled_from([1e3, 1e4, 1e30]))
def test_huge_scores(dtype, tolerance, seed, spread):
    """Scores of +-1e4 and beyond, with close rivals among them: the log-normaliser alone could not tell those apart in float32."""
    with jax.enable_x64(dtype == np.float64):
        rng = np.random.default_rng(seed)
        score = np.where(rng.random((N, 1)) < 0.5, spread, rng.choice([-spread, spread / 2], (N, 1)))
        k = jnp.asarray(score + (rng.normal(size=(N, 1)) if spread < 1e30 else 0), dtype)
        q, v = jnp.asarray([[1.0], [-1.0], [0.0]], dtype), draw(seed, dtype)[2]
        order = rng.permutation(N)
        out, log_normaliser = in_four_parts(q, k[order], v[order])
        close(out, BATCH_PLAIN(q, k, v), tolerance)
        close(log_normaliser, special.logsumexp(np.asarray(q @ k.T), axis=-1), tolerance)


def test_gradients_at_huge_scores():
    q, k, v = draw(1, np.float32)
    q, k = 1e4 * q, k.at[3].set(k[2])   # two keys share the largest scores
    gradient = lambda op: jax.jit(jax.grad(lambda *a: (op(*a) ** 2).sum(), argnums=(0, 1, 2)))(q, k, v)
    ours, expected = gradient(streaming.chunked("softmax", 3)), gradient(softmax_attention)
    for x, y in zip(ours, expected):
        close(x / (1 + jnp.abs(y).max()), y / (1 + jnp.abs(y).max()), 1e-5)


@pytest.mark.parametrize("name, fading", [(name, False) for name in STREAMS] + [(name, True) for name in FADING])
def test_merge_is_associative_with_identity_and_commutative_unless_it_fades(name, fading, x64):
    q, k, v = draw()
    stream = make(name, q, **({"forgetting": 0.8} if fading else {}))
    empty = stream.init(D, K, dtype=np.float64)
    a, b, c = jax.jit(lambda: [stream.update(empty, k[i:i + 4], v[i:i + 4]) for i in (0, 4, 8)])()
    merge = jax.jit(stream.merge)
    trees_close(merge(a, merge(b, c)), merge(merge(a, b), c))
    trees_close(merge(a, merge(b, c)), stream.update(empty, k, v))
    trees_close(merge(a, empty), a)
    trees_close(merge(empty, a), a)
    trees_close(merge(empty, empty), empty)
    if not fading:
        trees_close(merge(a, b), merge(b, a))


@every_stream
def test_no_key_reads_zeros_and_finite_gradients(name):
    q, k, v = draw(dtype=np.float32)
    k, v = k.at[0].set(jnp.nan), v.at[1].set(jnp.inf)

    def loss(q, k, v):
        stream = make(name, q)
        nothing = stream.init(D, K)
        state = stream.merge(nothing, stream.update(nothing, k, v, jnp.zeros(N, bool)))
        out = stream.read(stream.update(state, k[:0], v[:0]))
        return out.sum(), (out, stream.read(nothing))

    grads, outputs = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
    for x in (*grads, *outputs):
        close(x, np.zeros_like(x))


@every_stream
def test_gradients_are_the_operators(name, x64):
    q, k, v = draw(3)
    k, v = k.at[1].set(jnp.nan), v.at[1].set(jnp.inf)
    mask = jnp.arange(N) % 5 != 1   # a whole chunk is masked below
    mask = mask.at[5:10].set(False)
    weight = jnp.cos(jnp.arange(M * K)).reshape(M, K)
    loss = lambda op: jax.jit(jax.value_and_grad(lambda *a: (weight * op(*a, mask=mask, **OPTIONS[name])).sum(), argnums=(0, 1, 2)))
    trees_close(loss(streaming.chunked(name, 5))(q, k, v), loss(OPS[name])(q, k, v), 1e-10)


@every_stream
def test_chunked_is_the_operator_over_batches_dtypes_and_remainders(name):
    q, k, v = draw(4, np.float32, batch=(2, 3))
    q, k, mask = q[:, :1], k[0], jnp.asarray(np.random.default_rng(0).random((3, N)) < 0.6)
    half = [x.astype(jnp.bfloat16) for x in (q, k, v)]

    def outputs(op):
        return op(q, k, v, mask=mask, **OPTIONS[name]), op(*half, **OPTIONS[name]), op(q, k[:, :0], v[..., :0, :])

    expected, expected_half, nothing = jax.jit(lambda: outputs(OPS[name]))()
    scale = float(jnp.abs(expected_half.astype(float)).max())
    for size in (5, 40):
        out, out_half, empty = jax.jit(lambda: outputs(streaming.chunked(name, size)))()
        close(out, expected, 3e-5)
        assert out_half.dtype == jnp.bfloat16
        close(out_half.astype(float) / scale, expected_half.astype(float) / scale, 0.03)
        close(empty, nothing)


@every_stream
def test_pair_masks(name, x64):
    q, k, v = draw(5)
    mask = np.random.default_rng(1).random((M, N)) < 0.5
    mask[1] = False
    op = jax.jit(functools.partial(streaming.chunked(name, 5), **OPTIONS[name]))
    if name not in FIXED:
        with pytest.raises(ValueError, match="mask"):
            op(q, k, v, mask=mask)
        return
    close(op(q, k, v, mask=mask), BATCH[name](q, k, v, mask=mask))


def test_options_per_head(x64):
    q, k, v = draw(6, batch=(2,))
    per_head = jnp.array([0.5, 2.0])

    def linear(q, k, v, factor):
        stream = streaming.linear_stream(q, forgetting=factor)
        return stream.read(stream.update(stream.init(D, K), k, v))

    def pairs():
        yield streaming.chunked("softmax", 5)(q, k, v, scale=per_head), softmax_attention(q, k, v, scale=per_head)
        yield streaming.chunked("intention", 5)(q, k, v, alpha=per_head), intention(q, k, v, alpha=per_head)
        yield linear(q, k, v, per_head / 4), jnp.stack([linear(q[i], k[i], v[i], per_head[i] / 4) for i in range(2)])

    for ours, expected in jax.jit(lambda: list(pairs()))():
        close(ours, expected, 1e-10)


def test_one_state_reads_at_many_alphas(x64):
    q, k, v = draw(7)
    stream = streaming.intention_stream()
    state = stream.update(stream.init(D, K), k, v)
    for alpha in (0, 0.1, jnp.asarray(3.0)):
        for form in ("ridge", "informer") if not isinstance(alpha, jax.Array) else ("ridge",):
            close(stream.read(state, q, alpha=alpha, form=form), intention(q, k, v, alpha=alpha, form=form), 1e-10)
            close(streaming.weights(state, alpha=alpha, form=form), intention_weights(k, v, alpha=alpha, form=form), 1e-10)


@pytest.mark.parametrize("name", [*FADING, "erf"])
def test_forget_undoes_update(name, x64):
    q, k, v = draw(8)
    stream, mask = make(name, q), jnp.arange(5) != 2

    @jax.jit
    def update_and_forget():
        kept = stream.update(stream.init(D, K), k[5:], v[5:])
        return kept, stream.forget(stream.update(kept, k[:5], v[:5], mask), k[:5], v[:5], mask)

    trees_close(*update_and_forget(), 1e-13)

    @jax.jit
    def slide(state, i):
        """A window of four keys."""
        row = lambda x, i: jax.lax.dynamic_slice_in_dim(x, i, 1)
        state = stream.update(state, row(k, i), row(v, i))
        return stream.forget(state, row(k, i - 4), row(v, i - 4), (i >= 4)[None])

    state = stream.init(D, K, dtype=np.float64)
    for i in range(N):
        state = slide(state, jnp.asarray(i))
    close(jax.jit(stream.read)(state), BATCH[name](q, k[-4:], v[-4:]), 1e-11)


def test_forgetting_what_has_faded(x64):
    _, k, v = draw(9)
    stream = streaming.intention_stream(forgetting=0.7)
    state = stream.update(stream.init(D, K), k, v)
    state = stream.forget(state, k[:1], v[:1], weight=0.7 ** jnp.array([N - 1.0]))
    trees_close(state[1:], stream.update(stream.init(D, K), k[1:], v[1:])[1:])


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2 ** 16), factor=st.sampled_from([0.5, 0.9, 1.0]), keep=st.lists(st.booleans(), min_size=N, max_size=N),
       cut=st.sampled_from([0, 3, 6, 9]))
def test_weights_and_forgetting_are_weighted_least_squares(seed, factor, keep, cut):
    """Against NumPy: weights times l^(n - i), where n counts points that are not masked; sums, and the recursive inverse."""
    with jax.enable_x64(True):
        _, k, v = draw(seed)
        keep, weight = np.asarray(keep), np.random.default_rng(seed).choice([0, 0.3, 1, 4], N)
        later = keep.sum() - np.cumsum(keep)
        c = weight * keep * factor ** later
        update, merge, rls = least_squares(factor)
        states = []
        for part in (slice(0, cut), slice(cut, N)):
            state = streaming.intention_stream().init(D, K, dtype=np.float64)
            for i in range(part.start, part.stop, 3):
                rows = slice(i, i + 3)
                state = update(state, k[rows], v[rows], keep[rows], weight[rows])
            states.append(state)
        close(streaming.weights(merge(*states), alpha=0.3), numpy_ridge(k, v, c, 0.3), 1e-11)

        state = streaming.rls_init(D, K, alpha=0.3, dtype=np.float64)
        for i in range(0, N, 3):
            state = rls(state, k[i:i + 3], v[i:i + 3], keep[i:i + 3], weight[i:i + 3])
        faded = 0.3 * factor ** keep.sum()
        close(state.weights, numpy_ridge(k, v, c, faded), 1e-8)
        close(state.inverse @ (np.asarray(k).T @ (c[:, None] * k) + faded * np.eye(D)), np.eye(D), 1e-8)


@functools.cache
def least_squares(factor):
    stream = streaming.intention_stream(forgetting=factor)
    return (jax.jit(stream.update), jax.jit(stream.merge), jax.jit(functools.partial(streaming.rls_update, forgetting=factor)))


def test_a_prior_fades_as_in_recursive_least_squares(x64):
    q, k, v = draw(10)
    stream = streaming.intention_stream(q, forgetting=0.9)
    state = streaming.Moments(jnp.ones(()), 0.3 * jnp.eye(D), jnp.zeros((D, K)))
    recursive = streaming.rls_init(D, K, alpha=0.3, dtype=np.float64)
    step = jax.jit(functools.partial(streaming.rls_update, forgetting=0.9))
    for i in range(N):   # one point at a time: the textbook update
        recursive = step(recursive, k[i:i + 1], v[i:i + 1])
    close(streaming.rls_read(recursive, q), stream.read(stream.update(state, k, v), alpha=0), 1e-10)


def test_recursive_inverse_lasts():
    """A thousand single points in float32: the inverse stays symmetric and the weights right."""
    rng = np.random.default_rng(0)
    k, v = (jnp.asarray(rng.normal(size=(1000, n)), np.float32) for n in (8, 2))
    step = lambda state, row: (streaming.rls_update(state, row[0][None], row[1][None], forgetting=0.99), None)
    state, _ = jax.jit(lambda s: jax.lax.scan(step, s, (k, v)))(streaming.rls_init(8, 2, alpha=1.0))
    c = 0.99 ** np.arange(999, -1, -1.0)
    close(state.weights, numpy_ridge(k, v, c, 0.99 ** 1000), 1e-4)
    assert (state.inverse == state.inverse.T).all()


@every_state
def test_prefix_states_are_the_loop(name, x64):
    q, k, v = draw(11, n=7)
    fading = {"forgetting": 0.8} if name in FADING else {}
    mask = jnp.array([True, False, True, True, True, False, True])
    stream = make(name, q, **fading)
    start = jax.jit(lambda: stream.update(stream.init(D, K), k[:2] + 1, v[:2]))()

    @jax.jit
    def scanned(*arrays):
        states = streaming.prefixes(stream, *arrays)
        return states, jax.vmap(stream.read)(states)

    states, outputs = scanned(start, k, v, mask)
    assert outputs.shape == (7, M, K)
    step = jax.jit(lambda *a: (lambda state: (state, stream.read(state)))(stream.update(*a)))
    state = start
    for i in range(7):
        state, out = step(state, k[i:i + 1], v[i:i + 1], mask[i:i + 1])
        trees_close(jax.tree.map(lambda x: x[i], states), state, 1e-11)
        close(outputs[i], out, 1e-11)


@every_state
def test_prefix_gradients_are_finite(name):
    q, k, v = draw(12, np.float32, n=4)
    mask = jnp.array([False, False, True, True])   # the first prefixes are empty

    def loss(q, k, v):
        stream = make(name, q)
        return jax.vmap(stream.read)(streaming.prefixes(stream, stream.init(D, K), k, v, mask)).sum()

    assert all(np.isfinite(g).all() for g in jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(q, k, v))


@every_state
def test_devices_merge_to_the_same_numbers(name):
    if jax.device_count() < 8:
        pytest.skip("needs eight devices")
    q, k, v = draw(13, np.float32, n=32)
    mask = jnp.arange(32) % 3 != 1
    mask = mask.at[8:12].set(False)   # nothing left on one device
    options = {"forgetting": 0.95} if name in FADING else {}
    stream = make(name, q, **options)

    def each(k, v, mask):
        state = streaming.fold(stream, stream.init(D, K), k, v, mask, chunk_size=2)
        return stream.read(streaming.merge_devices(stream, state, "keys"))

    mesh = Mesh(np.array(jax.devices()[:8]), ("keys",))
    over = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=P("keys"), out_specs=P()))
    close(over(k, v, mask), jax.jit(lambda: stream.read(stream.update(stream.init(D, K), k, v, mask)))(), 2e-5)


def test_gradient_over_devices():
    if jax.device_count() < 8:
        pytest.skip("needs eight devices")
    q, k, v = draw(14, np.float32, n=16)
    mesh = Mesh(np.array(jax.devices()[:8]), ("keys",))

    def over(q, k, v):
        def each(q, k, v):
            stream = streaming.softmax_stream(q)
            return stream.read(streaming.merge_devices(stream, stream.update(stream.init(D, K), k, v), "keys"))
        return jax.shard_map(each, mesh=mesh, in_specs=(P(), P("keys"), P("keys")), out_specs=P())(q, k, v)

    gradient = lambda op: jax.jit(jax.grad(lambda *a: (op(*a) ** 2).sum(), argnums=(0, 1, 2)))(q, k, v)
    trees_close(gradient(over), gradient(softmax_attention), 1e-5)


def test_embedding_inside_the_fold(x64):
    q, x, y = draw(15)
    embed = lambda x, y: (jnp.tanh(x), jnp.concatenate([x, y], -1))
    stream = streaming.softmax_stream(q)
    state = jax.jit(lambda: streaming.fold(stream, stream.init(D, D + K), x, y, chunk_size=5, embed=embed))()
    close(stream.read(state), softmax_attention(q, *embed(x, y)))


def made(i):
    """Chunk i of an endless context: 100 keys of 8 features, values of 4."""
    x = (100 * (i % 10_000) + jnp.arange(100.0))[:, None]
    return jnp.sin(x * jnp.sqrt(jnp.arange(2.0, 10.0))), jnp.cos(x * jnp.arange(1.0, 5.0))


@pytest.mark.parametrize("name", ["softmax", "intention"])
def test_made_chunks_are_the_batch(name):
    q = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8)), np.float32)
    stream = STREAMS[name](q)
    k, v = (x.reshape(600, -1) for x in jax.jit(jax.vmap(made))(jnp.arange(6)))
    out = jax.jit(lambda: stream.read(streaming.fold_made(stream, stream.init(8, 4), made, 6)))()
    close(out, jax.jit(OPS[name])(q, k, v), 1e-5)


@pytest.mark.parametrize("name", ["softmax", "intention"])
@pytest.mark.parametrize("gradient", [False, True])
def test_memory_does_not_depend_on_the_number_of_keys(name, gradient):
    q = jnp.ones((5, 8))

    def run(q, count):
        stream = STREAMS[name](q)
        return stream.read(streaming.fold_made(stream, stream.init(8, 4), made, count)).sum()

    def memory(n):
        function = jax.grad(run) if gradient else run
        return jax.jit(function, static_argnums=1).lower(q, n // 100).compile().memory_analysis().temp_size_in_bytes

    few, many = memory(1_000), memory(1_000_000)
    assert few > 0
    if not gradient or name == "intention":   # Intention's queries come after the fold
        assert abs(many - few) <= 0.05 * few
    else:
        # One state per chunk is kept, and no score or key.
        state = STREAMS[name](q).init(8, 4)
        assert many - few <= 1.1 * 9_990 * sum(x.nbytes for x in jax.tree.leaves(state)) + 9_990 * 16


@every_stream
def test_state_size_does_not_depend_on_the_number_of_keys(name):
    stream = make(name, jnp.ones((M, D)))
    shapes = lambda n: jax.eval_shape(stream.update, stream.init(D, K), jnp.ones((n, D)), jnp.ones((n, K)))
    assert shapes(1) == shapes(1000) == jax.eval_shape(lambda: stream.init(D, K))


def test_sigma_forms_have_no_stream():
    assert STREAMS.keys() <= OPS.keys()
    assert not {"sigma_intention", "sigma_informer"} & STREAMS.keys()
    with pytest.raises(ValueError, match="no stream for 'sigma_intention'"):
        streaming.chunked("sigma_intention", 4)


def test_bad_input_is_named():
    q, k, v = draw(dtype=np.float32)
    fixed, open_ = streaming.softmax_stream(q), streaming.intention_stream()
    state = open_.init(D, K)
    for bad, match in [
        (lambda: fixed.read(fixed.init(D, K), q), "made with"),
        (lambda: fixed.init(D + 1, K), "queries"),
        (lambda: fixed.update(fixed.init(D, K), k, v[:3]), "expected query"),
        (lambda: open_.read(state), "no query"),
        (lambda: open_.read(state, q, alpha=-1.0), "alpha"),
        (lambda: open_.read(state, q, form="other"), "form"),
        (lambda: open_.update(state, k, v, weight=jnp.ones(3)), "weight"),
        (lambda: open_.update(state, k, v, jnp.ones(3, bool)), "mask"),
        (lambda: streaming.intention_stream(forgetting=0.0), "forgetting"),
        (lambda: streaming.laplace_stream(q, length_scale=0.0), "length_scale"),
        (lambda: streaming.rls_init(D, K, alpha=0.0), "alpha"),
        (lambda: streaming.rls_update(streaming.rls_init(D, K), k, v, forgetting=2.0), "forgetting"),
        (lambda: streaming.fold(fixed, fixed.init(D, K), k, v, chunk_size=0), "chunk_size"),
        (lambda: streaming.fold(fixed, fixed.init(D, K), k, v[:3], chunk_size=2), "expected key"),
    ]:
        with pytest.raises(ValueError, match=match) as error:
            bad()
        assert "\n" not in str(error.value)
