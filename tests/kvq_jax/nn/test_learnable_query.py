"""Attention with learnable queries, and attention on grids: against their formulas; laws that the slides state."""

import numpy as np
import pytest

from kvq_jax.nn.grid import GridAttention
from kvq_jax.nn.learnable_query import LearnableQueryAttention
from tests.kvq_jax.nn.drawing import count, draw, run, start
from tests.kvq_jax.ops.reference import REFERENCES, softmax

X = draw(2, 5, 6, seed=1)


def test_is_the_formula_of_the_slides():
    """O = W_v X softmax((W_k X)' Q), written for rows: one head, no W_o."""
    module = LearnableQueryAttention(3, 1, 4, scaling="none", use_bias=False, use_output=False)
    variables = start(module, X)
    p = variables["params"]
    assert p.keys() == {"queries", "key", "value"}
    expected = softmax(p["queries"] @ (X[0] @ p["key"]["kernel"]).T) @ (X[0] @ p["value"]["kernel"])
    np.testing.assert_allclose(run(module, variables, X)[0], expected, rtol=1e-5, atol=1e-5)


def test_heads_and_output_layer():
    module = LearnableQueryAttention(3, 2, 4, op="linear", out_features=7)
    variables = start(module, X)
    p, heads = variables["params"], []
    for columns in np.split(np.arange(8), 2):
        key, value = (X[1] @ p[name]["kernel"][:, columns] + p[name]["bias"][columns] for name in ("key", "value"))
        heads.append(REFERENCES["linear"](p["queries"][:, columns] / 2, key, value))
    expected = np.concatenate(heads, -1) @ p["out"]["kernel"] + p["out"]["bias"]
    np.testing.assert_allclose(run(module, variables, X)[1], expected, rtol=1e-4, atol=1e-5)
    assert count(module, X) == 3 * 8 + 2 * (6 * 8 + 8) + 8 * 7 + 7


def test_masks_and_nothing_left():
    module = LearnableQueryAttention(3, 2, 4, op=dict(name="intention", alpha_kind="softplus"))
    variables = start(module, X)
    assert variables["params"]["mixer"]["alpha"]["theta"].shape == (2,)
    mask = np.array([[1, 0, 1, 1, 0], [0] * 5], bool)
    output = run(module, variables, X, mask=mask)
    np.testing.assert_allclose(output[0], run(module, variables, X[0, [0, 2, 3]]), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(output[1], np.broadcast_to(variables["params"]["out"]["bias"], (3, 8)), atol=1e-6)


def test_grid_of_queries_sets_the_grid_of_the_output():
    image, video = draw(2, 3, 4, 5, seed=1), draw(2, 3, 4, 5, seed=2)
    for x, axes, sizes in [(image, 2, (2, 6)), (video, 3, (1, 2, 2)), (image, 2, (5, 5))]:
        module = GridAttention(2, 4, axes=axes, query_sizes=sizes)
        variables = start(module, x)
        assert run(module, variables, x).shape == (*x.shape[: -axes - 1], *sizes, 8)
        rows = x.reshape(*x.shape[: -axes - 1], -1, 5)
        pool = LearnableQueryAttention(int(np.prod(sizes)), 2, 4)
        expected = run(pool, {"params": variables["params"]["heads"]}, rows)
        np.testing.assert_allclose(run(module, variables, x).reshape(expected.shape), expected, atol=1e-6)


def test_rotations_and_flips_are_permutations():
    """Self-attention on a grid without positions turns and flips with its input, and its mask."""
    x, mask = draw(4, 4, 5, seed=1), np.random.default_rng(0).random((4, 4)) < 0.7
    module = GridAttention(2, 4, op="sigma_intention")
    variables = start(module, x)
    output = run(module, variables, x, mask=mask)
    for move in (np.rot90, np.flipud, np.fliplr, lambda a: np.roll(a, 1, 0), lambda a: a.swapaxes(0, 1)):
        np.testing.assert_allclose(run(module, variables, move(x), mask=move(mask)), move(output), rtol=1e-3, atol=1e-4)


def test_refusals():
    with pytest.raises(ValueError, match="use_output=False"):
        count(LearnableQueryAttention(3, out_features=4, use_output=False), X)
    with pytest.raises(ValueError, match="unknown op 'soft'"):
        count(LearnableQueryAttention(3, op="soft"), X)
    with pytest.raises(ValueError, match=r"expected a mask \[..., \(3, 4\)\]"):
        count(GridAttention(), draw(2, 3, 4, 5), mask=np.ones((2, 12), bool))
