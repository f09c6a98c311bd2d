"""Numbers of clusters that vary: the law of the sets, rows that are masked, what EM is told."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.set_transformer import clusters as config_file
from experiments.harness.launch import split_evaluation
from experiments.set_transformer.clustering import host
from experiments.set_transformer.clusters import experiment as clusters
from experiments.tasks.mixtures import Mixtures, VaryingMixtures
from kvq_jax.models import SetNetwork
from kvq_jax.models.mixture import em_step, log_joint, log_likelihood, mixture_of
from tests.kvq_jax.nn.drawing import draw, start

FIELDS = dict(min_size=40, max_size=40, clusters=5, dimension=2, position=(-4.0, 4.0), std=0.3)
TASK = VaryingMixtures(**FIELDS, min_clusters=2)


def test_all_numbers_of_clusters_are_drawn_and_points_are_of_those_that_are_there():
    sets = jax.device_get(
        jax.jit(jax.vmap(lambda key: TASK.sample(key, None)))(jax.random.split(jax.random.key(0), 2000))
    )
    count = sets.truth.there.sum(-1)
    assert np.bincount(count, minlength=6) / 2000 == pytest.approx(np.array([0, 0, 1, 1, 1, 1]) / 4, abs=0.04)
    weight = np.exp(sets.truth.mixture.log_weight)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-5)
    assert ((weight > 0) == sets.truth.there).all() and (sets.truth.component < count[:, None]).all()
    first = sets.truth.mixture.log_weight[count == 2][:, 0]
    assert np.exp(first).mean() == pytest.approx(0.5, abs=0.04)  # Dirichlet(1, 1)
    fixed = Mixtures(**FIELDS).sample(jax.random.key(0), None)
    assert fixed.truth.there is None and np.isfinite(fixed.truth.mixture.log_weight).all()
    with pytest.raises(ValueError, match="min_clusters <= clusters does not hold for 6 and 5"):
        VaryingMixtures(**FIELDS, min_clusters=6)


def test_rows_that_are_not_asked_for_change_nothing():
    """What the seeds of absent clusters are, the others do not see; and their components weigh nothing."""
    net = SetNetwork(8, num_heads=2, encoder="rff", num_seeds=4, decoder_layers=1, num_outputs=4, out_features=5)
    x, there = draw(9, 2), np.array([True, False, True, False])
    variables = start(net, x)
    seeds = variables["params"]["pool"]["seeds"]
    other = jax.tree.map(lambda leaf: leaf, variables)
    other["params"]["pool"]["seeds"] = jnp.where(there[None, :, None], seeds, 7.0)
    apply = jax.jit(lambda variables, there: net.apply(variables, x, seeds=there))
    found, changed = apply(variables, there), apply(other, there)
    np.testing.assert_allclose(found[there], changed[there], rtol=1e-5, atol=1e-6)
    assert np.abs(apply(variables, None)[there] - found[there]).max() > 1e-3


def test_components_that_are_not_there_weigh_nothing():
    rows, x, there = draw(4, 5), draw(9, 2, seed=1), np.array([True, False, True, False])
    mixture, alone = mixture_of(rows, 2, there=there), mixture_of(rows[there], 2)
    assert log_likelihood(mixture, x) == pytest.approx(float(log_likelihood(alone, x)), rel=1e-5)
    after, expected = em_step(mixture, x), em_step(alone, x)
    assert log_likelihood(after, x) == pytest.approx(float(log_likelihood(expected, x)), rel=1e-5)
    np.testing.assert_allclose(after.mean[there], expected.mean, rtol=1e-4)
    assert there[log_joint(after, x).argmax(-1)].all()
    gradient = jax.jit(jax.grad(lambda rows: log_likelihood(mixture_of(rows, 2, there=there), x)))(rows)
    assert np.isfinite(gradient).all() and not gradient[~there].any() and np.abs(gradient[there]).min() > 0


def test_the_experiment_is_that_of_clustering():
    config = config_file.get_config("model=rff_pma,preset=tiny")
    made = clusters.build(config, split_evaluation(config.evaluation)[1], None)
    variables = jax.eval_shape(made.init, jax.random.key(0))
    found = jax.eval_shape(lambda variables: made.evaluate(variables, None, jax.random.key(0)), variables)
    assert found["clusters"].shape == found["ll0"].shape == (6,) and found["x"].shape == (2, 50, 2)
    arrays = {name: np.zeros((2, *leaf.shape), leaf.dtype) for name, leaf in found.items()}
    rng = np.random.default_rng(0)
    arrays["x"], arrays["component"] = rng.normal(size=(2, 2, 50, 2)), rng.integers(0, 2, (2, 6, 50))
    arrays["clusters"][:, :2] = [3, 2]
    with mock.patch.object(host, "fit", wraps=host.fit) as fit:
        metrics = made.host(arrays)
    assert [call.args[1] for call in fit.call_args_list] == [3, 3, 2] and metrics["ll_em"].shape == (1, 2)
