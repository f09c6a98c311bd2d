"""VGG: the published number of parameters, one stage by hand, statistics of the batch and the running ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.nn import VGG
from tests.kvq_jax.nn.drawing import draw, run, start
from tests.kvq_jax.nn.test_resnet import convolve


def test_the_published_size():
    """14,728,266 of VGG-16 for CIFAR-10 with the 4224 biases of convolutions that others count."""
    made = jax.eval_shape(lambda: VGG(classes=10).init_with_output(jax.random.key(0), jnp.zeros((2, 32, 32, 3))))
    (features, logits), variables = made
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == 14_728_266 - 4224
    assert features.shape == (2, 512) and logits.shape == (2, 10)


@pytest.mark.parametrize("train", [False, True])
def test_a_stage_by_hand(train):
    """In training with the statistics of the batch, of which the running ones take a tenth."""
    images = draw(3, 5, 4, 3)
    model = VGG((1,), (2,), classes=4)
    variables = start(model, images)
    variables["batch_stats"] = jax.tree.map(np.abs, variables["batch_stats"])
    params, statistics = variables["params"], variables["batch_stats"]["norm_0_0"]
    maps = np.array([convolve(image, params["convolution_0_0"]["kernel"], 1) for image in images])
    moments = {"mean": maps.mean((0, 1, 2)), "variance": maps.var((0, 1, 2))}
    if train:
        (features, logits), updated = model.apply(variables, images, train=True, mutable=["batch_stats"])
        for name, moment in moments.items():
            own = updated["batch_stats"]["norm_0_0"][name]
            np.testing.assert_allclose(own, 0.9 * statistics[name] + 0.1 * moment, rtol=1e-3, atol=1e-4)
    else:
        features, logits = run(model, variables, images)
    used = moments if train else statistics
    norm, head = params["norm_0_0"], params["classes_of"]
    y = (maps - used["mean"]) / np.sqrt(used["variance"] + 1e-5) * norm["scale"] + norm["bias"]
    y = np.maximum(y, 0)[:, :4].reshape(3, 2, 2, 2, 2, 2).max((2, 4))  # the fifth line is left out
    np.testing.assert_allclose(features, y.mean((1, 2)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(logits, features @ head["kernel"] + head["bias"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "model, message",
    [(VGG((1, 1), (2,)), "2 numbers of convolutions for 1 widths"), (VGG((1, 1), (2, 2)), "1 x 1 cannot be halved")],
)
def test_stages_that_do_not_fit_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 2, 2, 3)))
