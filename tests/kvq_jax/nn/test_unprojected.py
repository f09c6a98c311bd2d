"""Cross-attention without projections against its formulas; stacked self-attention; and the maps of attention."""

import jax
import numpy as np
import pytest
import scipy.special

from kvq_jax.nn.np_encoders import CrossAttentionEncoder, PoolingEncoder
from tests.kvq_jax.nn.drawing import draw, start

X, Y, QUERY = draw(6, 2), draw(6, 1, seed=1), draw(4, 2, seed=2)
ALONE = dict(hidden=8, value_depth=1, num_heads=0, self_attention=False)
KINDS = {
    "uniform": (dict(op="uniform", key_depth=0), lambda query, key: np.zeros((4, 6))),
    "laplace": (
        dict(op="laplace", key_depth=0, scaling="none"),
        lambda query, key: -np.abs(query[:, None] - key).sum(-1),
    ),
    "dot_product": (dict(op="softmax", key_depth=1), lambda query, key: query @ key.T / np.sqrt(8)),
}


def linear(variables, name, x):
    layer = variables["params"][name]["layer_0"]
    return np.asarray(x, np.float64) @ layer["kernel"] + layer["bias"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_alone_is_its_formula(kind):
    fields, scores = KINDS[kind]
    encoder = CrossAttentionEncoder(**{**ALONE, **dict(scaling="head"), **fields})
    variables = start(encoder, X, Y, QUERY)
    assert set(variables["params"]) == {"value", *(["key"] if fields["key_depth"] else [])}
    rows = [linear(variables, "key", x) if fields["key_depth"] else x for x in (QUERY, X)]
    weights = scipy.special.softmax(scores(*rows)[:, :5], axis=-1)
    expected = weights @ linear(variables, "value", np.concatenate([X, Y], -1))[:5]
    mask = np.arange(6) < 5
    np.testing.assert_allclose(encoder.apply(variables, X, Y, QUERY, mask=mask), expected, rtol=1e-4, atol=1e-5)
    memory = encoder.apply(variables, X, Y, mask=mask, method="remember")
    np.testing.assert_allclose(encoder.apply(variables, memory, QUERY, method="read"), expected, rtol=1e-4, atol=1e-5)
    found = encoder.apply(variables, X, QUERY, mask=mask, method="weights")
    np.testing.assert_allclose(found[0], np.pad(weights, [(0, 0), (0, 1)]), rtol=1e-4, atol=1e-6)


def test_the_state_of_an_operator_alone():
    encoder = CrossAttentionEncoder(**ALONE, op=dict(name="intention", alpha=0.3))
    variables = start(encoder, X, Y, QUERY)

    def in_parts(encoder):
        state = encoder.update(encoder.init_state(), X[:2], Y[:2])
        return encoder.read(encoder.finish(encoder.update(state, X[2:], Y[2:])), QUERY)

    found = encoder.apply(variables, method=in_parts)
    np.testing.assert_allclose(found, encoder.apply(variables, X, Y, QUERY), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("op", ["softmax", dict(name="intention", alpha=0.3), "linear"])
def test_weights_of_heads_mix_the_values(op):
    encoder = CrossAttentionEncoder(hidden=8, value_depth=3, num_heads=2, op=op)
    variables = start(encoder, X, Y, QUERY)

    def by_weights(encoder):
        mixed = encoder.weights(X, QUERY) @ encoder.remember(X, Y).value
        return encoder.cross_attention.output(encoder.key(QUERY), mixed)

    found = encoder.apply(variables, method=by_weights)
    np.testing.assert_allclose(found, encoder.apply(variables, X, Y, QUERY), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [CrossAttentionEncoder, PoolingEncoder])
def test_layers_of_self_attention(kind):
    """One layer is the published model; each more has parameters and depends on the others."""
    trees = [start(kind(hidden=8, num_heads=2, self_attention=layers), X, Y, QUERY) for layers in (True, 1, 3)]
    one, same, three = (jax.tree.map(np.shape, tree["params"]) for tree in trees)
    assert one == same and set(three) - set(one) == {"further_0", "further_1"}
    assert three["further_1"] == three["attention"] and {name: three[name] for name in one} == one
    encoder = kind(hidden=8, num_heads=2, self_attention=3)
    rows = encoder.apply(trees[2], X, Y, QUERY)
    without = {"params": {**trees[2]["params"], "further_1": trees[2]["params"]["further_0"]}}
    assert not np.allclose(rows, encoder.apply(without, X, Y, QUERY), atol=1e-4)


@pytest.mark.parametrize("kind", [CrossAttentionEncoder, PoolingEncoder])
def test_self_attention_has_heads(kind):
    with pytest.raises(ValueError, match="self-attention has heads: num_heads=0 goes with self_attention=False"):
        start(kind(num_heads=0, self_attention=True), X, Y, QUERY)


@pytest.mark.parametrize("self_attention", [False, True])
@pytest.mark.parametrize("kind", [PoolingEncoder, CrossAttentionEncoder])
def test_resampled_points_count_as_often_as_they_are_drawn(kind, self_attention):
    """With the points encoded once, and with each copy of them encoded anew; the last places are empty."""
    encoder = kind(hidden=8, self_attention=self_attention, num_heads=2)
    variables, masks = start(encoder, X, Y, QUERY), np.broadcast_to(np.arange(6) < 4, (3, 6))
    indices = np.random.default_rng(0).integers(0, 4, (3, 6))
    found = encoder.apply(variables, X, Y, QUERY, indices, mask=masks, method="resampled")
    expected = encoder.apply(variables, np.asarray(X)[indices], np.asarray(Y)[indices], QUERY, mask=masks)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    whole = encoder.apply(variables, X, Y, QUERY, indices, method="resampled")
    anew = encoder.apply(variables, np.asarray(X)[indices], np.asarray(Y)[indices], QUERY)
    np.testing.assert_allclose(whole, anew, rtol=1e-4, atol=1e-5)
    empty = encoder.apply(variables, X, Y, QUERY, indices, mask=np.zeros((3, 6), bool), method="resampled")
    none = encoder.apply(variables, X[:0], Y[:0], QUERY)
    np.testing.assert_allclose(empty, np.broadcast_to(none, empty.shape), rtol=1e-4, atol=1e-5)
