"""Numbers and options of the attention operators; the laws they share are in test_laws.py."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.ops import (
    attention,
    erf_attention,
    laplace_attention,
    linear_attention,
    softmax_attention,
    uniform_attention,
)


def draw(*shapes, seed=0, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def test_softmax_by_hand():
    # exp(log 3) : exp(0) = 3 : 1
    out = softmax_attention(jnp.array([[1.0]]), jnp.array([[jnp.log(3.0)], [0.0]]), jnp.array([[1.0, 4.0], [5.0, 0.0]]))
    np.testing.assert_allclose(out, [[2.0, 3.0]], rtol=1e-6)


def test_softmax_scale_is_one_and_flax_agrees_under_its_own():
    q, k, v = draw((2, 3, 1, 4), (2, 5, 1, 4), (2, 5, 1, 6))
    heads_out = lambda x: x[:, :, 0]
    expected = heads_out(nn.dot_product_attention(q, k, v))
    ours = softmax_attention(heads_out(q), heads_out(k), heads_out(v), scale=4**-0.5)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        softmax_attention(2 * heads_out(q), heads_out(k), heads_out(v), scale=0.25), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("op, option", [(softmax_attention, "scale"), (laplace_attention, "length_scale")])
def test_an_array_option_is_one_number_per_leading_index(op, option):
    q, k, v = draw((2, 3, 2), (2, 5, 2), (2, 5, 4))
    numbers = [0.5, 2.0]
    expected = jnp.stack([op(q[i], k[i], v[i], **{option: x}) for i, x in enumerate(numbers)])
    np.testing.assert_allclose(op(q, k, v, **{option: jnp.array(numbers)}), expected, rtol=1e-5, atol=1e-6)
    grad = jax.jit(jax.grad(lambda x: op(q, k, v, **{option: x}).sum()))(jnp.array(numbers))
    assert np.isfinite(grad).all() and grad.any()


def test_softmax_of_large_scores_is_finite():
    q, k, v = draw((3, 2), (5, 2), (5, 4))
    assert np.isfinite(softmax_attention(1e4 * q, 1e4 * k, v)).all()


SHAPES = ((2, 3, 4, 8), (2, 1, 6, 8), (3, 6, 8))  # leading dimensions that broadcast
MASKS = {"none": None, "keys": (2, 3, 6), "pairs": (2, 3, 4, 6)}
LIBRARY = functools.partial(softmax_attention, implementation="xla")


@pytest.mark.parametrize("scale", [0.3, (3,), (2, 1)])
@pytest.mark.parametrize("mask", MASKS)
def test_softmax_by_the_library_is_ours(mask, scale):
    """Values and gradients; under a mask of pairs the first query has no key left, under one of keys the last set has
    none. Float32, since CPUs do not have the algorithms that the library asks for in half precision."""
    arrays = draw(*SHAPES)
    scale = scale if isinstance(scale, float) else draw(scale)[0]
    if MASKS[mask] is not None:
        shape, mask = MASKS[mask], np.random.default_rng(1).random(MASKS[mask]) < 0.7
        mask[(0, 0, 0) if len(shape) == 4 else (1, 2)] = False
    else:
        mask = None

    def loss(arrays, scale, op):
        out = op(*arrays, mask=mask, scale=scale)
        return (out * jnp.cos(jnp.arange(out.size).reshape(out.shape))).sum(), out

    run = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True), static_argnums=2)
    (ours, out), (theirs, library) = run(arrays, scale, softmax_attention), run(arrays, scale, LIBRARY)
    for a, b in zip(jax.tree.leaves((library, theirs)), jax.tree.leaves((out, ours)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=2e-6 * max(np.abs(b).max(), 1))
    if mask is not None:
        nobody = ~np.broadcast_to((mask if mask.ndim == 4 else mask[..., None, :]).any(-1), (2, 3, 4))
        assert nobody.any() and not np.asarray(library)[nobody].any() and not np.asarray(theirs[0][0])[nobody].any()


def test_softmax_by_the_library_with_spoilt_keys_and_without_keys():
    q, k, v = draw((3, 8), (5, 8), (5, 8))
    mask = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)
    out = LIBRARY(q, k.at[2].set(jnp.nan), v.at[2].set(jnp.inf), mask=mask)
    np.testing.assert_allclose(out[0], softmax_attention(q[:1], k, v, mask=mask[0])[0], rtol=1e-5, atol=1e-6)
    assert np.isnan(out[1]).all() and not out[2].any()  # who uses a spoilt key is told
    np.testing.assert_array_equal(LIBRARY(q, k[:0], v[:0]), np.zeros((3, 8)))
    np.testing.assert_allclose(
        jax.vmap(LIBRARY, (None, None, 1), 1)(q, k, jnp.stack([v, 2 * v], 1))[:, 1],
        2 * softmax_attention(q, k, v),
        rtol=1e-5,
        atol=1e-6,
    )
    with pytest.raises(ValueError, match="value"):
        LIBRARY(q, k, v[:, :4])
    with pytest.raises(ValueError, match="(?i)implementation"):
        softmax_attention(q, k, v, implementation="xls")


def lowered(dtype, platform, op=softmax_attention, k=16):
    shapes = [jax.ShapeDtypeStruct((2, 256, n), dtype) for n in (16, 16, k)]
    step = jax.grad(lambda *a: op(*a).astype(jnp.float32).sum(), argnums=(0, 1, 2))
    return jax.jit(step).trace(*shapes).lower(lowering_platforms=(platform,))


def test_softmax_takes_the_library_on_accelerators_only_and_in_half_precision_only(monkeypatch):
    layout = lambda program: "x256x1x16x" in program.as_text()  # [B, T, H, D]
    assert layout(lowered(jnp.bfloat16, "cpu", LIBRARY))
    alone = lowered(jnp.bfloat16, "cpu").compile().memory_analysis().temp_size_in_bytes
    assert not layout(lowered(jnp.bfloat16, "cpu"))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert (
        layout(lowered(jnp.bfloat16, "cuda"))
        and layout(lowered(jnp.bfloat16, "tpu"))
        and layout(lowered(jnp.float16, "cuda"))
    )
    for dtype, k in [(jnp.float32, 16), (jnp.bfloat16, 8)]:
        assert not layout(lowered(dtype, "cuda", k=k))
    assert "HIGHEST" in lowered(jnp.float32, "cuda").as_text()
    assert lowered(jnp.bfloat16, "cpu").compile().memory_analysis().temp_size_in_bytes == alone
    q, k, v = draw((3, 8), (5, 8), (5, 8), dtype=jnp.bfloat16)
    chosen = jax.jit(softmax_attention)(q, k, v, mask=jnp.arange(5) < 3)
    monkeypatch.undo()
    np.testing.assert_array_equal(chosen, jax.jit(lambda: softmax_attention(q, k, v, mask=jnp.arange(5) < 3))())


@pytest.mark.parametrize("m, n, d, k", [(9, 11, 1, 1), (2, 3, 8, 8)])
def test_linear_attention_in_either_order(m, n, d, k):
    q, key, v = draw((m, d), (n, d), (n, k))
    np.testing.assert_allclose(linear_attention(q, key, v), (q @ key.T) @ v, rtol=1e-4, atol=1e-4)
    keep = jnp.arange(n) % 2 == 0
    np.testing.assert_allclose(
        linear_attention(q, key, v, mask=keep), (q @ key[keep].T) @ v[keep], rtol=1e-4, atol=1e-4
    )


def test_laplace_by_hand():
    # Distances 0 and log 3, in the metric of the first norm.
    key = jnp.array([[0.0, 0.0], [0.5 * jnp.log(3.0), -0.5 * jnp.log(3.0)]])
    np.testing.assert_allclose(laplace_attention(jnp.zeros((1, 2)), key, jnp.array([[4.0], [0.0]])), [[3.0]], rtol=1e-6)


def test_laplace_attends_to_the_nearest_key_as_the_scale_shrinks():
    q, k, v = draw((3, 2), (5, 2), (5, 4))
    nearest = jnp.abs(q[:, None] - k[None]).sum(-1).argmin(-1)
    np.testing.assert_allclose(laplace_attention(q, k, v, length_scale=1e-4), v[nearest], rtol=1e-6)
    with pytest.raises(ValueError, match="length_scale must be positive"):
        laplace_attention(q, k, v, length_scale=0.0)


def test_uniform_is_the_mean_whatever_the_keys_hold():
    q, k, v = draw((3, 2), (5, 2), (5, 4))
    k = k * jnp.nan
    np.testing.assert_allclose(uniform_attention(q, k, v), np.tile(v.mean(0), (3, 1)), rtol=1e-6, atol=1e-6)
    mask = jnp.array([[True, True, False, False, False], [False] * 5, [True] * 5])
    expected = [v[:2].mean(0), 0 * v[0], v.mean(0)]
    np.testing.assert_allclose(uniform_attention(q, k, v, mask=mask), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("values", [(3,), (4, 2, 3)])  # of the same scores, 4 of them
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "op, option",
    [
        (softmax_attention, {}),
        (softmax_attention, {"scale": (2, 1)}),
        (laplace_attention, {"length_scale": (3,)}),
        (linear_attention, {}),
        (erf_attention, {}),
    ],
)
def test_matrices_in_turn_give_what_all_of_them_give(monkeypatch, op, option, mask, values):
    """Values, gradients, and those of a batch by vmap, as many large matrices are computed on a CPU, each once."""
    arrays, shape = draw(*SHAPES[:2], (*values, 6, 8)), MASKS[mask]
    mask = None if shape is None else jnp.asarray(np.random.default_rng(1).random(shape) < 0.6).at[0, 0].set(False)
    option = {name: jnp.abs(draw(own)[0]) + 0.5 for name, own in option.items()}

    def results():
        def loss(arrays, option, mask=mask):
            out = op(*arrays, mask=mask, **option)
            return (out * jnp.cos(jnp.arange(out.size).reshape(out.shape))).sum(), out

        both = jax.grad(loss, argnums=(0, 1), has_aux=True)
        batch = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), (arrays, option))
        made = jax.make_jaxpr(both)(arrays, option)
        return str(made), jax.jit(both)(arrays, option), jax.jit(jax.vmap(both))(*batch)

    together, *expected = results()
    monkeypatch.setattr(attention, "_LARGE", 1)
    monkeypatch.setattr(attention, "_TOO_MANY", 1)
    in_turn, *found = results()
    assert "scan" not in together
    no_scores = op is linear_attention and shape != MASKS["pairs"]
    assert no_scores or set(re.findall(r" length=(\d+)", in_turn)) == {"6"}  # matrices of scores
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6 * max(np.abs(b).max(), 1))


def test_large_matrices_are_held_one_at_a_time():
    arrays = draw((8, 512, 4), (8, 512, 4), (8, 512, 4))
    gradient = jax.jit(
        jax.grad(lambda query, key, value: softmax_attention(query, key, value).sum(), argnums=(0, 1, 2))
    )
    needed = gradient.lower(*arrays).compile().memory_analysis().temp_size_in_bytes
    assert needed < 4 * 4 * 512**2 < 8 * 4 * 512**2  # bytes of all scores
