"""Self-attention over a set that grows: the block of all elements, whatever the op, the parts and their places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.nn import growing
from kvq_jax.nn.set_transformer import MAB, SET_FORMS
from kvq_jax.ops import OPERATORS
from tests.kvq_jax.nn.drawing import draw, start

DIM, N, ROOM = 8, 5, 7
X = draw(2, N, DIM, seed=1)
THERE = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0]], bool)
STREAMED = [name for name, row in OPERATORS.items() if row.stream]


def block(op, form="code"):
    made = MAB(DIM, 2, op, **SET_FORMS[form])
    return made, start(made, X, X)


@pytest.mark.parametrize("form", SET_FORMS)
@pytest.mark.parametrize("op", STREAMED)
def test_each_prefix_is_the_block_of_it(x64, op, form):
    """One element after the other, in places 1, 2, ...; float64, since solves amplify rounding."""
    mab, variables = block(op, form)
    variables, rows = jax.tree.map(np.float64, (variables, X))
    places = np.pad(THERE, ((0, 0), (1, ROOM - N - 1)))

    def one_by_one(mab):
        grown, after_each = growing.empty(mab, (2,), ROOM), []
        for place in range(1, N + 1):
            so_far = places & (np.arange(ROOM) <= place)
            grown = growing.extend(mab, grown, rows[:, place - 1 : place], jnp.int32(place), so_far)
            after_each.append(growing.read(mab, grown)[:, 1 : N + 1])
        return after_each

    whole = jax.jit(lambda there: mab.apply(variables, rows, rows, mask=there))
    for count, grown in enumerate(jax.jit(nn.apply(one_by_one, mab))(variables), 1):
        there = THERE & (np.arange(N) < count)
        np.testing.assert_allclose(np.asarray(grown)[there], np.asarray(whole(there))[there], rtol=1e-10, atol=1e-10)


def test_an_absent_element_counts_for_nothing():
    mab, variables = block("softmax")

    def grown(mab, rows):
        state = growing.empty(mab, (2,), N)
        for begin, end in ((0, 2), (2, N)):
            part = rows[:, begin:end]
            state = growing.extend(mab, state, part, begin, THERE & (np.arange(N) < end))
        return growing.read(mab, state)

    run = jax.jit(nn.apply(grown, mab))
    clean, spoilt = run(variables, X), run(variables, np.where(THERE[..., None], X, np.float32(1e3)))
    np.testing.assert_array_equal(np.asarray(clean)[THERE], np.asarray(spoilt)[THERE])


def test_what_has_no_room_is_refused():
    mab, variables = block("softmax")
    add = nn.apply(
        lambda mab, rows, place: growing.extend(mab, growing.empty(mab, (2,), N), rows, place, np.ones((2, N), bool)),
        mab,
    )
    for rows, place in ((X[:, :1], N), (np.repeat(X, 2, 1), 0), (X[:, :2], np.int64(N - 1)), (X[:, :1], -1)):
        with pytest.raises(ValueError, match=f"no room for {rows.shape[1]} rows from place {place} on: the cache has"):
            add(variables, rows, place)


def test_a_new_element_is_linear_work():
    """Twice the places, twice the operations."""
    mab, variables = block("softmax")

    def work(room):
        add = nn.apply(lambda mab, state, x, there: growing.extend(mab, state, x, 3, there), mab)
        state = jax.eval_shape(nn.apply(lambda mab: growing.empty(mab, (), room), mab), variables)
        arguments = state, jax.ShapeDtypeStruct((1, DIM), np.float32), jax.ShapeDtypeStruct((room,), bool)
        return jax.jit(add).lower(variables, *arguments).compile().cost_analysis()["flops"]

    assert work(1024) / work(512) < 2.1 and work(1024) > 1.8 * work(512)


def test_an_op_without_a_stream_says_so():
    mab, variables = block("sigma_intention")
    with pytest.raises(ValueError, match="sigma_intention has no streaming state"):
        nn.apply(lambda mab: growing.empty(mab, (), 3), mab)(variables)
