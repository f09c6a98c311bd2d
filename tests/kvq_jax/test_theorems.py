"""What the papers and slides state about KVQ space, as tests: laws, limits, expressiveness and cost."""

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.nn.cmab import CMAB
from kvq_jax.nn.image_encoders import Convolution
from kvq_jax.nn.set_transformer import ISAB, PMA, SAB, SET_FORMS
from kvq_jax.nn.transformer import TransformerLayer
from kvq_jax.ops import OPS
from kvq_jax.ops.attention import scores_together
from tests.kvq_jax.nn.drawing import draw, run, start
from tests.kvq_jax.ops.reference import LABELS, values

every_op = pytest.mark.parametrize("name", OPS)
RNG = np.random.default_rng(0)
N = 6
# The ops that are not linear in the values: which constraints are active depends on them; labels are counted, and their
# classes have means and priors; and a bias makes ls_svm, on 2 V - 1, affine.
NOT_AFFINE = {"constrained_intention"} | LABELS
NOT_LINEAR = NOT_AFFINE | {"ls_svm"}
JITTED = {name: jax.jit(op) for name, op in OPS.items()}  # for query, key, value [4, N, 3]: one program for each op


def close(a, b, tolerance=1e-4):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# Laws: Garnelo and Czarnecki 2023, Section 2; the slides "A mathematical view of attention".


@every_op
def test_kvq_space(name):
    """Of the op itself, without any projection, self-attention is equivariant, A(X P) = A(X) P, and with a query that
    is fixed invariant, A_Q(X P) = A_Q(X)."""
    fixed, x = draw(N, 3, seed=1), draw(N, 3, seed=2)
    p, same = RNG.permutation(N), values(name, x)
    itself, itself_moved, output, moved = JITTED[name](
        np.stack([x, x[p], fixed, fixed]), np.stack([x, x[p]] * 2), np.stack([same, same[p]] * 2)
    )
    close(itself_moved, itself[p], 1e-3)
    close(moved, output, 1e-3)


def test_softmax_of_a_permuted_matrix():
    """softmax(P' M P) = P' softmax(M) P: why self-attention is equivariant."""
    matrix, p = draw(5, 5), np.eye(5, dtype=np.float32)[RNG.permutation(5)]
    weights = lambda scores: np.asarray(OPS["softmax"](scores, np.eye(5), np.eye(5)))
    close(weights(p.T @ matrix @ p), p.T @ weights(matrix) @ p, 1e-6)


def convolve(x, kernel, padding):
    """x [h, w, c] by the library's convolution with kernel [size, size, c, o]; 'circular' padding, or zeros."""
    size, *_, features = kernel.shape
    reach = size // 2 if padding == "circular" else 0
    around = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="wrap")
    whole = Convolution(features, size).apply({"params": {"kernel": kernel}}, around[None])[0]
    return whole[reach : reach + len(x), reach : reach + len(x[0])]


def test_convolutions_and_permutations():
    """A 1 x 1 convolution is permutation-equivariant; a larger one is neither that nor invariant, but
    translation-equivariant: exactly so with circular padding only."""
    x, order = draw(4, 4, 3, seed=1), RNG.permutation(16)

    def permute(image):
        return np.asarray(image).reshape(16, -1)[order].reshape(image.shape)

    one, three = draw(1, 1, 3, 2, seed=2), draw(3, 3, 3, 2, seed=3)
    close(convolve(permute(x), one, "circular"), permute(convolve(x, one, "circular")))
    output, moved = convolve(x, three, "circular"), convolve(permute(x), three, "circular")
    assert not np.allclose(moved, permute(output), atol=0.1) and not np.allclose(moved, output, atol=0.1)
    shift = functools.partial(np.roll, shift=(1, 2), axis=(0, 1))
    close(convolve(shift(x), three, "circular"), shift(output))
    assert not np.allclose(convolve(shift(x), three, "zeros"), shift(convolve(x, three, "zeros")), atol=0.1)


# Limits: Garnelo and Czarnecki 2023, Section 2.


@pytest.mark.parametrize("name, limit", [("intention", "linear"), ("sigma_intention", "softmax")])
def test_intention_tends_to_attention(name, limit, x64):
    """f(K, V, alpha Q) -> linear or softmax attention for alpha -> infinity, with an error of order 1 / alpha."""
    query, key, value = (
        draw(*shape, seed=seed).astype(np.float64) for seed, shape in enumerate([(3, 4), (5, 4), (5, 2)])
    )
    expected = OPS[limit](query, key, value)
    errors = [np.abs(OPS[name](alpha * query, key, value, alpha=alpha) - expected).max() for alpha in (1e4, 1e6)]
    assert errors[0] < 0.1 and 80 < errors[0] / errors[1] < 120


# What can be represented: Garnelo and Czarnecki 2023, Section 2.


@every_op
def test_which_ops_are_linear_in_the_values(name):
    query, key, u, v = (np.broadcast_to(draw(N, 3, seed=seed), (4, N, 3)) for seed in (1, 2, 3, 4))
    left, right, both, _ = np.asarray(JITTED[name](query, key, np.stack([u[0], v[0], 2 * u[0] - 3 * v[0], u[0]])))
    with np.errstate(invalid="ignore"):  # what is not labels may give discriminants that are not finite
        linear = np.allclose(both, 2 * left - 3 * right, *[1e-2 if "in" in name else 1e-4] * 2)
    assert linear == (name not in NOT_LINEAR)


@pytest.mark.parametrize("name", [name for name in OPS if name not in NOT_AFFINE])
def test_attention_alone_is_no_neural_process(name):
    """Example 2. NP(K, V, Q) = e_o(Q, mean_i e_c(K_i, V_i)) with e_c = relu of the value and e_o = the mean: where all
    values are 1, 0 or -1 it is 1, 0 or 0, of second difference 1. Attention f(Q theta_1, K, V) theta_2 is affine in V,
    so that its second difference is 0 whatever theta: it differs from this NP by at least 1/4 for one of the three."""
    neural_process = np.array([1.0, 0.0, 0.0])
    theta_1, theta_2 = 3 * draw(N, 3, seed=1), draw(N, 3, seed=2)  # a query for each of N pairs of parameters
    value = np.array([1.0, 0.0, -1.0, 0.0], np.float32)[:, None, None] * np.ones((4, N, 3), np.float32)
    output = JITTED[name](np.broadcast_to(theta_1, (4, N, 3)), np.ones((4, N, 3), np.float32), value)[:3]
    output = np.asarray(output, np.float64)[..., 0] * theta_2[:, 0]
    close(output[0] - 2 * output[1] + output[2], np.zeros(N), 1e-5)
    assert (np.abs(output.T - neural_process).max(-1) >= 0.25 - 1e-5).all()


def test_a_transformer_layer_is_a_neural_process():
    """Example 2, for any two-layer e_c and e_o: one layer without norms computes e_o(Q, mean_i e_c([K_i; V_i]))
    exactly.

    A token is [k or q; v; 0], and only context tokens are seen. Zero queries make the attention a mean, the embedding
    relu(e_X) and the values together are e_c, W_o writes its mean where the tokens have their zeros (so the residual
    concatenates), and e_O = e_o writes the prediction where a target has no value."""
    dx, dy, width, hidden, dim = 2, 1, 4, 5, 7  # dim = dx + dy + width
    w1, b1, w2, b2 = (
        draw(dx + dy, hidden, seed=1),
        draw(hidden, seed=2),
        draw(hidden, width, seed=3),
        draw(width, seed=4),
    )
    w3, b3, w4, b4 = draw(dx + width, 6, seed=5), draw(6, seed=6), draw(6, dy, seed=7), draw(dy, seed=8)

    def neural_process(keys, values, queries):
        mean = (np.maximum(np.concatenate([keys, values], -1) @ w1 + b1, 0) @ w2 + b2).mean(0)
        return np.maximum(np.concatenate([queries, np.tile(mean, (len(queries), 1))], -1) @ w3 + b3, 0) @ w4 + b4

    layer = TransformerLayer(hidden=6, norm="none", num_heads=1, head_features=width, embed_features=hidden)
    params = jax.tree.map(np.zeros_like, start(layer, draw(3, dim))["params"])
    params["embed"]["kernel"][: dx + dy], params["embed"]["bias"][:] = w1, b1
    params["heads"]["value"]["kernel"][:], params["heads"]["value"]["bias"][:] = w2, b2
    params["heads"]["out"]["kernel"][:, dx + dy :] = np.eye(width)
    first, last = params["feed_forward"]["layer_0"], params["feed_forward"]["layer_1"]
    first["kernel"][:dx], first["kernel"][dx + dy :], first["bias"][:] = w3[:dx], w3[dx:], b3
    last["kernel"][:, dx : dx + dy], last["bias"][dx : dx + dy] = w4, b4

    for n, m in [(5, 3), (2, 6), (1, 1)]:
        keys, values, queries = draw(n, dx, seed=9), draw(n, dy, seed=10), draw(m, dx, seed=11)
        tokens = np.zeros((n + m, dim), np.float32)
        tokens[:n, :dx], tokens[:n, dx : dx + dy], tokens[n:, :dx] = keys, values, queries
        output = run(layer, {"params": params}, tokens, mask=np.arange(n + m) < n)
        close(output[n:, dx : dx + dy], neural_process(keys, values, queries), 1e-5)


def test_attention_cannot_be_erf_attention_or_least_squares():
    """With one key softmax attention is its value, whatever the key, and always within the range of the values. erf
    attention depends on that key (example 1), and least squares, 1 / key, is not bounded (the theorem after example
    2)."""
    keys = np.array([1.0, 0.1, 0.001], np.float32).reshape(3, 1, 1)
    one = np.ones((3, 1, 1), np.float32)
    close(OPS["softmax"](one, keys, one), one, 1e-6)
    close(OPS["erf"](one, keys, one)[:, 0, 0], [0.842701, 0.112463, 0.00112838], 1e-5)
    close(OPS["intention"](one, keys, one, alpha=0)[:, 0, 0], [1, 10, 1000], 1e-5)
    value = draw(5, 2, seed=3)
    output = OPS["softmax"](100 * draw(50, 2, seed=1), draw(5, 2, seed=2), value)
    assert (output <= value.max(0) + 1e-6).all() and (output >= value.min(0) - 1e-6).all()


def test_intention_finds_the_linear_map_behind_its_context(x64):
    """Section 3: with more independent keys than features and no noise, alpha -> 0 recovers w, far from keys too."""
    w, keys = draw(3, 2, seed=1).astype(float), draw(8, 3, seed=2).astype(float)
    far = 1000 * draw(4, 3, seed=3).astype(float)
    close(OPS["intention"](far, keys, keys @ w, alpha=0), far @ w, 1e-10)
    close(OPS["intention"](far, keys, keys @ w, alpha=1e-10), far @ w, 1e-5)


@pytest.mark.parametrize("condition, steps, steps_of_1_over_l", [(10.0, 6, 11), (1.1, 1, 1)])
def test_layers_of_linear_attention_descend_a_gradient_and_intention_is_there(condition, steps, steps_of_1_over_l, x64):
    """Section 2: layers until the squared error of the weights of least squares is a tenth of what it was.

    A layer adds step K'(V - K w) to the weights w. The paper's counts are of the best step, 2 / (least + largest
    eigenvalue of K'K); it writes 1 / largest.
    """
    eigenvalues = np.array([1.0, condition])
    keys = np.linalg.qr(draw(8, 2, seed=1).astype(float))[0] * np.sqrt(eigenvalues)
    unit, weights = np.eye(2), np.array([[1.0], [0.0]])
    value = keys @ weights

    def layers(step):
        found, count = np.zeros((2, 1)), 0
        while np.square(found - weights).sum() > 0.1:
            found, count = found + step * OPS["linear"](unit, keys, value - keys @ found), count + 1
        return count

    assert layers(2 / eigenvalues.sum()) == steps and layers(1 / eigenvalues.max()) == steps_of_1_over_l
    close(OPS["intention"](unit, keys, value, alpha=0), weights, 1e-10)


# Universality lemmas of the Set Transformer: Lee et al. 2019, supplement.


@pytest.mark.parametrize("form", SET_FORMS)
def test_pooling_from_a_zero_seed_is_the_mean(form):
    """With S = 0 and no bias on it all scores are equal; identity maps and rFF = 0 leave the mean of the kept."""
    x, mask = draw(2, 5, 4, seed=1), np.array([[1, 1, 0, 1, 0], [1] * 5], bool)
    module = PMA(4, 2, **{**SET_FORMS[form], "layer_norm": False})
    params = jax.tree.map(np.zeros_like, start(module, x)["params"])
    for name in ("key", "value", *(("out",) if form == "paper" else ())):
        params["mab"][name]["kernel"][:] = np.eye(4)
    params["mab"]["query"]["kernel"][:] = draw(4, 4, seed=2)
    mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    close(run(module, {"params": params}, x, mask=mask)[:, 0], mean, 1e-6)
    params["seeds"][:] = 1  # any other seed weighs
    assert not np.allclose(run(module, {"params": params}, x, mask=mask)[:, 0], mean, atol=1e-2)


@pytest.mark.parametrize("form", SET_FORMS)
def test_without_output_weights_sab_acts_by_rows(form):
    """W_o = 0: SAB is the same function of every element, so it can be any row-wise layer."""
    x = draw(5, 4, seed=1)
    module = SAB(4, 2, **{**SET_FORMS[form], "use_output": True})
    variables = start(module, x)
    alone = [np.array([0]), np.array([3]), np.array([1, 3, 4])]
    assert not np.allclose(run(module, variables, x)[3], run(module, variables, x[[3]])[0], atol=1e-3)
    variables["params"]["mab"]["out"] = jax.tree.map(np.zeros_like, variables["params"]["mab"]["out"])
    for rows in alone:
        close(run(module, variables, x)[rows], run(module, variables, x[rows]), 1e-5)


# Costs, counted by the compiler.


def flops(module, size, *fixed):
    x = jax.ShapeDtypeStruct((size, 16), jnp.float32)
    variables = jax.eval_shape(module.init, jax.random.key(0), *fixed, x)
    with scores_together():  # of a loop a compiler counts one round
        cost = jax.jit(module.apply).lower(variables, *fixed, x).compile().cost_analysis()
    return (cost[0] if isinstance(cost, list) else cost)["flops"]


@pytest.mark.parametrize(
    "module, fixed, quadratic",
    [
        (SAB(16, 2), (), 4 * 16),
        (ISAB(16, 2, num_inducing=8), (), 0),
        (CMAB(8, 16, 2, 8, 16), (jax.ShapeDtypeStruct((8, 16), jnp.float32),), 0),
    ],
    ids=["sab", "isab", "cmab"],
)
def test_cost(module, fixed, quadratic):
    """a + b N + c N^2: c is 4 dim or more for SAB (the two products of attention), 0 for ISAB and CMAB.

    A fourth size agrees.
    """
    sizes = np.array([128, 256, 512, 1024])
    counts = np.array([flops(module, int(size), *fixed) for size in sizes])
    c, b, a = np.polyfit(sizes[:3], counts[:3], 2)
    np.testing.assert_allclose(np.polyval([c, b, a], 1024), counts[3], rtol=1e-3)
    assert b > 0
    if quadratic:
        assert quadratic <= c < 2 * quadratic
    else:
        assert abs(c) * 1024**2 < 1e-3 * counts[3]


def test_every_op_documents_itself():
    """The one signature, and a source, in every op of the table."""
    for name, op in OPS.items():
        assert list(inspect.signature(op).parameters)[:4] == ["query", "key", "value", "mask"], name
        assert re.search(r"arXiv|Section|Appendix|\b(19|20)\d\d\b", op.__doc__), name
