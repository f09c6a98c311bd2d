"""Streaming states: equal to the operators for any parts, order, masks and merges, and of constant size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from kvq_jax.ops import OPS, intention, intention_weights, softmax_attention, streaming
from tests.kvq_jax.ops.streams import (
    BATCH,
    FADING,
    FIXED,
    OPTIONS,
    STREAMS,
    D,
    K,
    M,
    N,
    close,
    draw,
    every_stream,
    make,
    trees_close,
)

# One compilation per stream, dtype and chunk size serves all examples.
SIZES = (1, 3)
UPDATE = {name: jax.jit(lambda q, s, k, v, m, name=name: make(name, q).update(s, k, v, m)) for name in STREAMS}
MERGE = {name: jax.jit(lambda q, a, b, name=name: make(name, q).merge(a, b)) for name in STREAMS}
READ = {name: jax.jit(lambda q, s, name=name: make(name, q).read(s)) for name in STREAMS}


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


@every_stream
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), keep=st.lists(st.booleans(), min_size=N, max_size=N))
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
@given(seed=st.integers(0, 2**16), spread=st.sampled_from([1e3, 1e4, 1e30]))
def test_huge_scores(dtype, tolerance, seed, spread):
    """Scores of +-1e4 and beyond, with rivals so close that a float32 log-normaliser could not tell them apart."""
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
    q, k = 1e4 * jnp.round(2 * q), jnp.round(2 * k)  # integers: scores have no rounding
    q, k = q.at[0].set(1e4), k.at[2:4].set(9.0)  # two keys share the largest score of the first query
    gradient = lambda op: jax.jit(jax.grad(lambda *a: (op(*a) ** 2).sum(), argnums=(0, 1, 2)))(q, k, v)
    ours, expected = gradient(streaming.chunked("softmax", 3)), gradient(softmax_attention)
    assert jnp.abs(expected[1][2:4]).min() > 1000
    for x, y in zip(ours, expected):
        close(x / (1 + jnp.abs(y).max()), y / (1 + jnp.abs(y).max()), 1e-5)


@pytest.mark.parametrize("name, fading", [(name, False) for name in STREAMS] + [(name, True) for name in FADING])
def test_merge_is_associative_with_identity_and_commutative_unless_it_fades(name, fading, x64):
    q, k, v = draw()
    stream = make(name, q, **({"forgetting": 0.8} if fading else {}))
    empty = stream.init(D, K, dtype=np.float64)
    a, b, c = jax.jit(lambda: [stream.update(empty, k[i : i + 4], v[i : i + 4]) for i in (0, 4, 8)])()
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
    mask = jnp.arange(N) % 5 != 1  # a whole chunk is masked below
    mask = mask.at[5:10].set(False)
    weight = jnp.cos(jnp.arange(M * K)).reshape(M, K)
    loss = lambda op: jax.jit(
        jax.value_and_grad(lambda *a: (weight * op(*a, mask=mask, **OPTIONS[name])).sum(), argnums=(0, 1, 2))
    )
    trees_close(loss(streaming.chunked(name, 5))(q, k, v), loss(OPS[name])(q, k, v), 1e-10)


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
            close(
                streaming.weights(state, alpha=alpha, form=form), intention_weights(k, v, alpha=alpha, form=form), 1e-10
            )


@every_stream
def test_state_size_does_not_depend_on_the_number_of_keys(name):
    stream = make(name, jnp.ones((M, D)))
    shapes = lambda n: jax.eval_shape(stream.update, stream.init(D, K), jnp.ones((n, D)), jnp.ones((n, K)))
    assert shapes(1) == shapes(1000) == jax.eval_shape(lambda: stream.init(D, K))


def test_sigma_forms_have_no_stream():
    assert STREAMS.keys() <= OPS.keys()
    assert not {"sigma_intention", "sigma_informer"} & STREAMS.keys()
    with pytest.raises(ValueError, match="unknown operator with a stream 'sigma_intention'"):
        streaming.chunked("sigma_intention", 4)


@pytest.mark.parametrize("name", STREAMS)
def test_a_state_takes_no_keys_and_values_of_another_width(name):
    """Not even of width 1, which would broadcast; nor a batch, or a state, that does not fit."""
    q, k, v = draw(dtype=np.float32)
    stream = make(name, q)
    two = stream.update(stream.init(D, K), jnp.stack([k, k]), jnp.stack([v, v]))
    narrow = make(name, q[:, :1])
    bad = [
        lambda: stream.update(two, k, v[:, :1]),
        lambda: stream.update(two, jnp.stack([k] * 3), jnp.stack([v] * 3)),
        lambda: stream.merge(two, stream.init(D, 1)),
        lambda: stream.merge(two, stream.init(D, K, batch=(3,))),
    ]
    if name != "uniform":  # whose keys count alone
        bad += [lambda: stream.update(two, k[:, :1], v)]
    if name in ("linear", "intention", "informer"):
        bad += [lambda: stream.merge(two, narrow.init(1, K)), lambda: stream.read(two, q[:, :1])]
    if stream.forget:
        bad += [lambda: stream.forget(two, k, v[:, :1])]
    for attempt in bad:
        with pytest.raises(ValueError, match="expected|does not fit"):
            attempt()


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
        (lambda: streaming.chunked("intention", 2)(q, k, v, unit="trace"), "unknown option of the stream of intention"),
        (lambda: streaming.fold(fixed, fixed.init(D, K), k, v[:3], chunk_size=2), "expected key"),
        (lambda: open_.update(state, jnp.stack([k, k]), v, weight=jnp.ones((3, N))), "weight"),
        (lambda: open_.read(open_.update(state, k, v), q[..., :1]), "expected a query"),
        (lambda: streaming.rls_update(streaming.rls_init(D, K), k[..., :1], v), "expected keys"),
        (lambda: streaming.rls_update(streaming.rls_init(D, K), k, v[..., :1]), "expected keys"),
        (lambda: streaming.rls_read(streaming.rls_init(D, K), q[..., :1]), "expected a query"),
    ]:
        with pytest.raises(ValueError, match=match) as error:
            bad()
        assert "\n" not in str(error.value)
