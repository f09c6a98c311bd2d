"""The Gaussian-process task: the laws of its sampler; its oracle against scikit-learn, by hand, on a known scale."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from experiments.harness.size_classes import choose_classes
from experiments.tasks.base import Task, marginals, oracle_log_likelihood, student_noise
from experiments.tasks.gaussian_process import KERNELS, GaussianProcess, Hyperparameters
from kvq_jax.models.points import Points

GP = GaussianProcess(
    kernel="rbf",
    length_scale=(0.1, 0.6),
    scale=(0.1, 1.0),
    period=(0.1, 0.5),
    noise=0.02,
    t_scale=(0.0, 0.0),
    t_freedom=2.1,
    position=(-2.0, 2.0),
    min_context=3,
    max_context=46,
    min_targets=3,
    max_points=49,
)


@functools.cache
def batch(task, n=5000, seed=0):
    return jax.jit(jax.vmap(task.sample, (0, None)))(jax.random.split(jax.random.key(seed), n), None)


def test_positions_numbers_and_parameters_have_the_published_laws():
    tasks = batch(GP)
    n, m = (np.asarray(points.mask).sum(-1) for points in (tasks.context, tasks.target))
    assert set(n) == set(range(3, 47)) and m.min() == 3 and (n + m).max() == 49
    assert abs(n.mean() - 24.5) < 4 * 12.7 / 5000**0.5
    np.testing.assert_allclose(m[n == 3].mean(), (3 + 46) / 2, atol=5)  # M is uniform on 3..49 - N
    np.testing.assert_array_equal(m[n == 46], 3)
    for points in (tasks.context, tasks.target):
        assert (np.sort(points.mask, -1)[:, ::-1] == points.mask).all() and points.x.shape == (5000, 46, 1)
        there = np.asarray(points.x)[np.asarray(points.mask)]
        assert -2 <= there.min() < -1.99 and 1.99 < there.max() <= 2 and abs(there.mean()) < 0.02
        assert not np.asarray(points.y)[~np.asarray(points.mask)].any()
    for name, (low, high) in (("length_scale", (0.1, 0.6)), ("scale", (0.1, 1)), ("period", (0.1, 0.5))):
        drawn = np.asarray(getattr(tasks.truth, name))
        assert low <= drawn.min() and drawn.max() <= high and abs(drawn.mean() - (low + high) / 2) < 0.02
    assert len(set(np.asarray(tasks.context.x)[0, : n[0], 0]) & set(np.asarray(tasks.target.x)[0, : m[0], 0])) == 0


def test_the_law_of_sizes_is_that_of_the_protocol():
    """N uniform, and M uniform on what N leaves: every pair by hand, and the sizes that tasks have."""
    law = {tuple(size): p for size, p in zip(GP.law.sizes.tolist(), GP.law.probability)}
    assert law == pytest.approx({(n, m): 1 / 44 / (47 - n) for n in range(3, 47) for m in range(3, 50 - n)})
    assert GP.law.slots == (46, 46) and GP.law.probability @ GP.law.sizes == pytest.approx([24.5, 13.75])
    assert choose_classes(GP.law, 12).waste < 1.25 < choose_classes(GP.law, 1).waste
    assert choose_classes(GP.law.of_points, 6).waste < 1.2
    tasks = batch(GP)
    drawn = [np.asarray(points.mask).sum(-1) for points in tasks[:2]]
    bins = dict(bins=8, range=[(2.5, 46.5)] * 2)
    found = np.histogram2d(*drawn, **bins)[0].ravel()
    expected = np.histogram2d(*GP.law.sizes.T, **bins, weights=5000 * GP.law.probability)[0].ravel()
    assert not found[expected == 0].any()
    assert scipy.stats.chisquare(found[expected > 0], expected[expected > 0]).pvalue > 0.01


@pytest.mark.parametrize("t_scale", [(0.0, 0.0), (0.0, 0.15)])
def test_more_slots_change_no_point(t_scale):
    """A batch in one class and in a larger one: the same points to rounding, and zeros in the slots that are empty."""
    task, size, key = dataclasses.replace(GP, t_scale=t_scale), (9, 5), jax.random.key(4)
    sample = jax.jit(task.sample, static_argnums=(1, 2))
    whole = jax.device_get(sample(key, None, size))
    assert whole.context.mask is None and whole.target.mask is None
    for slots in ((12, 24), (46, 7), (46, 46)):
        sampled = jax.device_get(sample(key, None, slots, size))
        for points, expected, held, count in zip(sampled, whole, slots, size):
            np.testing.assert_array_equal(points.mask, np.arange(held) < count)
            np.testing.assert_array_equal(points.x[:count], expected.x)
            np.testing.assert_allclose(points.y[:count], expected.y, atol=1e-5)
            assert not points.x[count:].any() and not points.y[count:].any()


@pytest.mark.parametrize("t_scale", [(0.0, 0.0), (0.0, 0.15)])
def test_all_points_in_one_array(t_scale):
    """The context is the first rows of the points, and more slots change no point."""
    task, size = dataclasses.replace(GP, t_scale=t_scale), (9, 14)
    draws = task.draw(jax.random.key(4), None)
    fill = jax.jit(task.fill_points, static_argnums=1)
    whole = task.fill_points(draws, size, None)
    assert whole.context.mask is None and whole.target.mask is None and whole.target.x.shape == (14, 1)
    for slots in ((12, 24), (9, 49)):
        sampled = jax.device_get(fill(draws, slots, size))
        for points, held, count in zip(sampled, slots, size):
            np.testing.assert_array_equal(points.mask, np.arange(held) < count)
            np.testing.assert_array_equal(points.x[:count], whole.target.x[:count])
            np.testing.assert_allclose(points.y[:count], whole.target.y[:count], atol=1e-5)
        np.testing.assert_array_equal(sampled.context.y, sampled.target.y[: slots[0]])


def by_hand(kernel, d, h):
    r = np.abs(d) / h.length_scale
    return {
        "rbf": np.exp(-(r**2) / 2),
        "matern": (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r),
        "periodic": np.exp(-2 * (np.sin(np.pi * d / h.period) / h.length_scale) ** 2),
    }[kernel]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_second_moments_of_y_are_the_kernel_and_its_noise(kernel):
    """With all parameters fixed, E[y y'] at distance d is scale^2 k(d), and noise^2 more at a point itself."""
    fixed = dict(length_scale=(0.4, 0.4), scale=(0.8, 0.8), period=(0.3, 0.3), noise=0.5)
    few = dict(min_context=3, max_context=3, min_targets=3, max_points=6)
    tasks = batch(dataclasses.replace(GP, kernel=kernel, **fixed, **few), 20_000)
    x, y = (
        np.concatenate([getattr(points, part)[:, :3, 0] for points in (tasks.context, tasks.target)], 1)
        for part in "xy"
    )
    first, second = np.triu_indices(6, 1)
    products, distance = y[:, first] * y[:, second], x[:, first] - x[:, second]
    expected = 0.8**2 * by_hand(kernel, distance, Hyperparameters(0.4, 0.8, 0.3))
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 4)):
        near = (low <= np.abs(distance)) & (np.abs(distance) < high)
        error = (products - expected)[near]
        assert abs(error.mean()) < 5 * error.std() / near.sum() ** 0.5 * 2  # pairs of one function are not independent
    np.testing.assert_allclose((y**2).mean(), 0.8**2 + 0.5**2, rtol=0.02)


@pytest.mark.parametrize("t_scale", [(0.3, 0.3), (0.0, 0.15)])
def test_students_noise_is_added_to_the_same_function(t_scale):
    plain, noisy = batch(GP, 1000), batch(dataclasses.replace(GP, t_scale=t_scale), 1000)
    np.testing.assert_array_equal(plain.context.x, noisy.context.x)
    noise = np.abs(noisy.context.y - plain.context.y)[np.asarray(plain.context.mask)]
    # The upper quartile of |t| with 2.1 degrees of freedom is 1.58; E over a uniform scale has no such number.
    if t_scale[0] == t_scale[1]:
        np.testing.assert_allclose(np.quantile(noise, 0.75), 0.3 * 1.58, rtol=0.03)
    assert 0 < np.median(noise) < 0.3 and noise.max() > 10 * np.median(noise)


# (marginal, its error, joint, its error).
CEILINGS = {
    "rbf": (1.516, 0.017, 1.803, 0.010),
    "matern": (1.112, 0.015, 1.380, 0.010),
    "periodic": (1.196, 0.017, 1.493, 0.011),
}
TEXT = {"rbf": (2.073, 2.250), "matern": (1.770, 1.996)}


def measured(task, n=4000):
    one = lambda key: oracle_log_likelihood(task, task.sample(key, None))
    values = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), n))
    return {kind: (float(v.mean()), float(v.std() / n**0.5)) for kind, v in values.items()}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_oracle_reaches_the_ceilings_of_the_benchmark(kernel):
    """Ceilings computed apart from this code, in float64, on 24,000 functions of the code's ranges."""
    got = measured(dataclasses.replace(GP, kernel=kernel))
    marginal, marginal_error, joint, joint_error = CEILINGS[kernel]
    for (value, error), expected, expected_error in (
        (got["marginal"], marginal, marginal_error),
        (got["joint"], joint, joint_error),
    ):
        assert abs(value - expected) < 3 * np.hypot(error, expected_error)


@pytest.mark.parametrize("kernel", TEXT)
def test_the_ranges_of_the_text_have_other_ceilings(kernel):
    got = measured(dataclasses.replace(GP, kernel=kernel, length_scale=(0.6, 1.0)))
    np.testing.assert_allclose([got["marginal"][0], got["joint"][0]], TEXT[kernel], atol=0.05)


SKLEARN = {
    "rbf": lambda h: kernels.RBF(h.length_scale),
    "matern": lambda h: kernels.Matern(h.length_scale, nu=2.5),
    "periodic": lambda h: kernels.ExpSineSquared(h.length_scale, h.period),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_oracle_is_scikit_learns_posterior(kernel):
    """On the points that the mask keeps, in float32, for functions of both protocols."""
    for seed, length_scale in enumerate(((0.1, 0.6), (0.6, 1.0))):
        gp = dataclasses.replace(GP, kernel=kernel, length_scale=length_scale)
        task = jax.jit(gp.sample)(jax.random.key(seed), None)
        joint = jax.jit(gp.oracle)(task, task.target.x, task.target.mask)
        h = Hyperparameters(*map(float, task.truth))
        theirs = h.scale**2 * SKLEARN[kernel](h) + kernels.WhiteKernel(gp.noise**2)
        context, target = (
            [np.float64(part)[np.asarray(p.mask)] for part in (p.x, p.y)] for p in (task.context, task.target)
        )
        model = GaussianProcessRegressor(theirs, alpha=0, optimizer=None).fit(context[0], context[1][:, 0])
        mean, covariance = model.predict(target[0], return_cov=True)
        m = len(mean)
        np.testing.assert_allclose(joint.mean[:m], mean, atol=2e-4)
        np.testing.assert_allclose(joint.covariance_matrix[:m, :m], covariance, atol=2e-5, rtol=1e-3)
        np.testing.assert_allclose(np.sqrt(joint.variance[:m]), np.sqrt(np.diag(covariance)), rtol=2e-3)
        np.testing.assert_allclose(joint.mean[m:], 0, atol=0)
        np.testing.assert_allclose(joint.variance[m:], 1, atol=0)


def test_likelihoods_by_hand():
    """Without context, two far targets and one absent: log N(y; 0, s^2 + noise^2) each, and their sum is the joint."""
    h = Hyperparameters(jnp.float32(0.1), jnp.float32(0.5), jnp.float32(0.3))
    target = Points(
        jnp.array([[-2.0], [2.0], [0.5]]), jnp.array([[0.3], [-0.1], [9.0]]), jnp.array([True, True, False])
    )
    context = Points(jnp.ones((2, 1)), jnp.full((2, 1), 7.0), jnp.zeros(2, bool))
    got = jax.jit(lambda task: oracle_log_likelihood(GP, task))(Task(context, target, h))
    variance = 0.5**2 + 0.02**2
    expected = np.mean([-0.5 * (np.log(2 * np.pi * variance) + y**2 / variance) for y in (0.3, -0.1)])
    np.testing.assert_allclose([got["marginal"], got["joint"]], expected, rtol=1e-5)


def test_float32_loses_nothing_that_matters(x64):
    """The same functions judged in float64: likelihoods differ by less than 0.001, on the worst protocol and kernel."""
    gp = dataclasses.replace(GP, length_scale=(0.6, 1.0))
    tasks = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if leaf.dtype != bool else leaf, batch(gp, 100))
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if leaf.dtype != bool else leaf, tasks)
    judge = jax.jit(jax.vmap(lambda task: oracle_log_likelihood(gp, task)))
    exact, rounded = judge(tasks), judge(narrow)
    for kind in exact:
        assert np.abs(np.mean(exact[kind] - rounded[kind])) < 1e-3 and np.abs(exact[kind] - rounded[kind]).max() < 0.02


def test_marginals_forget_the_covariance_alone():
    task = jax.jit(GP.sample)(jax.random.key(2), None)
    joint = jax.jit(GP.oracle)(task, jnp.linspace(-2, 2, 5)[:, None])
    alone = marginals(joint)
    assert alone.batch_shape == (5,) and alone.event_shape == (1,)
    np.testing.assert_allclose(alone.variance[:, 0], np.diag(joint.covariance_matrix), rtol=1e-5)


@pytest.mark.parametrize(
    "change, message",
    [({"kernel": "matern32"}, "unknown kernel 'matern32'"), ({"max_context": 47}, "max_points - min_targets")],
)
def test_impossible_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(GP, **change)


def test_parameters_and_positions_are_independent():
    tasks = batch(GP)
    drawn = [*map(np.asarray, tasks.truth), *np.asarray(tasks.context.x)[:, :3, 0].T]
    assert np.abs(np.corrcoef(drawn) - np.eye(6)).max() < 0.07


def test_every_number_has_a_scale_of_its_own():
    """The fourth moment over the squared second: 3 of a normal, 3 (1/5) / (1/3)^2 with a uniform scale."""
    noise = np.asarray(student_noise(jax.random.key(0), (0.0, 1.0), 1e4, (100_000,)), float)
    assert np.mean(noise**4) / np.mean(noise**2) ** 2 == pytest.approx(5.4, rel=0.05)
