"""Mixer: what an op says, learnt alphas, streams and weights, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.nn import CMAB, MAB, LearnableQueryAttention, Mixer, MultiHead, TransformerLayer
from kvq_jax.ops import OPERATORS, OPS, intention, softmax_attention
from tests.kvq_jax.nn.drawing import draw, run, start
from tests.kvq_jax.ops.reference import LABELS

KEY = jax.random.key(0)
B, H, M, N, D, K = 2, 3, 4, 6, 5, 2
SETS = draw(B, H, M, D, seed=1), draw(B, H, N, D, seed=2), draw(B, H, N, K, seed=3)
MASK = np.array([[1, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 1]], bool)[:, None]
DEFAULT = [name for name in OPERATORS if name not in LABELS]


def learnt(op, kind, alpha=0.3):
    return Mixer(dict(name=op, alpha=alpha, alpha_kind=kind), (H,))


@pytest.mark.parametrize("op", DEFAULT)
def test_a_name_is_the_function_with_its_defaults(op):
    output, variables = jax.jit(Mixer(op, (H,)).init_with_output)(KEY, *SETS, mask=MASK)
    assert not variables
    np.testing.assert_allclose(output, jax.jit(OPS[op])(*SETS, mask=MASK), rtol=1e-4, atol=1e-4)


def test_options_and_functions():
    def same(op, function, **options):
        np.testing.assert_allclose(
            *jax.jit(lambda: (Mixer(op).apply({}, *SETS), function(*SETS, **options)))(), rtol=1e-5, atol=1e-5
        )

    same(dict(name="softmax", scale=0.3), softmax_attention, scale=0.3)
    same(dict(name="intention", alpha=0.7), intention, alpha=0.7)
    same(dict(name="intention", alpha=0.7, alpha_kind="fixed"), intention, alpha=0.7)
    same(dict(name="intention", alpha=[0.1, 0.2, 0.3]), intention, alpha=np.array([0.1, 0.2, 0.3]))
    same(softmax_attention, softmax_attention)
    same(dict(name=intention, alpha=0.7), intention, alpha=0.7)
    same(lambda q, k, v, *, mask=None: OPS["linear"](q, k, v, mask=mask), OPS["linear"])
    assert Mixer(intention).apply({}, method="stream").merge  # a function of the table has its row


@pytest.mark.parametrize("op, kind", [("intention", "softplus"), ("informer", "sigmoid"), ("ls_svm", "softplus")])
def test_a_learnt_alpha_starts_where_it_is_told_and_learns(op, kind):
    mixer = learnt(op, kind)
    output, variables = jax.jit(mixer.init_with_output)(KEY, *SETS, mask=MASK)
    assert variables["params"]["alpha"]["theta"].shape == (H,)
    expected = jax.jit(lambda: OPS[op](*SETS, mask=MASK, alpha=0.3))()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
    gradient = jax.jit(jax.grad(lambda v: jnp.square(mixer.apply(v, *SETS)).sum()))(variables)
    assert (np.asarray(gradient["params"]["alpha"]["theta"]) != 0).all()


def test_alpha_starts_at_the_default_of_the_function():
    output, _ = jax.jit(Mixer(dict(name="informer", alpha_kind="sigmoid")).init_with_output)(KEY, *SETS)
    expected = jax.jit(lambda: OPS["informer"](*SETS, alpha=0.5))()
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_an_alpha_of_the_set_is_one_for_each_set_and_head():
    mixer = learnt("intention", "set")
    start_output, variables = jax.jit(mixer.init_with_output)(KEY, *SETS)
    expected = jax.jit(lambda: intention(*SETS, alpha=0.3))()
    np.testing.assert_allclose(start_output, expected, rtol=1e-4, atol=1e-4)
    moved = jax.tree.map(lambda x: x + np.float32(0.3) * draw(*x.shape), variables)
    apply = jax.jit(mixer.apply)
    output = np.asarray(apply(moved, *SETS, mask=MASK))
    for b in range(B):
        for h in range(H):
            alone = apply(moved, *(x[b, h] for x in SETS), mask=MASK[b, 0])
            np.testing.assert_allclose(output[b, h], alone, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="function of the set"):
        mixer.apply(variables, method="stream")
    heads = MultiHead(H, D, dict(name="intention", alpha_kind="set"))
    x = draw(B, N, 4)
    assert jax.eval_shape(heads.init, KEY, x, x, x)["params"]["mixer"]["alpha"]["out"]["bias"].shape == (1,)


@pytest.mark.parametrize("op", [name for name, row in OPERATORS.items() if row.stream])
def test_streams(op):
    mixer = learnt(op, "sigmoid") if OPERATORS[op].alpha else Mixer(op, (H,))
    query, key, value = SETS
    variables = start(mixer, *SETS, mask=MASK)

    @jax.jit
    def streamed(variables):
        stream = mixer.apply(variables, query, method="stream")
        return stream.read(stream.update(stream.init(D, K, batch=(B, H)), key, value, MASK))

    expected = run(mixer, variables, *SETS, mask=MASK)
    np.testing.assert_allclose(streamed(variables), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("op", [name for name, row in OPERATORS.items() if row.weights])
def test_weights(op):
    mixer = learnt(op, "sigmoid")
    variables = start(mixer, *SETS, mask=MASK)
    expected = run(mixer, variables, *SETS, mask=MASK)
    weights = run(mixer, variables, *SETS[1:], mask=MASK, method="weights")
    np.testing.assert_allclose(SETS[0] @ np.asarray(weights), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "op, message",
    [
        ("intension", "unknown op 'intension': did you mean 'intention'"),
        (dict(name="intension"), "unknown op 'intension': did you mean 'intention'"),
        (dict(name="intention", alpah=1.0), "unknown option of intention 'alpah': did you mean 'alpha'"),
        (dict(name="intention", alpha_knd="set"), "unknown option of intention 'alpha_knd': did you mean 'alpha_kind'"),
        (dict(name="softmax", mask=None), "unknown option of softmax 'mask'"),
        (dict(name="softmax", alpha_kind="softplus"), "softmax has no alpha: alpha_kind='softplus'"),
        (dict(name="softmax", alpha_kind="nonsense"), "softmax has no alpha"),
        (dict(name=lambda q, k, v, *, mask=None: v, alpha_kind="softplus"), "has no alpha"),
        (
            dict(name="informer", alpha_kind="softplus"),
            r"a softplus alpha lies in \(0, inf\), that of informer in \(0, 1\)",
        ),
        (dict(name="sigma_informer", alpha_kind="set"), "a set alpha lies in"),
        (dict(name="intention", alpha_kind="nonsense"), "unknown kind of alpha 'nonsense'.*known: fixed, softplus"),
        (dict(name="intention", alpha_kind="softplsu"), "unknown kind of alpha 'softplsu': did you mean 'softplus'"),
        (dict(name="intention", alpha_kind="softplus", alpha=-1.0), "a softplus alpha starts in"),
        (dict(alpha=1.0), "an op that is a dict has a name"),
    ],
)
def test_refusals_are_one_line_at_init(op, message):
    x = draw(N, 4)
    for module, arrays in (
        (Mixer(op), (x, x, x)),
        (MultiHead(2, 3, op), (x, x, x)),
        (TransformerLayer(op=op), (x,)),
        (LearnableQueryAttention(2, op=op), (x,)),
        (MAB(4, 2, op), (x, x)),
        (CMAB(2, 4, op=op), (x, x)),
    ):
        with pytest.raises(ValueError, match=message) as error:
            jax.eval_shape(module.init, KEY, *arrays)
        assert "\n" not in str(error.value)


def test_what_an_operator_does_not_have():
    call = lambda op, method, *args: Mixer(op).apply({}, *args, method=method)
    with pytest.raises(ValueError, match="sigma_intention has no streaming state: expected one of softmax"):
        call("sigma_intention", "stream")
    with pytest.raises(ValueError, match="softmax belongs to the queries"):
        call("softmax", "stream")
    with pytest.raises(ValueError, match="softmax has no weights: expected one of intention, informer"):
        call("softmax", "weights", *SETS[1:])
    with pytest.raises(ValueError, match="unknown option of the stream of intention 'route'"):
        call(dict(name="intention", route="dual"), "stream", SETS[0])


def test_modules_with_options_can_be_hashed():
    op = {"name": "informer", "alpha": 0.5, "alpha_kind": "sigmoid"}
    for build in (Mixer, lambda op: MultiHead(2, 3, op), lambda op: CMAB(2, 4, op=op, cross_op=op)):
        assert hash(build(op)) == hash(build(dict(op))) and build(op) == build(dict(op))
