"""Few-shot classifiers of the Intention paper (Section 5.2, Appendix 5) and well-known baselines, all with one call.

    model(context_image [..., N, H, W, C], context_label [..., N, way], target_image [..., M, H, W, C], train)
        -> scores [..., M, way], larger where a class is likelier

All arguments have the same leading dimensions; labels are one-hot. `encoder` is a module of kvq_jax.nn.ENCODERS. It
encodes context and targets as one set: see kvq_jax.nn.BatchNorm for what that means. `loss` is the name of the loss
that the model is trained with, one of LOSSES. Class defaults are the sizes of Appendix 5. All raise ValueError if
shapes disagree or a name is unknown.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict

from kvq_jax.domains import Count, Depth, NotNegative
from kvq_jax.models.few_shot import gradient_descent
from kvq_jax.nn import MLP, Linear, Mixer, MultiHead, Op
from kvq_jax.nn.block import Block
from kvq_jax.nn.mixer import resolve
from kvq_jax.ops import whitening
from kvq_jax.ops.linalg import matmul, transpose


def cross_entropy(scores: jax.Array, label: jax.Array) -> jax.Array:
    """Mean of -sum_c label_c log softmax(scores)_c; of a class with the label 0 the score may be -infinity."""
    return -jnp.mean(jnp.sum(label * jnp.where(label == 0, 0, jax.nn.log_softmax(scores)), -1))


# Name -> (scores [..., M, way], one-hot labels [..., M, way]) -> scalar.
LOSSES = {
    "cross_entropy": cross_entropy,
    "squared_error": lambda scores, label: jnp.mean(jnp.square(scores - label)),
    "signed_squared_error": lambda scores, label: jnp.mean(jnp.square(scores - (2 * label - 1))),
}

# Op -> its loss, if it is not cross-entropy for ops of labels and squared error for others. ls_svm regresses on -1 and
# 1. The paper trains "Intention using an MSE loss", and does not say on which numbers for its "QDA".
OP_LOSSES = {"ls_svm": "signed_squared_error"}


class IntentionClassifier(Block):
    """E_X = phi(e_H(e_enc(X))), scores = op(E_Q, E_K, labels): a discriminant fitted to the context.

    Intention paper, Eq. 16: scores = E_Q Sigma^-1 E_K'y. e_H is linear, `latent` wide. phi is the identity for the
    linear kernel; for others it is the whitening feature map of the context, which makes every discriminant a kernel
    one. The op 'ls_svm' is the paper's Intention, 'within_class' its "QDA", which is no QDA (see
    kvq_jax.ops.discriminants). With fewer context images than features, as with the paper's 8192, the system solved has
    one row for each image.

    The paper gives neither alpha nor gamma. 50 is the ridge of R2-D2 and of MetaOptNet; a Gaussian kernel, k(x, x) = 1,
    needs one below 1. kvq_jax.ops.discriminants says how the labels of `lda`, `within_class` and `qda` are corrected.
    """

    encoder: nn.Module
    latent: Count = 8192  # 32 with the Gaussian kernel
    op: Op = FrozenDict(name="ls_svm", alpha=50.0, alpha_kind="softplus")
    kernel: str = "linear"  # a name of kvq_jax.ops.KERNELS
    gamma: float | str = "variance"  # the kernel's width: a number or a rule of kvq_jax.ops.kernels.BANDWIDTHS

    @property
    def loss(self) -> str:
        """The name of the loss that suits the op: of scores of labels, or of regressions on them."""
        op = resolve(self.op)
        general = "cross_entropy" if op.operator.labels else "squared_error"
        return OP_LOSSES[op.name] if op.name in OP_LOSSES else general

    @nn.compact
    def __call__(self, context_image, context_label, target_image, train: bool = False):
        key, query = _encode_latent(self, context_image, context_label, target_image, train)
        if self.kernel != "linear":
            key, query = (whitening(x, key, kernel=self.kernel, gamma=self.gamma) for x in (key, query))
        return Mixer(self.op, name="mixer")(query, key, context_label.astype(key.dtype))


class AttentionClassifier(Block):
    """scores = e_P(h_MHA(E_K, E_V, E_Q)) with E_K, E_Q = e_H(e_enc(.)) and E_V = e_V(V) (Intention paper, Eq. 17).

    The paper's E_V = e_H(e_V(V)) would need an e_H for both the 64 or 1600 features of an image and the 512 of e_V.
    Here values have a last layer of their own, of the same width. `head_features` is the width of one head, as for
    regression.
    """

    loss = "cross_entropy"

    encoder: nn.Module
    latent: Count = 512  # of e_H
    value_features: Sequence[Count] = (512, 512, 512, 512)
    decoder_features: Sequence[Count] = (512, 512, 512)  # then one more layer, to the classes
    op: Op = "softmax"
    num_heads: Count = 5
    head_features: Count = 512
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS

    @nn.compact
    def __call__(self, context_image, context_label, target_image, train: bool = False):
        key, query = _encode_latent(self, context_image, context_label, target_image, train)
        value = MLP(self.value_features, name="value_encoder")(context_label)
        attend = MultiHead(self.num_heads, self.head_features, self.op, scaling=self.scaling, name="attention")
        attended = attend(query, key, value)
        return MLP((*self.decoder_features, context_label.shape[-1]), name="decoder")(attended)


class NeuralProcessClassifier(Block):
    """scores = e_P([mean of E_K of class 0; ..; of the last class; E_Q]) with E = e_H(e_enc(.)).

    Intention paper, Eq. 18. The class means stand in the order of the labels: e_P must learn that this order means
    nothing. A class without context has a mean of zero. The paper's e_V, defined and never used, is left out.
    """

    loss = "cross_entropy"

    encoder: nn.Module
    latent: Count = 2048  # of e_H
    decoder_features: Sequence[Count] = (1024,)  # then one more layer, to the classes

    @nn.compact
    def __call__(self, context_image, context_label, target_image, train: bool = False):
        key, query = _encode_latent(self, context_image, context_label, target_image, train)
        means = class_means(key, context_label)
        means = means.reshape(*means.shape[:-2], 1, -1)
        return MLP((*self.decoder_features, context_label.shape[-1]), name="decoder")(means, query)


class PrototypeClassifier(Block):
    """scores = -|e_enc(Q) - mean of e_enc(K) of the class|^2 (prototypical networks: arXiv 1703.05175)."""

    loss = "cross_entropy"

    encoder: nn.Module

    @nn.compact
    def __call__(self, context_image, context_label, target_image, train: bool = False):
        key, query = _encode(self, context_image, context_label, target_image, train)
        means = class_means(key, context_label)
        return -jnp.square(query[..., :, None, :] - means[..., None, :, :]).sum(-1)


class MAMLClassifier(Block):
    """The scores of a linear layer on e_enc(Q), both after gradient descent on the cross-entropy of the context.

    Finn et al. 2017 (arXiv 1703.03400). Each episode adapts its own copy of all parameters, those of batch norm
    included: their released code has no scale there, and does not adapt the shift. It divides the cross-entropy of
    5 x 5 images by 5: its inner rate of 0.01 is 0.05 for the mean. As there, context and targets are normalised
    separately, each by its own statistics. The encoder's dropout is not used.

    Raises ValueError for an encoder whose statistics are not 'transductive'.
    """

    loss = "cross_entropy"

    encoder: nn.Module
    inner_steps: Depth = 5
    test_steps: Depth = 10  # where not train
    inner_rate: NotNegative = 0.05
    first_order: bool = False  # the outer gradient takes the inner gradients for constants

    @nn.compact
    def __call__(self, context_image, context_label, target_image, train: bool = False):
        check_episode(context_image, context_label, target_image)
        if self.encoder.statistics != "transductive":
            told = f"statistics are 'transductive', not {self.encoder.statistics!r}"
            raise ValueError(f"MAML adapts by batch statistics: {told}")
        learner = _Learner(self.encoder.clone(parent=None), context_label.shape[-1], **self.dtypes, parent=None)
        first = context_image[(0,) * (context_image.ndim - 4)]
        initial = self.param("learner", lambda rng: learner.init(rng, first)["params"])
        steps = self.inner_steps if train else self.test_steps
        # Under vmap over parameters alone (seeds that share episodes) the images get its axis too: of arrays on a mesh
        # JAX 0.10 cannot batch the gradient of a grouped convolution over the kernel alone.
        any_parameter = jax.tree.leaves(initial)[0].ravel()[0].astype(context_image.dtype)
        context_image = jnp.where(True, context_image, any_parameter)

        def adapt_and_score(context_image, context_label, target_image):  # one episode
            def loss(params):
                return cross_entropy(learner.apply({"params": params}, context_image), context_label)

            adapted = gradient_descent(loss, initial, steps=steps, rate=self.inner_rate, first_order=self.first_order)
            return learner.apply({"params": adapted}, target_image)

        each_episode = jnp.vectorize(adapt_and_score, signature="(n,h,w,c),(n,k),(m,h,w,c)->(m,k)")
        return each_episode(context_image, context_label, target_image)


class _Learner(Block):
    """What MAML adapts: an encoder and a linear layer."""

    encoder: nn.Module
    way: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        return Linear(self.way, name="scores")(self.encoder(image, True))


def class_means(key: jax.Array, label: jax.Array) -> jax.Array:
    """Keys [..., N, d], one-hot labels [..., N, way] -> the mean key of each class [..., way, d]; zero without keys."""
    count = jnp.maximum(label.sum(-2), 1)[..., None]
    return matmul(transpose(label), key) / count


def check_episode(context_image: jax.Array, context_label: jax.Array, target_image: jax.Array) -> None:
    """Raises ValueError if the arguments of a few-shot classifier do not fit each other."""
    image, label, target = context_image.shape, context_label.shape, target_image.shape
    shapes = f"context_image {image}, context_label {label}, target_image {target}"
    if len(image) < 4 or image[:-3] != label[:-1]:
        raise ValueError(f"context_image [..., N, H, W, C] and context_label [..., N, way] do not fit: {shapes}")
    if image[:-4] != target[:-4] or image[-3:] != target[-3:]:
        raise ValueError(f"context_image and target_image differ in more than the number of images: {shapes}")


def _encode(model, context_image, context_label, target_image, train) -> tuple[jax.Array, jax.Array]:
    """Features [..., N, f] of the context and [..., M, f] of the targets, encoded as one set of images."""
    check_episode(context_image, context_label, target_image)
    features = model.encoder(jnp.concatenate([context_image, target_image], -4), train)
    count = context_image.shape[-4]
    return features[..., :count, :], features[..., count:, :]


def _encode_latent(model, *episode) -> tuple[jax.Array, jax.Array]:
    """The features behind e_H, [..., N, latent] and [..., M, latent]."""
    head = Linear(model.latent, name="latent")
    return tuple(head(features) for features in _encode(model, *episode))
