"""Networks on sets of images: a masked image is absent, also for batch norm; order does not matter; counts by hand."""

import jax
import numpy as np

from kvq_jax.models import IMAGE_SET_NETWORKS, SET_NETWORKS, ImageSetNetwork
from tests.kvq_jax.nn.drawing import count, draw, start


def test_a_masked_image_is_absent_in_training_and_order_does_not_matter():
    net = ImageSetNetwork(8, num_heads=2, encoder_layers=1, features=(4, 4), pool_heads=4)
    x = draw(2, 5, 6, 6, 1)
    variables = start(net, x)
    variables["batch_stats"] = jax.tree.map(np.abs, variables["batch_stats"])  # of variances
    there = np.array([True, True, False, True, False])
    apply = jax.jit(
        lambda x, mask, train: net.apply(variables, x, mask=mask, train=train, mutable=["batch_stats"]),
        static_argnums=2,
    )
    mask, order = np.broadcast_to(there, (2, 5)), np.array([2, 0, 3, 4, 1])
    spoilt = np.where(there[:, None, None, None], x, 50).astype(np.float32)
    for train in (True, False):
        output, after = apply(spoilt, mask, train)
        moved, _ = apply(spoilt[:, order], mask[:, order], train)
        alone, expected = apply(x[:, there], None, train)
        np.testing.assert_allclose(output, alone, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(moved, output, rtol=1e-4, atol=1e-5)
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4), after, expected)
        assert np.abs(apply(x, None, train)[0] - output).max() > 1e-3


def test_parameters_of_table_2_by_hand():
    linear = lambda a, b: a * b + b  # noqa: E731
    mab = lambda a, b: linear(a, 64) + 2 * linear(b, 64) + linear(64, 64)  # noqa: E731
    images = 9 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64 + 4 * 2 * 64  # kernels, scales and biases, running averages
    of = lambda name, layers=2, **fields: count(  # noqa: E731
        ImageSetNetwork(64, encoder_layers=layers, **IMAGE_SET_NETWORKS[name].parts, **fields), np.zeros((3, 28, 28, 1))
    )
    assert of("rff_mean", 4, head=(64,)) == images + linear(256, 64) + 4 * linear(64, 64) + linear(64, 1)
    assert of("sab_pma") == images + mab(256, 256) + mab(64, 64) + 64 + mab(64, 64) + linear(64, 1)
    assert of("sab_pma4") == of("sab_pma") + 3 * 64 + 3 * 64  # seeds, and the wider last layer
    assert of("isab4_pma") == of("isab1_pma") + 2 * 3 * 64
    assert IMAGE_SET_NETWORKS.keys() == SET_NETWORKS.keys()
