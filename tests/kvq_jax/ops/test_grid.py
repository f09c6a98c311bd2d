"""Mode-3 unfolding: fold undoes it, 1x1 convolution and attention act on it, and the output's grid is the query's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.ops import OPS, intention, softmax_attention
from kvq_jax.ops.grid import fold, grid_attention, unfold
from tests.kvq_jax.ops import reference


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def close(a, b, tolerance=1e-5):
    reference.close(a, b, tolerance)


def convolve(image, kernel):
    """image [B, h, w, c], kernel [a, b, c, k], circular padding."""
    pad = [(0, 0)] + [((n - 1) // 2, n // 2) for n in kernel.shape[:2]] + [(0, 0)]
    return jax.lax.conv_general_dilated(
        jnp.pad(image, pad, mode="wrap"), kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@pytest.mark.parametrize(
    "shape, axes", [((3, 4, 2), 2), ((5, 3, 4, 2), 2), ((2, 5, 3, 4, 2), 2), ((5, 3, 4, 2), 3), ((6, 2), 1)]
)
def test_fold_undoes_unfold(shape, axes):
    grid = draw(*shape)
    rows = unfold(grid, axes)
    assert rows.shape == (*shape[: -axes - 1], np.prod(shape[-axes - 1 : -1]), 2)
    assert (fold(rows, shape[-axes - 1 : -1]) == grid).all()


def test_points_are_in_row_major_order():
    image = jnp.arange(24).reshape(2, 3, 4)
    assert (unfold(image)[1 * 3 + 2] == image[1, 2]).all()
    video = jnp.arange(120).reshape(5, 2, 3, 4)
    assert (unfold(video, 3)[(4 * 2 + 1) * 3 + 2] == video[4, 1, 2]).all()


def test_a_1x1_convolution_is_a_dense_layer_on_the_unfolded_grid():
    image, kernel = draw(2, 4, 5, 3), draw(1, 1, 3, 6, seed=1)
    close(convolve(image, kernel), fold(unfold(image) @ kernel[0, 0], (4, 5)))


def test_permutation_law_of_convolutions():
    """1x1: equivariant to every permutation of pixels. Larger: to translations only, exact with circular padding."""
    image, rows = draw(2, 4, 5, 3), np.random.default_rng(2).permutation(20)
    permute = lambda grid: fold(unfold(grid)[:, rows], (4, 5))
    small, large = draw(1, 1, 3, 6, seed=1), draw(3, 3, 3, 6, seed=1)
    close(convolve(permute(image), small), permute(convolve(image, small)))
    assert np.abs(convolve(permute(image), large) - permute(convolve(image, large))).max() > 0.1
    roll = lambda grid: jnp.roll(grid, (1, 2), (1, 2))
    close(convolve(roll(image), large), roll(convolve(image, large)))


@pytest.mark.parametrize("name", ["softmax", "linear", "uniform", "intention", "sigma_intention"])
def test_grid_attention_is_the_operator_on_points(name):
    query, key, value = draw(2, 2, 3, 4), draw(2, 4, 5, 4, seed=1), draw(2, 4, 5, 6, seed=2)
    out = jax.jit(lambda *a: grid_attention(*a, op=OPS[name]))(query, key, value)
    assert out.shape == (2, 2, 3, 6)  # the query's grid, the values' channels
    expected = jax.jit(OPS[name])(*(x.reshape(2, -1, x.shape[-1]) for x in (query, key, value)))
    close(out, expected.reshape(2, 2, 3, 6))
    close(out[1, 1, 2], expected[1, 5])


@pytest.mark.parametrize("op", [softmax_attention, intention])
def test_self_attention_on_pixels_is_permutation_equivariant(op):
    image, rows = draw(1, 3, 4, 3), np.random.default_rng(2).permutation(12)
    permute = lambda grid: fold(unfold(grid)[:, rows], (3, 4))
    attend = jax.jit(lambda x: grid_attention(x, x, x, op=op))
    close(attend(permute(image)), permute(attend(image)), 1e-4)
    close(attend(image[:, ::-1, ::-1]), attend(image)[:, ::-1, ::-1], 1e-4)  # flips are permutations too


@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (8, 6)])
def test_query_grid_sets_the_output_grid(grid):
    learnt, image = draw(*grid, 3), draw(2, 4, 3, 3, seed=1)
    out = grid_attention(learnt, image, image)
    assert out.shape == (2, *grid, 3)
    flipped = image[:, ::-1]
    close(grid_attention(learnt, flipped, flipped), out)  # a learnable query: invariant


def test_video():
    video, query = draw(2, 3, 4, 5, 6), draw(2, 2, 2, 2, 6, seed=1)
    out = grid_attention(query, video, video, axes=3)
    assert out.shape == query.shape
    close(
        out[1, 1, 0, 1], softmax_attention(query[1, 1, 0, 1][None], video[1].reshape(60, 6), video[1].reshape(60, 6))[0]
    )
    image = draw(2, 7, 8, 6, seed=2)
    assert grid_attention(image, video, video, key_axes=3).shape == (2, 7, 8, 6)


def test_masks():
    query, key, value = draw(2, 2, 3, 4), draw(2, 3, 3, 4, seed=1), draw(2, 3, 3, 5, seed=2)
    keep = jnp.arange(9).reshape(3, 3) % 4 != 1
    out = grid_attention(query, key, value, mask=keep)
    rows = [x.reshape(2, -1, x.shape[-1]) for x in (query, key, value)]
    close(out.reshape(2, 6, 5), softmax_attention(*rows, mask=keep.reshape(9)))
    close(grid_attention(query, key, value, mask=jnp.broadcast_to(keep, (2, 3, 3))), out)
    close(grid_attention(query, key, value, mask=jnp.broadcast_to(keep, (2, 2, 3, 3, 3))), out)
    pairs = jax.random.bernoulli(jax.random.key(0), 0.5, (2, 2, 3, 3, 3))
    close(
        grid_attention(query, key, value, mask=pairs).reshape(2, 6, 5),
        softmax_attention(*rows, mask=pairs.reshape(2, 6, 9)),
    )
    close(grid_attention(query, key, value, mask=jnp.zeros((3, 3), bool)), np.zeros((2, 2, 3, 5)))


def test_bad_shapes_are_named():
    image = draw(4, 5, 3)
    for bad, match in [
        (lambda: unfold(image, 3), "expected a grid"),
        (lambda: fold(unfold(image), (4, 4)), "expected rows"),
        (lambda: grid_attention(image, image, image[:3]), "one grid"),
        (lambda: grid_attention(image, image, image, mask=jnp.ones((5, 4), bool)), "mask"),
    ]:
        with pytest.raises(ValueError, match=match):
            bad()
