"""MAB, SAB, ISAB, PMA: against the formulas of the paper and of its code, in NumPy; counts, starts, masks, refusals."""

import jax
import numpy as np
import pytest

from kvq_jax.nn.set_transformer import ISAB, MAB, PMA, RFF, SAB, SET_FORMS, points_init
from tests.kvq_jax.nn.drawing import count, draw, run, start

DIM, HEADS = 8, 2
MASK = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], bool)


def linear(params, x):
    return x @ np.asarray(params["kernel"], np.float64) + np.asarray(params.get("bias", 0.0), np.float64)


def norm(params, x):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * np.asarray(params["scale"]) + np.asarray(params["bias"])


def attention(q, k, v, divisor):
    """Heads are slices of the features."""
    outputs = []
    for columns in np.split(np.arange(DIM), HEADS):
        weights = np.exp(q[:, columns] @ k[:, columns].T / divisor)
        outputs.append(weights / weights.sum(-1, keepdims=True) @ v[:, columns])
    return np.concatenate(outputs, -1)


def code_mab(params, x, y):
    """The released code: the residual on the projected query, scores divided by sqrt(dim_V), no W_o, no norms."""
    q, k, v = linear(params["query"], x), linear(params["key"], y), linear(params["value"], y)
    o = q + attention(q, k, v, np.sqrt(DIM))
    return o + np.maximum(linear(params["rff"]["layer_0"], o), 0)


def paper_mab(params, x, y):
    q, k, v = linear(params["query"], x), linear(params["key"], y), linear(params["value"], y)
    heads = linear(params["out"], attention(q, k, v, np.sqrt(DIM / HEADS)))
    h = norm(params["norm_heads"], x + heads)
    return norm(params["norm_rff"], h + np.maximum(linear(params["rff"]["layer_0"], h), 0))


@pytest.mark.parametrize("form, reference, width", [("code", code_mab, 3), ("paper", paper_mab, DIM)])
def test_mab_is_its_formula(form, reference, width):
    x, y = draw(4, width, seed=1), draw(5, 6, seed=2)
    module = MAB(DIM, HEADS, **SET_FORMS[form])
    variables = start(module, x, y)
    expected = reference(variables["params"], *(np.asarray(a, np.float64) for a in (x, y)))
    np.testing.assert_allclose(run(module, variables, x, y), expected, rtol=2e-5, atol=2e-5)


def test_the_code_form_is_the_default():
    assert all(getattr(SAB(DIM), field) == value for field, value in SET_FORMS["code"].items())
    assert SET_FORMS["code"].keys() == SET_FORMS["paper"].keys()


@pytest.mark.parametrize("form", SET_FORMS)
def test_blocks_are_made_of_mabs(form):
    x = draw(2, 5, DIM, seed=1)
    options = dict(dim=DIM, num_heads=HEADS, **SET_FORMS[form])
    mab = MAB(**options)

    def apply_mab(params, x, y):
        return run(mab, {"params": params}, x, y)

    sab, isab = SAB(**options), ISAB(**options, num_inducing=3)
    params = start(sab, x)["params"]
    np.testing.assert_allclose(run(sab, {"params": params}, x), apply_mab(params["mab"], x, x), atol=1e-6)
    params = start(isab, x)["params"]
    hidden = apply_mab(params["mab_0"], params["inducing"][0], x)
    np.testing.assert_allclose(run(isab, {"params": params}, x), apply_mab(params["mab_1"], x, hidden), atol=1e-5)
    for use_rff in (False, True):
        pma = PMA(**options, num_seeds=3, use_rff=use_rff)
        params = start(pma, x)["params"]
        z = np.maximum(0, x @ params["rff"]["layer_0"]["kernel"] + params["rff"]["layer_0"]["bias"]) if use_rff else x
        np.testing.assert_allclose(
            run(pma, {"params": params}, x), apply_mab(params["mab"], params["seeds"][0], z), atol=1e-5
        )


def test_parameter_counts_of_the_released_code():
    points = np.zeros((2, 10, 2))
    features = np.zeros((2, 10, 128))
    layer = 128 * 128 + 128
    assert count(MAB(128), features, features) == 4 * layer
    assert count(ISAB(128), points) == 32 * 128 + (2 * layer + 2 * 3 * 128) + (3 * layer + 3 * 128) == 87808
    assert count(SAB(128), features) == 66048
    assert count(PMA(128, num_seeds=4), features) == 4 * 128 + 66048
    # The released clustering model: two ISABs, a PMA, two SABs, and a last layer of 128 x 4 + 4.
    model = count(ISAB(128), points) + count(ISAB(128), features) + count(PMA(128, num_seeds=4), features)
    assert model + 2 * count(SAB(128), features) + 516 == 423172


def test_inducing_points_and_seeds_start_as_the_released_code():
    assert start(ISAB(64, num_inducing=100), draw(5, 3))["params"]["inducing"].shape == (1, 100, 64)
    assert start(PMA(64, num_seeds=3), draw(5, 3))["params"]["seeds"].shape == (1, 3, 64)
    inducing, bound = points_init(jax.random.key(0), (1, 100, 64)), np.sqrt(6 / (64 * 101))
    np.testing.assert_allclose(
        [inducing.min(), inducing.max(), inducing.std()], [-bound, bound, bound / np.sqrt(3)], rtol=0.05
    )


@pytest.mark.parametrize("module", [SAB, ISAB, PMA])
@pytest.mark.parametrize("form", SET_FORMS)
def test_a_masked_element_is_absent(module, form):
    x = draw(2, 5, DIM, seed=1)
    block = module(DIM, HEADS, **SET_FORMS[form])
    variables = start(block, x)
    kept = np.flatnonzero(MASK[0])
    output = run(block, variables, x, mask=MASK)
    alone = run(block, variables, x[0, kept])
    np.testing.assert_allclose(output[0] if module is PMA else output[0, kept], alone, atol=1e-5)
    assert np.isfinite(output).all()
    other = run(block, variables, np.where(MASK[..., None], x, 1e3), mask=MASK)
    np.testing.assert_allclose(*(y if module is PMA else y[:, kept] for y in (other[:1], output[:1])), atol=1e-6)


def test_a_mask_for_each_query_of_a_mab():
    x, y = draw(2, 4, DIM, seed=1), draw(2, 5, 6, seed=2)
    block = MAB(DIM, HEADS)
    variables = start(block, x, y)
    mask = np.random.default_rng(0).random((2, 4, 5)) < 0.5
    output = run(block, variables, x, y, mask=mask)
    for row in range(4):
        alone = run(block, variables, x[:, row : row + 1], y, mask=mask[:, row])
        np.testing.assert_allclose(output[:, row : row + 1], alone, atol=1e-5)


def test_no_element_left_leaves_what_comes_from_the_queries():
    x, y = draw(4, 3, seed=1), draw(5, 6, seed=2)
    block = MAB(DIM, HEADS)
    variables = start(block, x, y)
    o = linear(variables["params"]["query"], np.asarray(x))
    expected = o + np.maximum(linear(variables["params"]["rff"]["layer_0"], o), 0)
    np.testing.assert_allclose(run(block, variables, x, y, mask=np.zeros(5, bool)), expected, atol=1e-5)


def test_any_op_with_an_alpha_for_each_head():
    x = draw(5, DIM, seed=1)
    block = SAB(DIM, HEADS, op=dict(name="intention", alpha=0.1, alpha_kind="softplus"))
    variables = start(block, x)
    variables["params"]["mab"]["mixer"]["alpha"]["theta"] = np.log(np.expm1([0.1, 0.1])).astype(np.float32)
    fixed = SAB(DIM, HEADS, op=dict(name="intention", alpha=0.1))
    params = {"mab": {k: v for k, v in variables["params"]["mab"].items() if k != "mixer"}}
    np.testing.assert_allclose(run(block, variables, x), run(fixed, {"params": params}, x), atol=1e-5)


def test_rff_is_linear_and_relu_by_rows():
    x = draw(5, 3, seed=1)
    module = RFF((4, 6))
    variables = start(module, x)
    hidden = np.asarray(x)
    for layer in ("layer_0", "layer_1"):
        hidden = np.maximum(linear(variables["params"][layer], hidden), 0)
    np.testing.assert_allclose(run(module, variables, x), hidden, atol=1e-5)


def test_refusals():
    x = draw(5, 6)
    with pytest.raises(ValueError, match="unknown residual 'papers'.*'paper'"):
        count(SAB(DIM, residual="papers"), x)
    with pytest.raises(ValueError, match="unknown scaling"):
        count(SAB(DIM, scaling="half"), x)
    with pytest.raises(ValueError, match="unknown op 'softmx'.*'softmax'"):
        count(SAB(DIM, op="softmx"), x)
    with pytest.raises(ValueError, match="3 heads do not divide a width of 8"):
        count(SAB(DIM, 3), x)
    with pytest.raises(ValueError, match="adds 8 features to 6"):
        count(SAB(DIM, HEADS, **SET_FORMS["paper"]), x)
