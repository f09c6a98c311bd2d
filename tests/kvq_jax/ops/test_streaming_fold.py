"""Folds over chunks, all prefixes, and devices: equal to the operators, in constant memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from kvq_jax.ops import OPS, softmax_attention, streaming
from tests.kvq_jax.ops.streams import (
    FADING,
    OPTIONS,
    STREAMS,
    D,
    K,
    M,
    N,
    close,
    draw,
    every_state,
    every_stream,
    make,
    trees_close,
)


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
        out, out_half, empty = jax.jit(lambda size=size: outputs(streaming.chunked(name, size)))()
        close(out, expected, 3e-5)
        assert out_half.dtype == jnp.bfloat16
        close(out_half.astype(float) / scale, expected_half.astype(float) / scale, 0.03)
        close(empty, nothing)


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
        state, out = step(state, k[i : i + 1], v[i : i + 1], mask[i : i + 1])
        trees_close(jax.tree.map(lambda x, i=i: x[i], states), state, 1e-11)
        close(outputs[i], out, 1e-11)


@every_state
def test_prefix_gradients_are_finite(name):
    q, k, v = draw(12, np.float32, n=4)
    mask = jnp.array([False, False, True, True])  # the first prefixes are empty

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
    mask = mask.at[8:12].set(False)  # nothing left on one device
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
    if not gradient or name == "intention":  # Intention's queries come after the fold
        assert abs(many - few) <= 0.05 * few
    else:
        # One state per chunk is kept, and no score or key.
        state = STREAMS[name](q).init(8, 4)
        assert many - few <= 1.1 * 9_990 * sum(x.nbytes for x in jax.tree.leaves(state)) + 9_990 * 16
