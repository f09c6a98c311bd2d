"""The detector of anomalies in sets: its sizes, its permutations, absent elements, dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.models import SetAnomalyDetector
from kvq_jax.nn import FORMERS
from tests.kvq_jax.nn.drawing import draw, start

NARROW = dict(hidden=8, embed_features=8)
SMALL = dict.fromkeys(FORMERS, NARROW | dict(num_heads=2, head_features=4))
SMALL["np_former"] = SMALL["np_former"] | dict(context_features=8)


@pytest.mark.parametrize("layer", FORMERS)
def test_a_permuted_set_has_permuted_logits_and_a_masked_element_is_absent(layer):
    model, x = SetAnomalyDetector(layer, num_layers=1, features=8, options=SMALL[layer]), draw(6, 5)
    order, mask = np.random.default_rng(0).permutation(6), np.arange(6) < 4
    everyone, garbage = np.ones(6, bool), np.where(mask[:, None], x, 100)
    sets, masks = np.stack([x, x[order], garbage, x, x]), np.stack([everyone, everyone, mask, mask, ~everyone])
    logits, moved, spoilt, masked, nothing = jax.jit(model.apply)(start(model, x), sets, mask=masks)
    assert logits.shape == (6,)
    np.testing.assert_allclose(moved, logits[order], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(spoilt[:4], masked[:4], rtol=1e-3, atol=1e-4)
    assert np.abs(masked - logits)[:4].max() > 1e-3  # an element is judged by the others
    assert (jax.nn.softmax(masked)[4:] == 0).all() and np.isfinite(jax.nn.log_softmax(nothing)).all()


def test_the_published_widths():
    """512 -> 1024; e_X, four heads of e_Q, e_K and e_V, e_H, e_O with 2048 units and two LayerNorms; the head.

    The NP-Former has, for the first five, e_Q, e_K, e_V, in each head an e_C of pairs with two layers and an e_Z of
    [e_Q ; e_C], and e_H.
    """
    linear = lambda a, b: a * b + b
    mix = dict.fromkeys(FORMERS, 5 * linear(1024, 1024))
    mix["informer"] += 4  # an alpha for each head
    mix["sigma_informer"] += 4
    mix["np_former"] = 4 * linear(1024, 1024) + 4 * (linear(512, 1024) + linear(1024, 1024) + linear(1280, 256))
    rest = linear(1024, 2048) + linear(2048, 1024) + 2 * 2 * 1024
    around = linear(512, 1024) + linear(1024, 1024) + 2 * 1024 + linear(1024, 1)
    for name in FORMERS:
        for depth in (1, 4):
            shapes = jax.eval_shape(SetAnomalyDetector(name, depth).init, jax.random.key(0), jnp.zeros((10, 512)))
            assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == depth * (mix[name] + rest) + around


def test_the_head_by_hand():
    """Without layers: of a linear map of the input."""
    model, x = SetAnomalyDetector(num_layers=0, features=8), draw(6, 5)
    variables = start(model, x)
    params = variables["params"]
    linear = lambda x, layer: x @ layer["kernel"] + layer["bias"]
    hidden = linear(linear(x, params["former"]["input"]), params["hidden"])
    hidden = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
    hidden = np.maximum(hidden * params["norm"]["scale"] + params["norm"]["bias"], 0)
    expected = linear(hidden, params["logit"])[:, 0]
    np.testing.assert_allclose(model.apply(variables, x), expected, rtol=1e-4, atol=1e-5)


def test_dropout_acts_in_training_alone():
    model, x = SetAnomalyDetector("np_former", num_layers=1, features=8, options=SMALL["np_former"]), draw(4, 5)
    variables = start(model, x)

    @jax.jit
    def in_training(key):
        return model.apply(variables, x, deterministic=False, rngs={"dropout": key})

    first, second = (in_training(jax.random.key(seed)) for seed in (0, 1))
    assert np.abs(first - second).max() > 1e-3
    model.apply(variables, x)  # asks for no stream of random numbers


def test_what_does_not_exist_is_named():
    with pytest.raises(ValueError, match="did you mean 'informer'"):
        SetAnomalyDetector("infomer").init(jax.random.key(0), jnp.zeros((3, 2)))
    with pytest.raises(TypeError, match="num_head"):
        SetAnomalyDetector("transformer", options={"num_head": 2}).init(jax.random.key(0), jnp.zeros((3, 2)))
