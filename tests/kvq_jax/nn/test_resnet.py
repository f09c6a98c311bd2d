"""ResNets: the published sizes, a block by hand, the statistics that batch normalisation uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.nn.resnet import RESNETS, BasicBlock, ResNet, imagenet_input
from tests.kvq_jax.nn.drawing import draw, run, start


@pytest.mark.parametrize("name, parameters", [("ResNet-34", 21_797_672), ("ResNet-18", 11_689_512)])
def test_the_published_sizes(name, parameters):
    images = jnp.zeros((2, 224, 224, 3))
    model = ResNet(RESNETS[name], classes=1000)
    (features, logits), variables = jax.eval_shape(lambda: model.init_with_output(jax.random.key(0), images))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == parameters
    assert features.shape == (2, 512) and logits.shape == (2, 1000)
    headless = jax.eval_shape(lambda: ResNet(RESNETS[name]).init(jax.random.key(0), images))
    assert "fc" not in headless["params"] and headless["params"].keys() | {"fc"} == variables["params"].keys()


def convolve(x, kernel, stride):
    """x [H, W, c] with kernel [k, k, c, o] at every `stride`-th pixel, k // 2 zeros around x, as PyTorch does."""
    size = len(kernel)
    x = np.pad(x, ((size // 2,) * 2, (size // 2,) * 2, (0, 0)))
    rows, columns = (range(0, n - size + 1, stride) for n in x.shape[:2])
    return np.array([[np.einsum("ijc,ijco->o", x[i : i + size, j : j + size], kernel) for j in columns] for i in rows])


def normalise(x, params, statistics):
    return (x - statistics["mean"]) / np.sqrt(statistics["var"] + 1e-5) * params["scale"] + params["bias"]


@pytest.mark.parametrize("stride, features", [(1, 3), (2, 3), (1, 5)], ids=["identity", "strided", "wider"])
def test_a_block_by_hand(stride, features):
    """On an even image, where a stride of 2 tells PyTorch's padding from 'SAME'."""
    x = draw(2, 6, 6, 3)
    block = BasicBlock(features, stride)
    variables = start(block, x)
    variables["batch_stats"] = jax.tree.map(np.abs, variables["batch_stats"])
    params, statistics = variables["params"], variables["batch_stats"]
    for image, output in zip(x, run(block, variables, x)):
        y = np.maximum(
            normalise(convolve(image, params["conv1"]["kernel"], stride), params["bn1"], statistics["bn1"]), 0
        )
        y = normalise(convolve(y, params["conv2"]["kernel"], 1), params["bn2"], statistics["bn2"])
        if (stride, features) != (1, 3):
            image = convolve(image, params["downsample_conv"]["kernel"], stride)
            image = normalise(image, params["downsample_bn"], statistics["downsample_bn"])
        np.testing.assert_allclose(output, np.maximum(image + y, 0), rtol=1e-3, atol=1e-4)


def test_training_uses_the_statistics_of_the_batch_and_moves_the_running_ones_a_tenth():
    model, images = ResNet((1,), width=2), draw(3, 16, 16, 3)
    variables = start(model, images)
    _, updated = model.apply(variables, images, train=True, mutable=["batch_stats"])
    maps = np.array([convolve(image, variables["params"]["conv1"]["kernel"], 2) for image in images])
    for name, of_batch in (("mean", maps.mean((0, 1, 2))), ("var", maps.var((0, 1, 2)))):
        before = variables["batch_stats"]["bn1"][name]
        np.testing.assert_allclose(
            updated["batch_stats"]["bn1"][name], 0.9 * before + 0.1 * of_batch, rtol=1e-3, atol=1e-4
        )


def test_an_image_does_not_depend_on_the_rest_of_the_batch():
    model, images = ResNet((1, 1), width=2, classes=3), draw(3, 20, 20, 3)
    variables = start(model, images)
    variables["batch_stats"] = jax.tree.map(np.abs, variables["batch_stats"])
    features, logits = run(model, variables, images)
    np.testing.assert_allclose(run(model, variables, images[1:2])[0][0], features[1], rtol=1e-4, atol=1e-5)
    head = variables["params"]["fc"]
    np.testing.assert_allclose(features @ head["kernel"] + head["bias"], logits, rtol=1e-4, atol=1e-5)


def test_the_input_of_imagenet():
    white = np.full((1, 4, 4, 3), 255, np.uint8)
    colours = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    np.testing.assert_allclose(imagenet_input(white, 6)[0, 2, 3], colours, rtol=1e-5)
    step = np.tile(np.array([0, 200], np.uint8)[:, None], (1, 2, 1, 3))  # dark columns, then light ones
    red = imagenet_input(step, 4)[0, 0, :, 0] * 0.229 + 0.485
    np.testing.assert_allclose(red * 255, [0, 50, 150, 200], atol=1e-3)  # bilinear, between centres of pixels
