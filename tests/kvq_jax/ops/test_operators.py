"""The table of operators: a row is all there is to an operator, also one that is added while a program runs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kvq_jax
from kvq_jax.nn import Mixer, MultiHead, TransformerLayer
from kvq_jax.ops import OPERATORS, OPS, Operator, chunked, softmax_attention
from kvq_jax.ops.streaming import softmax_stream
from tests.kvq_jax.ops.reference import ALPHA

N, D = 5, 4


def doubled(query, key, value, *, mask=None, alpha=2.0, gain=1.0):
    """alpha gain softmax(Q K') V."""
    return gain * jnp.asarray(alpha)[..., None, None] * softmax_attention(query, key, value, mask=mask)


@pytest.fixture
def mine(monkeypatch):
    monkeypatch.setitem(OPERATORS, "mine", Operator(doubled, alpha="unit"))


def draw(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def jaxprs(jaxpr):
    """A jaxpr and all that its equations hold."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            inner = getattr(leaf, "jaxpr", leaf)  # a closed jaxpr, or one itself
            if hasattr(inner, "eqns"):
                yield from jaxprs(inner)


def test_ops_is_a_view_of_the_table():
    assert list(OPS) == list(OPERATORS) and len(OPS) == len(OPERATORS)
    assert all(OPS[name] is row.function for name, row in OPERATORS.items())
    assert "intention" in OPS and "ridge" not in OPS
    with pytest.raises(KeyError, match="unknown op 'intension': did you mean 'intention'"):
        OPS["intension"]
    assert kvq_jax.OPERATORS is OPERATORS


def test_rows_say_what_there_is():
    assert {name for name, row in OPERATORS.items() if row.stream} == {
        "softmax", "linear", "laplace", "uniform", "erf", "intention", "informer"
    }  # fmt: skip
    assert {name for name, row in OPERATORS.items() if row.alpha == "unit"} == {"informer", "sigma_informer"}
    for name, row in OPERATORS.items():
        assert "mask" not in row.options and ("alpha" in row.options) == (row.alpha is not None) == (name in ALPHA)
    assert OPERATORS["softmax"].options == ("scale", "implementation")
    assert OPERATORS["laplace"].options == ("length_scale",)


@pytest.mark.parametrize("name", [name for name, row in OPERATORS.items() if row.weights])
def test_weights_predict(name):
    query, key, value = draw(3, D), draw(N, D, seed=1), draw(N, 2, seed=2)
    mask = jnp.arange(N) != 1
    row = OPERATORS[name]
    weights = jax.jit(row.weights)(key, value, mask=mask)
    np.testing.assert_allclose(query @ weights, row.function(query, key, value, mask=mask), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name, row in OPERATORS.items() if row.stream])
def test_streams_multiply_at_the_precision_of_the_operator(name):
    query, key, value = draw(3, D), draw(N, D, seed=1), draw(N, 2, seed=2)
    chunk_wise = jax.make_jaxpr(chunked(name, 2))(query, key, value)
    at_once = jax.make_jaxpr(OPS[name])(query, key, value)
    for program in (chunk_wise, at_once):
        products = [e for j in jaxprs(program.jaxpr) for e in j.eqns if e.primitive.name == "dot_general"]
        assert products or (program is chunk_wise and name in ("uniform",))
        assert all(e.params["precision"] == (jax.lax.Precision.HIGHEST,) * 2 for e in products)


def test_an_operator_added_at_run_time(mine):
    assert OPS["mine"] is doubled and "mine" in OPS and list(OPS)[-1] == "mine"
    x = draw(2, N, D)
    expected = softmax_attention(x, x, x)
    assert OPERATORS["mine"].options == ("alpha", "gain")
    np.testing.assert_allclose(Mixer("mine").apply({}, x, x, x), 2 * expected, rtol=1e-6)
    tripled = Mixer(dict(name="mine", gain=3.0, alpha=1.0))
    np.testing.assert_allclose(tripled.apply({}, x, x, x), 3 * expected, rtol=1e-6)
    learnt = Mixer(dict(name="mine", alpha=0.5, alpha_kind="sigmoid"))
    output, variables = learnt.init_with_output(jax.random.key(0), x, x, x)
    assert variables["params"]["alpha"]["theta"] == 0
    np.testing.assert_allclose(output, 0.5 * expected, rtol=1e-6)
    with pytest.raises(ValueError, match="a softplus alpha lies in .* that of mine in"):
        Mixer(dict(name="mine", alpha_kind="softplus")).init(jax.random.key(0), x, x, x)


def test_blocks_take_an_operator_added_at_run_time(mine):
    x, mask = draw(2, N, D), jnp.arange(N) < 3
    for op in ("mine", dict(name="mine", alpha=0.5, alpha_kind="sigmoid")):
        heads = MultiHead(2, 3, op)
        layer = TransformerLayer(hidden=5, num_heads=2, head_features=3, op=op)
        for module, call in ((heads, lambda m, x: m(x, x, x, mask=mask)), (layer, lambda m, x: m(x, mask=mask))):
            variables = jax.jit(functools.partial(module.init, method=call))(jax.random.key(0), x)
            apply = jax.jit(functools.partial(module.apply, method=call))
            order = jnp.array([2, 0, 1, 4, 3])
            output, moved = apply(variables, x), apply(variables, x[:, order])
            np.testing.assert_allclose(moved[:, :3], output[:, order[:3]], rtol=1e-4, atol=1e-5)
            gradient = jax.jit(jax.grad(lambda v, apply=apply: jnp.square(apply(v, x)).sum()))(variables)
            assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))


def test_chunks_of_an_operator_added_at_run_time(monkeypatch):
    monkeypatch.setitem(OPERATORS, "mine", Operator(doubled, stream=functools.partial(softmax_stream, scale=1.0)))
    query, key, value = draw(3, D), draw(N, D, seed=1), draw(N, 2, seed=2)
    np.testing.assert_allclose(chunked("mine", 2)(query, key, value), OPS["softmax"](query, key, value), atol=1e-5)
