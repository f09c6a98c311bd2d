"""Image encoders: published sizes, convolutions by two ways, whose statistics batch norm takes, dropped blocks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.nn import BatchNorm, ConvEncoder, ResNet12, image_encoders
from kvq_jax.nn.image_encoders import Convolution, _by_windows, _by_xla, drop_block, max_pool
from tests.kvq_jax.nn.drawing import draw, run, start
from tests.kvq_jax.nn.test_resnet import convolve


def images(*shape):
    return jax.random.normal(jax.random.key(0), (*shape, 3))


@pytest.mark.parametrize(
    "encoder, size, features",
    [
        (ConvEncoder(), 84, 1600),
        (ConvEncoder(), 28, 64),
        (ResNet12(), 84, 16_000),
        (ResNet12(), 28, 640),
        (ResNet12((64, 128, 256, 512)), 84, 12_800),
        (ResNet12(pool=True), 84, 640),
    ],
)
def test_published_numbers_of_features(encoder, size, features):
    shape = jax.eval_shape(lambda: encoder.init_with_output(jax.random.key(0), images(2, 5, size, size))[0])
    assert shape.shape == (2, 5, features)


def residual_network(widths):
    """Parameters of each block: three 3 x 3 convolutions and one of 1 x 1, each followed by a scale and a bias."""
    inputs = (3, *widths[:-1])
    return sum(9 * a * b + 2 * 9 * b * b + a * b + 4 * 2 * b for a, b in zip(inputs, widths))


@pytest.mark.parametrize(
    "encoder, expected",
    [
        # 113,088 with the 256 biases of convolutions that others count, which batch norm takes away.
        (ConvEncoder(), 113_088 - 256),
        (ConvEncoder((32,) * 4), 3 * 9 * 32 + 3 * 9 * 32 * 32 + 4 * 2 * 32),
        (ResNet12(), 12_424_320),
        (ResNet12((64, 128, 256, 512)), residual_network((64, 128, 256, 512))),
    ],
)
def test_parameter_counts(encoder, expected):
    params = jax.eval_shape(lambda: encoder.init(jax.random.key(0), images(1, 28, 28)))["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected
    if isinstance(encoder, ResNet12):
        assert residual_network(encoder.features) == expected


@pytest.mark.parametrize("size, stride, part", [(1, 1, None), (3, 1, 1), (3, 2, None), (5, 1, 60_000), (3, 2, 8000)])
def test_products_of_windows_are_a_convolution(monkeypatch, x64, size, stride, part):
    """All at once, one image at a time, and 5 in parts of which the last has room left; gradients, and theirs too."""
    if part:
        monkeypatch.setattr(image_encoders, "_ALL", 0)
        monkeypatch.setattr(image_encoders, "_PART", part)
    x, kernel = np.float64(images(5, 6, 7)), np.random.default_rng(1).normal(size=(size, size, 3, 4))

    @functools.partial(jax.jit, static_argnums=0)
    def found(convolution, x, kernel):
        energy = lambda x, kernel: jnp.sin(convolution(x, kernel, stride)).sum()
        steep = lambda x, kernel: sum(jnp.square(g).sum() for g in jax.grad(energy, (0, 1))(x, kernel))
        return convolution(x, kernel, stride), jax.grad(energy, (0, 1))(x, kernel), jax.grad(steep, (0, 1))(x, kernel)

    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9),
        *(found(convolution, x, kernel) for convolution in (_by_windows, _by_xla)),
    )


@pytest.mark.parametrize("height, width", [(6, 7), (7, 8)])
def test_a_stride_leaves_out_what_lies_between(height, width):
    x, kernel = images(2, height, width), jax.random.normal(jax.random.key(1), (3, 3, 3, 4))
    with jax.default_matmul_precision("highest"):
        whole = _by_windows(x, kernel, 1)[:, ::2, ::2]
        np.testing.assert_allclose(_by_windows(x, kernel, 2), whole, atol=1e-4)


def test_a_kernel_that_looks_one_pixel_to_the_left():
    x = images(1, 4, 4)
    kernel = jnp.zeros((3, 3, 3, 3)).at[1, 0].set(jnp.eye(3))
    moved = Convolution(3).apply({"params": {"kernel": kernel}}, x)
    np.testing.assert_allclose(moved[:, :, 1:], x[:, :, :-1], atol=1e-6)
    assert not moved[:, :, 0].any()


def test_max_pool_by_hand():
    x = jnp.array([[1.0, 5, 9], [3, 2, 9], [9, 9, 9]])[..., None]  # the odd row and column are left out
    assert max_pool(x).tolist() == [[[5.0]]]
    tied = jax.grad(lambda x: max_pool(x).sum())(jnp.ones((2, 2, 1)))
    assert tied.ravel().tolist() == [0.25] * 4
    with pytest.raises(ValueError, match="1 x 4 cannot be halved"):
        max_pool(jnp.ones((1, 4, 2)))


def test_a_residual_block_by_hand():
    """Batch norm by the statistics of the episode; max pool leaves the fifth line out."""
    x, encoder = draw(3, 5, 4, 3), ResNet12((2,))
    variables = start(encoder, x)
    params = variables["params"]

    def layer(maps, part):
        kernel, norm = params[f"block_0_convolution_{part}"]["kernel"], params[f"block_0_norm_{part}"]
        maps = np.array([convolve(one, kernel, 1) for one in maps])
        scaled = (maps - maps.mean((0, 1, 2))) / np.sqrt(maps.var((0, 1, 2)) + 1e-5)
        return scaled * norm["scale"] + norm["bias"]

    leaky = lambda maps: np.where(maps > 0, maps, 0.1 * maps)
    branch = layer(leaky(layer(leaky(layer(x, 0)), 1)), 2)
    y = leaky(branch + layer(x, "shortcut"))[:, :4].reshape(3, 2, 2, 2, 2, 2).max((2, 4))
    np.testing.assert_allclose(run(encoder, variables, x), y.reshape(3, -1), rtol=1e-3, atol=1e-4)


def test_transductive_statistics_are_those_of_each_episode_always():
    norm, x = BatchNorm("transductive"), 3 + 2 * images(2, 5, 4, 4) * jnp.array([1.0, 10]).reshape(2, 1, 1, 1, 1)
    variables = norm.init(jax.random.key(0), x, True)
    assert set(variables) == {"params"}
    y = norm.apply(variables, x, False)
    np.testing.assert_allclose(y.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(y.var((1, 2, 3)), 1, atol=1e-3)
    np.testing.assert_array_equal(y, norm.apply(variables, x, True))
    np.testing.assert_allclose(y[0], norm.apply(variables, x[0], False), atol=1e-5)
    others = norm.apply(variables, x.at[0, 1:].add(1.0), False)
    assert np.abs(others[0, 0] - y[0, 0]).max() > 0.1  # other targets of the episode change a prediction


def test_running_statistics_follow_the_training_and_then_stand_still():
    norm, x = BatchNorm("running", momentum=0.9), 3 + 2 * images(2, 50, 4, 4)
    variables = norm.init(jax.random.key(0), x, True)
    np.testing.assert_allclose(norm.apply(variables, x, False), x, rtol=1e-4)  # mean 0 and variance 1 at first
    y, updated = norm.apply(variables, x, True, mutable=["batch_stats"])
    np.testing.assert_allclose(y.mean((0, 1, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(updated["batch_stats"]["mean"], 0.1 * x.mean((0, 1, 2, 3)), rtol=1e-4)
    np.testing.assert_allclose(updated["batch_stats"]["variance"], 0.9 + 0.1 * x.var((0, 1, 2, 3)), rtol=1e-4)
    later = variables | updated
    together = norm.apply(later, x, False)
    np.testing.assert_allclose(together[0, :1], norm.apply(later, x[0, :1], False), atol=1e-5)  # each image by itself


@pytest.mark.parametrize("statistics", ["transductive", "running"])
def test_images_that_are_not_there_count_in_no_statistics(statistics):
    norm, x = BatchNorm(statistics), 3 + 2 * images(2, 5, 4, 4)
    there = np.arange(5) < 3
    variables = norm.init(jax.random.key(0), x, True)
    spoilt = jnp.where(there[:, None, None, None], x, 100.0)
    y, after = norm.apply(variables, spoilt, True, jnp.broadcast_to(there, (2, 5)), mutable=["batch_stats"])
    expected, alone = norm.apply(variables, x[:, :3], True, mutable=["batch_stats"])
    np.testing.assert_allclose(y[:, :3], expected, atol=1e-5)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), after, alone)


def test_no_image_leaves_the_averages_and_no_gradient_sees_what_is_not_there():
    norm, x = BatchNorm("running"), images(2, 3, 4, 4)
    variables = norm.init(jax.random.key(0), x, True)
    apply = lambda x, there: norm.apply(variables, x, True, there, mutable=["batch_stats"])
    _, after = apply(x, jnp.zeros((2, 3), bool))
    jax.tree.map(np.testing.assert_array_equal, after["batch_stats"], variables["batch_stats"])
    there = jnp.broadcast_to(np.arange(3) < 2, (2, 3))
    spoilt = jnp.where(there[..., None, None, None], x, jnp.nan)
    gradient = jax.grad(lambda x: (apply(x, there)[0][:, :2] ** 3).sum())(spoilt)
    assert np.isfinite(gradient[:, :2]).all()


def test_unknown_statistics():
    with pytest.raises(ValueError, match="did you mean 'running'"):
        BatchNorm("runing").init(jax.random.key(0), images(1, 4, 4), True)


def test_dropped_blocks_are_squares_and_the_mean_stays():
    x = jnp.ones((200, 12, 12, 4))
    y = np.asarray(drop_block(x, jax.random.key(0), rate=0.1, size=3))
    dropped = y == 0
    assert 0.07 < dropped.mean() < 0.11  # squares overlap
    assert y.mean() == pytest.approx(1, abs=1e-4)
    runs = dropped[0].any((0, 2)).nonzero()[0]
    each = [run for run in np.split(runs, np.flatnonzero(np.diff(runs) > 1) + 1) if len(run)]
    assert all(len(run) >= 3 for run in each)
    single = np.asarray(drop_block(x, jax.random.key(0), rate=0.1, size=1))
    assert (single == 0).mean() == pytest.approx(0.1, abs=0.01)


def test_dropped_blocks_of_half_precision_are_those_of_float32():
    x, key = images(10, 84, 84), jax.random.key(0)  # more pixels than float16 can count
    half, whole = (drop_block(jnp.asarray(x, dtype), key, rate=0.1, size=5) for dtype in (jnp.float16, jnp.float32))
    assert x.size > float(jnp.finfo(jnp.float16).max) and half.dtype == jnp.float16
    np.testing.assert_allclose(half, whole, rtol=3e-3, atol=1e-4)


def test_regularisation_acts_in_training_alone():
    encoder, x = ResNet12((4,), drop_rate=0.5), images(3, 8, 8)
    variables = jax.jit(encoder.init)(jax.random.key(0), x)

    @jax.jit
    def outputs(key):
        training = encoder.apply(variables, x, True, rngs={"dropout": key})
        return training, encoder.apply(variables, x, False), encoder.clone(drop_rate=0.0).apply(variables, x, True)

    (first, still, unregularised), (second, *_) = map(outputs, jax.random.split(jax.random.key(0)))
    np.testing.assert_array_equal(still, unregularised)
    assert np.abs(first - second).max() > 1e-3
