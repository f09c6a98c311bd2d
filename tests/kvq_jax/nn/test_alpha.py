"""Alpha: starts where it is told to, stays in its range, learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.nn import Alpha
from kvq_jax.ops import intention

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


@pytest.mark.parametrize(
    "kind, initial", [("softplus", 0.0), ("sigmoid", 1.0), ("sigmoid", 0.0), ("fixed", -1.0), ("fixed", float("nan"))]
)
def test_refuses_what_it_cannot_reach(kind, initial):
    with pytest.raises(ValueError, match=f"{kind} alpha starts in"):
        Alpha(kind, initial).init(KEY)


def test_unknown_kind():
    with pytest.raises(ValueError, match="unknown kind of alpha 'softmax'.*'softplus'"):
        Alpha("softmax").init(KEY)


# A function of keys and values

SET = jax.random.normal(jax.random.key(1), (2, 5, 3)), jax.random.normal(jax.random.key(2), (2, 5, 1))


def moved(module, *arrays, **options):
    """The module after its parameters were moved away from the start, so that the set matters."""
    variables = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(KEY, x.shape), module.init(KEY, *arrays, **options))
    return lambda *a, **o: module.apply(variables, *a, **o)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("features", [(), (8,)])
def test_of_a_set_starts_at_initial(shape, features):
    alpha, _ = Alpha("set", 0.02, shape, features).init_with_output(KEY, *SET)
    assert alpha.dtype == jnp.float32
    np.testing.assert_allclose(alpha, np.full((2, *shape), 0.02), rtol=1e-5)


def test_of_a_set_is_its_formula():
    key, value = SET
    module = Alpha("set", 0.5, (), (8,))
    params = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(KEY, x.shape), module.init(KEY, key, value)["params"])
    layer = lambda x, p: x @ p["kernel"] + p["bias"]
    mean = jnp.concatenate([key, value], -1).mean(-2)
    expected = jax.nn.softplus(layer(jax.nn.relu(layer(mean, params["hidden"]["layer_0"])), params["out"]))[:, 0]
    np.testing.assert_allclose(module.apply({"params": params}, key, value), expected, rtol=1e-5)


def test_of_a_set_laws():
    key, value = SET
    alpha = jax.jit(moved(Alpha("set", 0.5), key, value))
    out = alpha(key, value)
    assert (out > 0).all() and out[0] != out[1]
    np.testing.assert_allclose(alpha(key[:, ::-1], value[:, ::-1]), out, rtol=1e-5)
    keep = jnp.array([True, False, True, True, False])
    spoil = jnp.where(keep, 0.0, jnp.nan)[:, None]
    expected = alpha(key[:, keep], value[:, keep])
    np.testing.assert_allclose(alpha(key + spoil, value + spoil, mask=keep), expected, rtol=1e-5)
    each = jnp.stack([keep, ~keep])
    np.testing.assert_allclose(alpha(key, value, mask=each)[0], expected[0], rtol=1e-5)
    grads = jax.grad(lambda k, v: alpha(k + spoil, v, mask=jnp.zeros(5, bool)).sum(), argnums=(0, 1))(key, value)
    assert np.isfinite(alpha(key, value, mask=jnp.zeros(5, bool))).all() and not any(np.asarray(g).any() for g in grads)


def test_of_a_set_drives_an_op_and_learns():
    key, value = SET
    module = Alpha("set", 0.1, (4,))
    variables = module.init(KEY, key, value)

    def loss(variables):
        alpha = module.apply(variables, key, value)
        heads = lambda x: jnp.stack([x] * 4, 1)
        return (intention(heads(key), heads(key), heads(value), alpha=alpha) ** 2).sum()

    assert np.asarray(jax.jit(jax.grad(loss))(variables)["params"]["out"]["kernel"]).any()


def test_of_a_set_refuses():
    key, value = SET
    with pytest.raises(ValueError, match="call it with key and value"):
        Alpha("set").init(KEY)
    with pytest.raises(ValueError, match=r"needs a mask \[..., N\] over keys"):
        Alpha("set").init(KEY, key, value, mask=jnp.ones((2, 5, 5), bool))
    with pytest.raises(ValueError, match="set alpha starts in"):
        Alpha("set", 0.0).init(KEY, key, value)
