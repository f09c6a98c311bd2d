"""Networks on sets: permutations, absent elements, batches, counts by hand, and what a network without mixing gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kvq_jax.models import SET_CLASSIFIERS, SET_NETWORKS, SetNetwork
from kvq_jax.models.set_networks import ENCODERS, POOLINGS, set_max, set_sum
from kvq_jax.nn import SET_FORMS
from tests.kvq_jax.nn.drawing import count, draw, run, start

NARROW = dict(dim=8, num_heads=2, num_outputs=3, out_features=2)
MASK = np.array([1, 0, 1, 1, 0, 1], bool)
PARTS = [(encoder, "pma") for encoder in ENCODERS] + [("rff", pooling) for pooling in POOLINGS if pooling != "pma"]


@pytest.mark.parametrize("encoder, pooling", PARTS)
def test_order_does_not_matter_and_a_masked_element_is_absent(encoder, pooling):
    net = SetNetwork(**NARROW, encoder=encoder, pooling=pooling, num_inducing=2, num_seeds=3, decoder_layers=1)
    x = draw(6, 2)
    variables = start(net, x)
    order = np.random.default_rng(0).permutation(6)
    everyone, garbage = np.ones(6, bool), np.where(MASK[:, None], x, 100).astype(np.float32)
    sets = np.stack([x, x[order], garbage, x, x])
    masks = np.stack([everyone, everyone, MASK, MASK, ~everyone])
    output, moved, spoilt, masked, nothing = run(net, variables, sets, mask=masks)
    assert output.shape == (3, 2)
    np.testing.assert_allclose(moved, output, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(spoilt, masked, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run(net, variables, x[MASK]), masked, rtol=1e-4, atol=1e-4)  # no mask, and no batch
    assert np.abs(masked - output).max() > 1e-3 and np.isfinite(nothing).all()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_set_without_elements_has_a_finite_gradient(pooling):
    net = SetNetwork(**NARROW, encoder="rffp_max", pooling=pooling)
    x = draw(6, 2)
    gradient = jax.jit(jax.grad(lambda v, x, m: (net.apply(v, x, mask=m) ** 2).sum(), (0, 1)))
    found = gradient(start(net, x), np.stack([x, x]), np.stack([MASK, np.zeros(6, bool)]))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@pytest.mark.parametrize("form", SET_FORMS)
def test_both_forms_with_any_op(form):
    op = dict(name="intention", alpha=0.1, alpha_kind="softplus")
    net = SetNetwork(**NARROW, num_seeds=3, embed=True, op=op, **SET_FORMS[form])
    x = draw(2, 6, 5)
    assert run(net, start(net, x), x).shape == (2, 3, 2)


def test_pooled_rows_go_to_the_head_one_by_one_or_side_by_side():
    x = draw(6, 2)
    shapes = {
        seeds: jax.eval_shape(SetNetwork(**NARROW, num_seeds=seeds).init, jax.random.key(0), x)["params"]
        for seeds in (2, 3)
    }
    kernels = {seeds: tree["head"]["layer_0"]["kernel"].shape for seeds, tree in shapes.items()}
    assert kernels == {3: (8, 2), 2: (16, 6)}


def test_deep_sets_is_its_formula():
    net = SetNetwork(8, encoder_layers=2, head=(8,), num_outputs=2, out_features=3, **SET_NETWORKS["deep_sets"].parts)
    x = draw(5, 2)
    variables = start(net, x)

    def linear(layer, x):
        return x @ np.float64(layer["kernel"]) + np.float64(layer["bias"])

    params = variables["params"]
    pooled = linear(params["encoder_1"], np.maximum(0, linear(params["encoder_0"], x))).mean(0)
    expected = linear(params["head"]["layer_1"], np.maximum(0, linear(params["head"]["layer_0"], pooled)))
    np.testing.assert_allclose(run(net, variables, x), expected.reshape(2, 3), rtol=1e-4, atol=1e-4)


def test_the_equivariant_layer_is_zaheers():
    """f_i = relu(x_i W + b + max(X) V), and V starts as W does; the head and a sum of one element read it off."""
    net = SetNetwork(4, encoder="rffp_max", encoder_layers=1, pooling="sum", out_features=2)
    x = draw(5, 3)
    params = start(net, x)["params"]
    own, pooled = params["encoder_0"], params["pooled_0"]["kernel"]
    hidden = np.maximum(0, x @ own["kernel"] + own["bias"] + x.max(0) @ pooled)
    head = params["head"]["layer_0"]
    expected = hidden.sum(0) @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(run(net, {"params": params}, x)[0], expected, rtol=1e-4, atol=1e-4)


def test_dot_product_pooling_with_a_query_of_zeros_is_the_mean():
    x = draw(5, 3)
    nets = [SetNetwork(4, encoder="rff", pooling=pooling) for pooling in ("dotprod", "mean")]
    variables = start(nets[0], x)
    still = {"params": variables["params"] | {"query": jnp.zeros((1, 1, 4))}}
    alone = {"params": {name: of for name, of in variables["params"].items() if name != "query"}}
    np.testing.assert_allclose(run(nets[0], still, x), run(nets[1], alone, x), rtol=1e-5)
    assert np.abs(run(nets[0], variables, x) - run(nets[1], alone, x)).max() > 1e-4


def test_attsets_weighs_each_feature_by_itself():
    x, mask = draw(5, 3), np.array([True, True, False, True, True])
    net = SetNetwork(4, encoder="rff", encoder_layers=0, pooling="attsets", out_features=2)
    params = start(net, x)["params"]
    scores = np.exp(x[mask] @ params["scores"]["kernel"])
    pooled = (scores / scores.sum(0) * x[mask]).sum(0)
    head = params["head"]["layer_0"]
    found = net.apply({"params": params}, x, mask=mask)
    np.testing.assert_allclose(found[0], pooled @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name, kept, each", [("rff_max", 1 / 2, 2), ("rff_pma", 1 / 4, 4)])
def test_training_thins_out_what_goes_to_pma_and_to_each_layer_of_the_head(name, kept, each):
    """With kernels of ones a set of one row of ones gives (each k) (2 j): k of 3 features are left, and j of 4 hidden.

    PMA is set to hand on its one element, so that a feature is left if two dropouts leave it.
    """
    x, keys = np.ones((1, 3), np.float32), jax.random.split(jax.random.key(0), 4000)
    parts = SET_CLASSIFIERS[name].parts | dict(dim=3, num_heads=1, encoder_layers=0, head=(4,))
    net = SET_CLASSIFIERS[name].cls(**parts)
    params = jax.tree.map(np.zeros_like, start(net, x)["params"])
    for layer in params["head"].values():
        layer["kernel"] += 1
    if "pool" in params:
        params["pool"]["mab"]["value"]["kernel"] += np.eye(3, dtype=np.float32)
    thinned = lambda key: net.apply({"params": params}, x, deterministic=False, rngs={"dropout": key})  # noqa: E731
    found = np.asarray(jax.jit(jax.vmap(thinned))(keys)).ravel()
    left, hidden = (stats.binom.pmf(range(n + 1), n, share) for n, share in ((3, kept), (4, 1 / 2)))
    value, share = 2 * each * np.outer(range(4), range(5)), np.outer(left, hidden)
    for one in np.unique(value):
        assert (found == one).mean() == pytest.approx(share[value == one].sum(), abs=0.025)
    assert run(net, {"params": params}, x).item() == 12
    assert SetNetwork(**parts).apply({"params": params}, x).item() == 12


def test_parameter_counts_by_hand():
    linear = lambda a, b: a * b + b  # noqa: E731
    x, wide = np.zeros((10, 2)), 128
    mab = lambda a, b: linear(a, wide) + 2 * linear(b, wide) + linear(wide, wide)  # noqa: E731
    of = lambda name, **fields: count(SetNetwork(wide, **SET_NETWORKS[name].parts, **fields), x)  # noqa: E731
    clusters = dict(num_outputs=4, out_features=5)
    pooled = linear(2, wide) + 6 * linear(wide, wide) + linear(wide, 20)
    assert of("rff_mean", encoder_layers=4, head=(128,) * 3, **clusters) == pooled
    assert of("rff_dotprod", encoder_layers=4, head=(128,) * 3, **clusters) == pooled + wide
    layers = linear(4, wide) + 3 * linear(2 * wide, wide)
    assert of("rffp_max", encoder_layers=4, **clusters) == layers + linear(wide, 20)
    isabs = 2 * 16 * wide + mab(wide, 2) + mab(2, wide) + 2 * mab(wide, wide)
    decoder = 4 * wide + 2 * mab(wide, wide) + linear(wide, 5)
    assert of("isab16_pma", num_seeds=4, decoder_layers=1, **clusters) == isabs + decoder
    assert of("sab_pma") == mab(2, 2) + mab(wide, wide) + wide + mab(wide, wide) + linear(wide, 1)


def test_pooling_of_rows():
    rows = draw(2, 6, 3)
    np.testing.assert_allclose(set_sum(rows, MASK), rows[:, MASK].sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(set_max(rows, MASK), rows[:, MASK].max(1, keepdims=True))
    np.testing.assert_allclose(set_max(rows, MASK & False), np.zeros((2, 1, 3)))
    np.testing.assert_array_equal(set_max(rows[:, :0]), np.zeros((2, 1, 3)))
    for pool in (set_sum, set_max):
        for mask in (jnp.where(MASK, 0, -jnp.inf), jnp.ones((2, 1), bool)):  # an additive one; of another number
            with pytest.raises(ValueError, match="expected a"):
                pool(rows, mask)


def test_what_does_not_exist_is_named():
    for field, near in (("encoder", "isab"), ("pooling", "mean")):
        with pytest.raises(ValueError, match=f"unknown {field} '{near}x'.*did you mean '{near}'"):
            count(SetNetwork(8, **{field: near + "x"}), draw(3, 2))
