"""What counts as a mask, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.ops import OPS, masks


def resolved(mask_shape, query=(2, 3, 7), key=(2, 5, 7)):
    pairs = masks.resolve(jnp.ones(query), jnp.ones(key), jnp.ones((*key[:-1], 1)), jnp.ones(mask_shape, bool))
    return pairs.shape


def test_no_mask_stays_none():
    assert masks.resolve(jnp.ones((3, 7)), jnp.ones((5, 7)), jnp.ones((5, 1)), None) is None


@pytest.mark.parametrize(
    "mask, expected",
    [
        ((5,), (1, 5)),
        ((2, 5), (2, 1, 5)),
        ((1, 5), (1, 1, 5)),
        ((2, 3, 5), (2, 3, 5)),
        ((1, 3, 5), (1, 3, 5)),
        ((2, 1, 5), (2, 1, 5)),
    ],
)
def test_key_masks_and_pair_masks(mask, expected):
    assert resolved(mask) == expected


def test_a_mask_may_have_as_many_dimensions_as_the_queries():
    assert resolved((2, 3, 5), key=(5, 7)) == (2, 3, 5)


@pytest.mark.parametrize("mask", [(4,), (3, 5), (2, 4), (2, 4, 5), (2, 3, 4), (3, 3, 5), (1, 2, 3, 5), ()])
def test_wrong_shapes_are_one_clear_line(mask):
    with pytest.raises(ValueError, match=r"expected a mask \[..., 5\] over keys or \[..., 3, 5\]") as error:
        resolved(mask)
    assert "\n" not in str(error.value) and str(mask) in str(error.value)


@pytest.mark.parametrize(
    "op, option",
    [
        ("softmax", "scale"),
        ("laplace", "length_scale"),
        *((op, "alpha") for op in ("intention", "informer", "sigma_intention", "sigma_informer", "kernel_intention")),
    ],
)
def test_options_of_other_leading_dimensions_are_one_clear_line(op, option):
    query, key, value = jnp.ones((4, 3)), jnp.ones((2, 5, 3)), jnp.ones((2, 5, 1))
    assert OPS[op](query, key, value, **{option: jnp.full(2, 0.5)}).shape == (2, 4, 1)
    with pytest.raises(ValueError, match=r"of leading dimensions \(3,\) does not fit") as error:
        OPS[op](query, key, value, **{option: jnp.full(3, 0.5)})
    assert "\n" not in str(error.value)


def test_weights_and_landmarks_of_other_leading_dimensions_are_one_clear_line():
    query, key, value = jnp.ones((4, 3)), jnp.ones((2, 5, 3)), jnp.ones((2, 5, 1))
    for op, options in (("intention", {"sample_weight": (3, 5)}), ("nystroem_intention", {"landmarks": (3, 2, 3)})):
        with pytest.raises(ValueError, match=r"of leading dimensions \(3,\) does not fit"):
            OPS[op](query, key, value, **{name: jnp.ones(shape) for name, shape in options.items()})


def test_an_additive_mask_is_refused():
    with pytest.raises(ValueError, match="boolean"):
        masks.resolve(jnp.ones((3, 7)), jnp.ones((5, 7)), jnp.ones((5, 1)), jnp.zeros(5))


def test_integers_are_read_as_booleans():
    pairs = masks.resolve(jnp.ones((3, 7)), jnp.ones((5, 7)), jnp.ones((5, 1)), jnp.array([1, 0, 1, 0, 0]))
    np.testing.assert_array_equal(pairs, [[True, False, True, False, False]])
