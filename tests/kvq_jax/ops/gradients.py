"""Gradients against finite differences with one compilation; `jax.test_util.check_grads` takes several."""

import jax
import numpy as np


def check_gradients(function, *arrays, step=1e-5, tolerance=1e-5):
    """Compares the gradient of a fixed mix of outputs along a random direction; float64 arrays."""
    weigh = lambda out: (out * np.cos(np.arange(out.size)).reshape(out.shape)).sum()
    both = jax.jit(jax.value_and_grad(lambda arrays: weigh(function(*arrays))))
    arrays = [np.asarray(x) for x in arrays]
    rng = np.random.default_rng(0)
    directions = [rng.normal(size=x.shape) for x in arrays]
    moved = lambda t: [x + t * u for x, u in zip(arrays, directions)]
    numeric = (both(moved(step))[0] - both(moved(-step))[0]) / (2 * step)
    parts = [float((np.asarray(g) * u).sum()) for g, u in zip(both(arrays)[1], directions)]
    assert all(p != 0 for p in parts)
    np.testing.assert_allclose(sum(parts), numeric, rtol=tolerance, atol=tolerance)
