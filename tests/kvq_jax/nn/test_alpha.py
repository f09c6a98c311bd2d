"""Alpha: starts where it is told to, stays in its range, learns."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.nn import Alpha

KEY = jax.random.key(0)


@pytest.mark.parametrize("kind", ["fixed", "softplus", "sigmoid"])
@pytest.mark.parametrize("initial", [1e-6, 1e-3, 0.5, 0.9])
def test_starts_at_initial(kind, initial):
    alpha, variables = Alpha(kind, initial).init_with_output(KEY)
    assert isinstance(alpha, float) if kind == "fixed" else (alpha.shape, alpha.dtype) == ((), jnp.float32)
    assert float(alpha) == pytest.approx(initial, rel=2e-6)
    assert len(jax.tree.leaves(variables)) == (kind != "fixed")


def test_wide_ranges():
    assert float(Alpha("softplus", 1e4).init_with_output(KEY)[0]) == pytest.approx(1e4)
    assert float(Alpha("fixed", 0.0).init_with_output(KEY)[0]) == 0


def test_half_is_theta_zero():
    assert float(Alpha("sigmoid", 0.5).init(KEY)["params"]["theta"]) == 0


def test_one_for_each_head():
    alpha, variables = Alpha("softplus", 0.1, (3,)).init_with_output(KEY)
    np.testing.assert_allclose(alpha, np.full(3, 0.1), rtol=1e-6)
    assert variables["params"]["theta"].shape == (3,)
    assert Alpha("fixed", 0.0, (3,)).init_with_output(KEY)[0] == 0.0


@pytest.mark.parametrize("kind, low, high", [("softplus", 0, np.inf), ("sigmoid", 0, 1)])
def test_range_and_gradient(kind, low, high):
    model = Alpha(kind)
    for theta in (-5.0, 0.0, 5.0):
        value, slope = jax.value_and_grad(lambda t: model.apply({"params": {"theta": t}}))(theta)
        assert low < value < high
        assert slope > 0


@pytest.mark.parametrize("kind, initial", [("softplus", 0.0), ("sigmoid", 1.0), ("sigmoid", 0.0), ("fixed", -1.0),
                                           ("fixed", float("nan"))])
def test_refuses_what_it_cannot_reach(kind, initial):
    with pytest.raises(ValueError, match=f"{kind} alpha starts in"):
        Alpha(kind, initial).init(KEY)


def test_unknown_kind():
    with pytest.raises(ValueError, match="unknown kind of alpha 'softmax'.*'softplus'"):
        Alpha("softmax").init(KEY)
