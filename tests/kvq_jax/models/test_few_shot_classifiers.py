"""Few-shot classifiers: heads against scikit-learn, symmetries of labels and images, MAML by hand, transduction."""

import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifier

from kvq_jax.models import CLASSIFIERS, IntentionClassifier, MAMLClassifier, PrototypeClassifier
from kvq_jax.models.few_shot_classifiers import LOSSES, class_means, cross_entropy
from kvq_jax.nn import ConvEncoder
from kvq_jax.ops import OPERATORS

WAY, SHOT, QUERY = 3, 4, 5
LABEL_OPS = [name for name, row in OPERATORS.items() if row.labels]
CONV = ConvEncoder((4,))
SMALL = {
    "intention": dict(latent=8, op=dict(name="ls_svm", alpha=1.0, alpha_kind="softplus")),
    "attention": dict(latent=8, value_features=(8,), decoder_features=(8,), head_features=4),
    "neural_process": dict(latent=8, decoder_features=(8,)),
    "prototypes": {},
    "maml": dict(inner_steps=2, test_steps=3),
}
each_model = pytest.mark.parametrize("name", SMALL)


class Flat(nn.Module):
    """Pixels as features: an encoder whose features are known."""

    statistics: str = "transductive"

    @nn.compact
    def __call__(self, image, train=False):
        return image.reshape(*image.shape[:-3], -1)


def episode(*leading, size=6, seed=0):
    """Images whose mean says their class, more or less: context, labels, targets, labels."""
    keys = jax.random.split(jax.random.key(seed), 3)
    centre = jax.random.normal(keys[0], (WAY, size, size, 1))

    def part(key, count):
        label = jnp.repeat(jnp.arange(WAY), count)
        noise = jax.random.normal(key, (*leading, WAY * count, size, size, 1))
        return 0.5 * centre[label] + noise, jnp.broadcast_to(jax.nn.one_hot(label, WAY), (*leading, WAY * count, WAY))

    return *part(keys[1], SHOT), *part(keys[2], QUERY)


@functools.cache
def build(name):
    model = CLASSIFIERS[name].cls(encoder=CONV, **SMALL[name])
    context, label, target, _ = episode()
    return jax.jit(functools.partial(model.apply, train=False)), jax.jit(model.init)(
        jax.random.key(1), context, label, target
    )


def close(actual, expected, atol=1e-4):
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=atol)


@each_model
def test_the_order_of_the_context_means_nothing_and_targets_follow_theirs(name):
    apply, variables = build(name)
    context, label, target, _ = episode()
    there = apply(variables, context, label, target)
    assert there.shape == (WAY * QUERY, WAY) and there.dtype == jnp.float32
    order = jax.random.permutation(jax.random.key(2), WAY * SHOT)
    close(apply(variables, context[order], label[order], target), there)
    close(apply(variables, context, label, target[::-1]), there[::-1])


@pytest.mark.parametrize("name", ["intention", "prototypes"])
def test_other_names_of_the_classes_permute_the_scores(name):
    apply, variables = build(name)
    context, label, target, _ = episode()
    order = jnp.array([2, 0, 1])
    close(apply(variables, context, label[:, order], target), apply(variables, context, label, target)[:, order])


@each_model
def test_leading_dimensions_are_a_loop(name):
    apply, variables = build(name)
    context, label, target, _ = episode(2)
    together = apply(variables, context, label, target)
    for index in range(2):
        close(together[index], apply(variables, context[index], label[index], target[index]))


@each_model
def test_gradients_are_finite_and_reach_every_parameter(name):
    _, variables = build(name)
    model = CLASSIFIERS[name].cls(encoder=CONV, **SMALL[name])
    context, label, target, answer = episode(2)

    def loss(variables):
        return LOSSES[model.loss](model.apply(variables, context, label, target, True), answer)

    gradients = jax.jit(jax.grad(loss))(variables)
    for path, leaf in jax.tree.leaves_with_path(gradients):
        # Neither a softmax over keys nor what is centred sees a shift of all keys and queries.
        place = jax.tree_util.keystr(path)
        unseen = "bias" in place and ("'key'" in place or name == "intention" and "'latent'" in place)
        assert np.isfinite(leaf).all() and (unseen or np.abs(leaf).max() > 0), place


def head(op, alpha, **options):
    """Scores of Intention on raw pixels, through an e_H that leaves them as they are, and the episode in numpy."""
    arrays = episode(size=3)
    model = IntentionClassifier(Flat(), 9, dict(name=op, alpha=alpha), **options)
    params = {"latent": {"kernel": jnp.eye(9), "bias": jnp.zeros(9)}}
    scores = jax.jit(model.apply)({"params": params}, *arrays[:3])
    flat = lambda x: np.float64(x).reshape(len(x), -1)
    return np.asarray(scores), flat(arrays[0]), np.asarray(arrays[1].argmax(-1)), flat(arrays[2])


def test_ls_svm_is_the_ridge_classifier():
    scores, key, label, query = head("ls_svm", alpha=2.0)
    oracle = RidgeClassifier(alpha=2.0).fit(key, label)
    close(scores, oracle.decision_function(query))


def test_the_ridge_head_is_ridge_regression_on_one_hot_labels():
    scores, key, label, query = head("intention", alpha=2.0)
    weights = np.linalg.solve(key.T @ key + 2 * np.eye(9), key.T @ np.eye(WAY)[label])
    close(scores, query @ weights)


def test_the_within_class_head_is_what_others_call_lda():
    """Without a ridge, on more images than features; differences of scores are differences of log posteriors."""
    scores, key, label, query = head("within_class", alpha=1e-6)
    oracle = LinearDiscriminantAnalysis(solver="lsqr").fit(key, label).decision_function(query)
    close(scores - scores[:, :1], oracle - oracle[:, :1], atol=2e-2)


def test_the_gaussian_head_is_kernel_ridge_regression():
    gamma = 0.05
    scores, key, label, query = head("intention", alpha=0.3, kernel="gaussian", gamma=gamma)
    oracle = KernelRidge(alpha=0.3, kernel="rbf", gamma=gamma).fit(key, np.eye(WAY)[label])
    close(scores, oracle.predict(query), atol=2e-3)


@pytest.mark.parametrize(
    "name, kernel, alpha",
    [(name, "linear", 5.0) for name in ("intention", "ls_svm", *LABEL_OPS)]
    + [(name, "gaussian", 0.1) for name in ("ls_svm", "qda")],
)
def test_every_head_learns_from_its_context(name, kernel, alpha):
    model = IntentionClassifier(Flat(), 64, dict(name=name, alpha=alpha, alpha_kind="softplus"), kernel)
    losses = dict(intention="squared_error", ls_svm="signed_squared_error") | dict.fromkeys(LABEL_OPS, "cross_entropy")
    assert model.loss == losses[name]
    context, label, target, answer = episode(6)
    scores, _ = jax.jit(model.init_with_output)(jax.random.key(0), context, label, target)
    assert np.mean(scores.argmax(-1) == answer.argmax(-1)) > 0.7 and np.isfinite(LOSSES[model.loss](scores, answer))


def test_losses_by_hand():
    scores, label = jnp.array([[1.0, -1.0]]), jnp.array([[1.0, 0.0]])
    assert LOSSES["signed_squared_error"](scores, label) == 0
    assert LOSSES["squared_error"](scores, label) == 0.5
    assert cross_entropy(scores, label) == pytest.approx(np.log1p(np.exp(-2)), rel=1e-5)
    never = jnp.array([[0.3, -jnp.inf]])  # what a discriminant says of a class without context
    value, gradient = jax.value_and_grad(cross_entropy)(never, label)
    assert value == 0 and np.isfinite(gradient).all()


def test_class_means_and_prototypes_by_hand():
    key, label = jnp.array([[1.0, 0], [3, 0], [0, 5]]), jnp.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert class_means(key, label).tolist() == [[2, 0], [0, 5], [0, 0]]
    image = lambda x: x[:, None, :, None]
    scores = PrototypeClassifier(Flat()).apply({}, image(key), label, image(jnp.array([[2.0, 1]])))
    close(scores, [[-1.0, -20.0, -5.0]])


def maml(**fields):
    return MAMLClassifier(Flat(), **({"inner_steps": 2, "inner_rate": 0.05} | fields))


def outer_gradient(model):
    context, label, target, answer = episode(2)
    variables = jax.jit(model.init)(jax.random.key(0), context, label, target)
    return jax.jit(jax.grad(lambda v: cross_entropy(model.apply(v, context, label, target, True), answer)))(variables)


def test_first_order_maml_is_maml_where_nothing_is_learnt_inside():
    jax.tree.map(close, outer_gradient(maml(inner_rate=0.0)), outer_gradient(maml(inner_rate=0.0, first_order=True)))
    different = jax.tree.map(
        lambda a, b: np.abs(a - b).max(), outer_gradient(maml()), outer_gradient(maml(first_order=True))
    )
    assert max(jax.tree.leaves(different)) > 1e-3


def test_maml_is_gradient_descent_on_the_context():
    """One step by hand: the scores of parameters less the rate times the gradient of the context's cross-entropy."""
    model = maml(test_steps=1)
    context, label, target, _ = episode()
    variables = model.init(jax.random.key(0), context, label, target)
    unadapted = maml(test_steps=0)

    def scores(params, images):
        return unadapted.apply({"params": {"learner": params}}, context, label, images)

    params = variables["params"]["learner"]
    gradient = jax.grad(lambda p: cross_entropy(scores(p, context), label))(params)
    by_hand = jax.tree.map(lambda p, g: p - 0.05 * g, params, gradient)
    close(model.apply(variables, context, label, target), scores(by_hand, target))


def test_maml_takes_more_steps_in_a_test():
    model, (context, label, target, _) = maml(inner_steps=1, test_steps=2), episode()
    variables = jax.jit(model.init)(jax.random.key(0), context, label, target)
    longer = dataclasses.replace(model, inner_steps=2)
    close(model.apply(variables, context, label, target, False), longer.apply(variables, context, label, target, True))


@each_model
@pytest.mark.parametrize("train", [False, True])
def test_seeds_that_share_episodes_are_scored_at_once(name, train):
    """As in a run, whose arrays lie on a mesh: JAX has other rules for them."""
    on_mesh = NamedSharding(Mesh(jax.devices()[:1], "devices"), PartitionSpec())
    model, (context, label, target, _) = CLASSIFIERS[name].cls(encoder=CONV, **SMALL[name]), episode(2)
    seeds = jax.vmap(lambda key: model.init(key, context, label, target))(jax.random.split(jax.random.key(0), 3))
    score = functools.partial(model.apply, train=train)
    given = jax.device_put((seeds, context, label, target), on_mesh)
    together = jax.jit(jax.vmap(score, (0, None, None, None)))(*given)
    for index, scores in enumerate(together):
        close(scores, score(jax.tree.map(operator.itemgetter(index), seeds), context, label, target))


def test_transductive_scores_depend_on_the_other_targets_and_running_ones_do_not():
    context, label, target, _ = episode()
    for statistics, alone in (("transductive", False), ("running", True)):
        model = PrototypeClassifier(ConvEncoder((4,), statistics))
        variables = jax.jit(model.init)(jax.random.key(0), context, label, target)
        together = jax.jit(model.apply)(variables, context, label, target)[:1]
        single = jax.jit(model.apply)(variables, context, label, target[:1])
        assert (np.abs(together - single).max() < 1e-4) == alone


def test_what_does_not_fit_is_refused():
    context, label, target, _ = episode()
    model = PrototypeClassifier(CONV)
    with pytest.raises(ValueError, match="do not fit"):
        model.init(jax.random.key(0), context[1:], label, target)
    with pytest.raises(ValueError, match="more than the number of images"):
        model.init(jax.random.key(0), context, label, target[:, 1:])
    with pytest.raises(ValueError, match="did you mean 'ls_svm'"):
        IntentionClassifier(CONV, op="lssvm").init(jax.random.key(0), context, label, target)
    with pytest.raises(ValueError, match="'transductive', not 'running'"):
        MAMLClassifier(ConvEncoder((4,), "running")).init(jax.random.key(0), context, label, target)
