"""Constant memory: what a state holds does not grow; what Intention forgets, it forgets by age; prefixes of CMABs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.models import Events
from kvq_jax.nn import CMAB, MultiHead
from tests.kvq_jax.models.event_processes.drawing import MARKS, drawn, events, narrow
from tests.kvq_jax.nn.drawing import draw, run, start

FADING = dict(name="intention", alpha=0.1, forgetting=0.9)
SMALL = dict(num_latents=4, features=6, num_heads=2, head_features=3, hidden=5)


def weighed(tree):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", ["cmhp", "intention_hawkes"])
def test_a_million_events_take_the_memory_of_a_thousand(name):
    """Chunks of 1000 events made on the way: the same bytes in the state, and in the program that absorbs them."""
    model = narrow(name)
    variables = drawn(model)

    def program(chunks):
        def step(state, index):
            gap = jax.random.exponential(jax.random.fold_in(jax.random.key(1), index), (1000,))
            mark = jnp.arange(1000, dtype=jnp.int32) % MARKS
            return model.apply(variables, state, Events(gap, mark, None, jnp.zeros(())), method="update_many"), None

        absorb = lambda state: jax.lax.scan(step, state, jnp.arange(chunks))[0]
        return jax.jit(absorb).lower(model.apply(variables, (), method="init_state")).compile()

    empty = model.apply(variables, (), method="init_state")
    few, many = program(1), program(1000)
    memory = lambda found: found.memory_analysis().temp_size_in_bytes
    assert memory(few) > 0 and memory(many) < 1.2 * memory(few) + 8192
    states = few(empty), many(empty)
    assert weighed(states[0]) == weighed(states[1]) == weighed(empty)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(states))
    np.testing.assert_allclose(states[1].elapsed, 5e5, rtol=0.01)


def test_prefixes_of_a_block_are_its_states():
    """Those after each point, by which `read` gives what the block gives for the points until then."""
    block, context, latents = CMAB(**SMALL), draw(2, 5, 6, seed=2), draw(3, 6, seed=1)
    variables = start(block, latents, context)
    mask = np.array([[1, 1, 0, 1, 1], [1, 0, 0, 1, 1]], bool)

    def reads(block, context, mask):
        return block.read(block.prefixes(block.init_state((2,)), context, mask=mask), latents)

    read = jax.jit(nn.apply(reads, block))(variables, context, mask)
    assert read.shape == (5, 2, 3, 6)
    for count in (1, 3, 5):
        until = mask & (np.arange(5) < count)
        np.testing.assert_allclose(
            read[count - 1], run(block, variables, latents, context, mask=until), rtol=2e-4, atol=2e-4
        )


def test_what_is_far_in_the_past_counts_by_its_age():
    """Of a block that forgets, the state after n events holds sum_i l^(n-i) k_i k_i'; an absent event ages nobody."""
    block, context, latents = CMAB(**SMALL, cross_op=FADING), draw(1, 6, 6, seed=3), draw(3, 6, seed=1)
    variables = start(block.clone(cross_op="intention"), latents, context)
    mask = np.array([[1, 1, 1, 0, 1, 1]], bool)

    def states(block, context, mask):
        empty = block.init_state((1,))
        one = block.update(empty, context, mask=mask)
        last = jax.tree.map(lambda x: x[-1], block.prefixes(empty, context, mask=mask))
        return one, last, block.layer_cross_attn.pairs(context)

    one, last, (key, value) = jax.jit(nn.apply(states, block))(variables, context, mask)
    age = np.array([4, 3, 2, 0, 1, 0])
    weight = np.where(mask[0], 0.9**age, 0)
    for state in (one, last):
        np.testing.assert_allclose(state.gram, np.einsum("n,bhnd,bhne->bhde", weight, key, key), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            state.cross, np.einsum("n,bhnd,bhne->bhde", weight, key, value), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(state.decay, 0.9**5, rtol=1e-5)


def test_forgetting_is_of_streams_alone():
    block, context, latents = CMAB(**SMALL, cross_op=FADING), draw(1, 6, 6, seed=3), draw(3, 6, seed=1)
    refused = functools.partial(pytest.raises, ValueError)
    with refused(match="forgetting is an option of the stream of intention: only blocks that stream take it"):
        jax.eval_shape(lambda: block.init(jax.random.key(0), latents, context))
    with refused(match="forgetting is an option of the stream of intention"):
        jax.eval_shape(lambda: MultiHead(2, 3, FADING).init(jax.random.key(0), context, context, context))
    with refused(match="unknown option of softmax 'forgetting'"):
        jax.eval_shape(
            lambda: narrow("cmhp", op=dict(name="softmax", forgetting=0.9)).init(jax.random.key(0), events())
        )
    with refused(match="unknown option of intention 'forgeting': did you mean 'forgetting'"):
        narrowed = narrow("intention_hawkes", cross_op=dict(name="intention", forgeting=0.9))
        jax.eval_shape(lambda: narrowed.init(jax.random.key(0), events()))
    with refused(match="sigma_intention has no streaming state"):
        jax.eval_shape(lambda: narrow("cmhp", op="sigma_intention").init(jax.random.key(0), events()))


def test_chunks_bound_the_memory_of_training():
    """What the gradient keeps of 64 events, 8 at a time: less than a tenth of what it keeps of all at once."""
    model = narrow("cmhp").clone(num_layers=1, num_latents=8, num_block_latents=8)
    gap = jnp.ones((4, 64))
    of, variables = Events(gap, jnp.zeros((4, 64), jnp.int32), None, gap[:, 0]), drawn(model)

    def kept(model):
        backward = lambda v: jax.vjp(lambda v: model.apply(v, of, method="loss"), v)[1]
        return weighed(jax.eval_shape(backward, variables))

    assert kept(model.clone(chunk=8)) < 0.1 * kept(model)
