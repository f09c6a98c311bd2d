"""Published tensors become our ResNet: names and shapes of torchvision's state dict, every tensor used exactly once."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.data.resnet_weights import import_resnet, network_name
from experiments.harness.errors import UserError
from experiments.harness.tensor_files import read_tensors
from kvq_jax.nn.resnet import RESNETS


def shapes(blocks, width, classes=0):
    """torchvision's names and shapes of a ResNet of basic blocks; a kernel is [outputs, inputs, height, width]."""

    def norm(name, n):
        vectors = {f"{name}.{own}": (n,) for own in ("weight", "bias", "running_mean", "running_var")}
        return vectors | {f"{name}.num_batches_tracked": ()}

    found, inputs = {"conv1.weight": (width, 3, 7, 7)} | norm("bn1", width), width
    for stage, number in enumerate(blocks):
        outputs = width * 2**stage
        for index in range(number):
            block = f"layer{stage + 1}.{index}"
            found |= {f"{block}.conv1.weight": (outputs, inputs, 3, 3)} | norm(f"{block}.bn1", outputs)
            found |= {f"{block}.conv2.weight": (outputs, outputs, 3, 3)} | norm(f"{block}.bn2", outputs)
            if inputs != outputs:
                found |= {f"{block}.downsample.0.weight": (outputs, inputs, 1, 1)} | norm(
                    f"{block}.downsample.1", outputs
                )
            inputs = outputs
    return found | ({"fc.weight": (classes, inputs), "fc.bias": (classes,)} if classes else {})


def small(**changes):
    """A state dict of two stages, 3 and 6 wide, all numbers different, with `changes` by name (None: not there)."""
    rng = np.random.default_rng(0)
    tensors = {name: np.abs(rng.normal(size=shape)).astype(np.float32) for name, shape in shapes((1, 2), 3, 4).items()}
    return {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}


@pytest.mark.parametrize("name", RESNETS)
@pytest.mark.parametrize("classes", [0, 1000])
def test_the_published_state_dicts_fit(name, classes):
    tensors = {key: np.broadcast_to(np.float32(0), shape) for key, shape in shapes(RESNETS[name], 64, classes).items()}
    assert len(tensors) == {"ResNet-18": 120, "ResNet-34": 216}[name] + 2 * (classes > 0)
    model, variables = import_resnet(tensors)
    assert network_name(model) == name and model.classes == classes
    expected = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, expected)


def test_every_number_has_its_place():
    tensors = small()
    model, variables = import_resnet(tensors)
    params, statistics = variables["params"], variables["batch_stats"]
    assert (model.blocks, model.width, model.classes) == ((1, 2), 3, 4)
    assert network_name(model) == "ResNet of (1, 2) blocks, width 3"
    assert params["conv1"]["kernel"][6, 2, 1, 0] == tensors["conv1.weight"][0, 1, 6, 2]
    assert params["layer2_1"]["conv2"]["kernel"][0, 2, 4, 5] == tensors["layer2.1.conv2.weight"][5, 4, 0, 2]
    shortcut = tensors["layer2.0.downsample.0.weight"][..., 0, 0].T
    np.testing.assert_array_equal(params["layer2_0"]["downsample_conv"]["kernel"][0, 0], shortcut)
    np.testing.assert_array_equal(params["layer2_0"]["downsample_bn"]["scale"], tensors["layer2.0.downsample.1.weight"])
    np.testing.assert_array_equal(statistics["layer1_0"]["bn2"]["mean"], tensors["layer1.0.bn2.running_mean"])
    np.testing.assert_array_equal(statistics["bn1"]["var"], tensors["bn1.running_var"])
    np.testing.assert_array_equal(params["fc"]["kernel"], tensors["fc.weight"].T)
    used = np.sort(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(variables)]))
    given = [tensor.ravel() for name, tensor in tensors.items() if "num_batches" not in name]
    np.testing.assert_array_equal(used, np.sort(np.concatenate(given)))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"extra.weight": np.zeros(2)}, "extra.weight: unknown name"),
        ({"layer1.0.bn1.running_mean": None}, "layer1_0/bn1/mean: no tensor"),
        ({"layer2.0.downsample.0.weight": None}, "layer2_0/downsample_conv/kernel: no tensor"),
        ({"layer1.0.conv3.weight": np.zeros((12, 3, 1, 1))}, "layer1.0.conv3.weight: unknown name"),
        (
            {"layer1.0.conv2.weight": np.zeros((3, 3, 1, 1))},
            r"layer1.0.conv2.weight: shape \(3, 3, 1, 1\) where .* takes \(3, 3, 3, 3\)",
        ),
        ({"fc.bias": np.zeros(5)}, r"fc.bias: shape \(5,\) where fc/bias takes \(4,\)"),
        ({"conv1.weight": None}, "not those of a ResNet: no conv1.weight"),
        ({"conv1.weight": np.zeros((4, 3, 7, 7))}, "and .* more"),
    ],
)
def test_tensors_of_something_else_are_named(changes, message):
    with pytest.raises(UserError, match=message):
        import_resnet(small(**changes))


def safetensors(arrays, **header):
    """The bytes of a file of the format, from (dtype, array) by name."""
    body = b""
    for name, (dtype, array) in arrays.items():
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(body), len(body) + array.nbytes]}
        body += array.tobytes()
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + body


def test_safetensors(tmp_path):
    half = jnp.asarray([1.5, -2, 0.25], jnp.bfloat16)
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = {"a": ("F32", matrix), "n": ("I64", np.array(7)), "b": ("BF16", np.asarray(half))}
    path = tmp_path / "tensors.safetensors"
    whole = safetensors(arrays, __metadata__={"format": "pt"})
    path.write_bytes(whole)
    found = read_tensors(path)
    assert list(found) == list(arrays)
    for name, (_, array) in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    other = (
        whole.replace(b'"F32"', b'"F99"'),
        b"\2" + bytes(7) + b"[]",
    )  # an unknown kind of number; a header that is a list
    for raw in (whole[:-3], whole[:40], b"", *other):
        path.write_bytes(raw)
        with pytest.raises(UserError, match="tensors.safetensors"):
            read_tensors(path)
