"""The four few-shot regressors of the Intention paper (Section 5.1, Appendix 4): one call, four ways to use a context.

    model(context_x [..., N, dx], context_y [..., N, dy], context_mask [..., N] or None, target_x [..., M, dx])
        -> prediction [..., M, dy]

Any leading dimensions, the same for all arguments. context_mask is True for the points that are there; None: all are.
A masked point is exactly an absent point, so the number of context points varies without the shapes; what stands in its
place may be any finite number. Parameters and predictions are float32. The defaults of the fields are the sizes of
Appendix 4.1; all fields are plain values, so that a config can hold them. Raises ValueError if shapes disagree or a
name is unknown.

Only what depends on the mask sees the mask: encoders and projections come before it. Under a `vmap` over context_mask
alone, as in an evaluation of many context sizes on the same points, they therefore run once.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from kvq_jax.nn import MLP, MultiHead, Ridge, choose, find_op, fourier_features, set_mean
from kvq_jax.ops import intention_weights

# The ops whose prediction is query @ weights, and the function that makes these weights.
WEIGHTS = {"intention": intention_weights, "informer": functools.partial(intention_weights, form="informer")}


class IntentionRegressor(nn.Module):
    """E_K = e_K(K), E_Q = e_K(Q), prediction = E_Q e_w(w(E_K, E_V)) with one encoder e_K (Intention paper, Eq. 12).

    The paper encodes the values with e_K too and has no decoder, so that its 1000 outputs could not be the 1 predicted.
    value='identity' reads E_V := V (as its Appendix 5 does; the untrained curves of its Figures 6 and 7 need it).
    value='shared' reads E_V := e_K(V) and adds one linear layer back to dy. Sharing needs inputs of one width: where the
    features of x and y differ in width, the narrower is padded with zeros.

    e_w, which the paper's definition of Intention has (Section 3) and its experiments leave open, is the identity, so that the
    op itself predicts; with weight_features it is w + g MLP(w), where g starts at 0: the same model when untrained. A model
    that is linear in V predicts 0 without a context; e_w lets it learn what to expect before there is much to see.

    The paper does not say whether ReLU follows the last layer of e_K. By default it does not: similarities of non-negative
    features cannot be negative, and trained on sine curves with few points such an Intention errs twice as much (4.0
    against 2.2 at one point). Untrained, with 50 points, activate_final=True has the smaller error.
    The systems are solved in float32: where alpha is below 1e-7 of the largest eigenvalue of E_K E_K' (a million, for 50
    points and a thousand features of size 5), rounding takes the place of the ridge.
    """

    key_features: Sequence[int] = (1000, 1000, 1000, 1000)
    activate_final: bool = False
    value: str = "identity"  # or 'shared'
    weight_features: Sequence[int] = ()  # hidden widths of e_w; none: the identity
    op: str = "intention"  # a name of kvq_jax.ops.OPS; one of WEIGHTS where weight_features are given
    alpha: float = 0.1  # the first ridge, for the ops that have one
    alpha_kind: str = "softplus"  # a name of kvq_jax.nn.ALPHA_KINDS
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"  # zero biases break the untrained model: see kvq_jax.nn.MLP
    fourier_levels: int = 0  # position features of x: see kvq_jax.nn.fourier_features

    @nn.compact
    def __call__(self, context_x, context_y, context_mask, target_x):
        check_shapes(context_x, context_y, context_mask, target_x)
        regress = choose({"identity": _regress_values, "shared": _regress_encoded_values}, self.value, "value encoder")
        encode = MLP(
            self.key_features,
            activate_final=self.activate_final,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            name="key_encoder",
        )
        op = find_op(self.op)
        ridge = Ridge(op, self.alpha_kind, self.alpha, name="ridge")(context_x, context_y, mask=context_mask)
        options = dict(ridge, mask=context_mask)

        def read(query, key, value):
            if not self.weight_features:
                return op(query, key, value, **options)
            weights = choose(WEIGHTS, self.op, "op with weights")(key, value, **options)  # [..., d, k]
            columns = jnp.swapaxes(weights, -1, -2)
            gain = self.param("weight_gain", nn.initializers.zeros, (), jnp.float32)
            changed = MLP((*self.weight_features, columns.shape[-1]), name="weight_encoder")(columns)
            return query @ (weights + gain * jnp.swapaxes(changed, -1, -2))

        context_x, target_x = (fourier_features(x, self.fourier_levels) for x in (context_x, target_x))
        return regress(encode, read, context_x, context_y, target_x)


def _regress_values(encode, read, context_x, context_y, target_x):
    key = encode(context_x)
    return read(encode(target_x), key, context_y.astype(key.dtype))


def _regress_encoded_values(encode, read, context_x, context_y, target_x):
    width = max(context_x.shape[-1], context_y.shape[-1])
    key, value, query = (encode(_pad_features(x, width)) for x in (context_x, context_y, target_x))
    return MLP((context_y.shape[-1],), name="value_decoder")(read(query, key, value))


class AttentionRegressor(nn.Module):
    """E_K = e_K(K), E_Q = e_K(Q), E_V = e_V(V), prediction = e_P(h_MHA(E_K, E_V, E_Q)) (Intention paper, Eq. 13).

    The paper has 5 heads and encoders of width 128, which 5 does not divide, and names no width for a head. We take
    Haiku's convention, in which `key_size` is the width of one head: 5 heads of 128, and 640 from the attention to e_P.
    """

    key_features: Sequence[int] = (128, 128, 128)
    value_features: Sequence[int] = (128, 128, 128)
    decoder_features: Sequence[int] = (128, 128)  # then one more layer, to dy
    activate_final: bool = False  # of the encoders
    op: str = "softmax"  # a name of kvq_jax.ops.OPS
    num_heads: int = 5
    head_features: int = 128
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    alpha: float = 1e-3  # the first ridge of every head, for the ops that have one
    alpha_kind: str = "softplus"
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"
    fourier_levels: int = 0

    @nn.compact
    def __call__(self, context_x, context_y, context_mask, target_x):
        check_shapes(context_x, context_y, context_mask, target_x)
        context_x, target_x = (fourier_features(x, self.fourier_levels) for x in (context_x, target_x))
        inits = dict(kernel_init=self.kernel_init, bias_init=self.bias_init)
        encode = MLP(self.key_features, activate_final=self.activate_final, **inits, name="key_encoder")
        value = MLP(self.value_features, activate_final=self.activate_final, **inits, name="value_encoder")(context_y)
        op = find_op(self.op)
        ridge = Ridge(op, self.alpha_kind, self.alpha, (self.num_heads,), name="ridge")
        options = ridge(context_x, context_y, mask=context_mask)
        attend = MultiHead(self.num_heads, self.head_features, op, scaling=self.scaling, **inits, name="attention")
        attended = attend(encode(target_x), encode(context_x), value, mask=context_mask, **options)
        return MLP((*self.decoder_features, context_y.shape[-1]), **inits, name="decoder")(attended)


class NeuralProcessRegressor(nn.Module):
    """prediction = e_P(mean_i e_H(K_i, V_i), Q), the conditional neural process (Intention paper, Eq. 14).

    The mean is the op 'uniform', with one query for all targets; without context it is zero. The first layer of e_P
    multiplies the mean and the targets separately, so that neither repeats the other's work.
    """

    encoder_features: Sequence[int] = (2000, 2000, 16)
    decoder_features: Sequence[int] = (2000, 2000, 2000)  # then one more layer, to dy
    activate_final: bool = False  # of the encoder
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"
    fourier_levels: int = 0

    @nn.compact
    def __call__(self, context_x, context_y, context_mask, target_x):
        check_shapes(context_x, context_y, context_mask, target_x)
        context_x, target_x = (fourier_features(x, self.fourier_levels) for x in (context_x, target_x))
        inits = dict(kernel_init=self.kernel_init, bias_init=self.bias_init)
        encode = MLP(self.encoder_features, activate_final=self.activate_final, **inits, name="encoder")
        points = encode(context_x, context_y)
        mean = set_mean(points, context_mask)  # [..., 1, 16]
        return MLP((*self.decoder_features, context_y.shape[-1]), **inits, name="decoder")(mean, target_x)


class MAMLRegressor(nn.Module):
    """prediction = e'_P(Q), where e'_P is e_P after gradient descent on MSE(e_P(K), V) (Intention paper, Eq. 15).

    Each task of the leading dimensions adapts its own copy of the parameters; the mean is over its context points, and
    without any the parameters stay as they are. The paper does not say whether the outer gradient passes through the
    inner ones: as in Finn et al. (2017) it does, unless `first_order`. The inner steps of an evaluation may differ from
    those of the training: `model.clone(inner_steps=10)` takes the same parameters.

    The paper's inner rate of 0.1 is too large for its sine curves, x in [-6, 6): with lecun_normal kernels the three steps
    of an untrained model overflow on most tasks, and with smaller ones training overflows sooner or later. A rate of 0.01,
    that of Finn et al., trains well; the smaller kernels of fan_in_uniform keep the untrained model finite at both.
    """

    features: Sequence[int] = (128, 128, 128, 128)  # then one more layer, to dy
    inner_steps: int = 3
    inner_rate: float = 0.1
    first_order: bool = False
    kernel_init: str = "fan_in_uniform"
    bias_init: str = "fan_in_uniform"
    fourier_levels: int = 0

    @nn.compact
    def __call__(self, context_x, context_y, context_mask, target_x):
        check_shapes(context_x, context_y, context_mask, target_x)
        if self.inner_steps < 0:
            raise ValueError(f"inner_steps is at least 0, not {self.inner_steps}")
        context_x, target_x = (fourier_features(x, self.fourier_levels) for x in (context_x, target_x))
        learner = MLP(
            (*self.features, context_y.shape[-1]), kernel_init=self.kernel_init, bias_init=self.bias_init, parent=None
        )
        one_point = jnp.zeros((1, target_x.shape[-1]))
        initial = self.param("learner", lambda rng: learner.init(rng, one_point)["params"])
        if context_mask is None:
            context_mask = jnp.ones(context_x.shape[:-1], bool)

        def adapt_and_predict(context_x, context_y, context_mask, target_x):  # one task
            def loss(params):
                errors = learner.apply({"params": params}, context_x) - context_y
                return masked_mean(jnp.square(errors), context_mask)

            adapted = gradient_descent(
                loss, initial, steps=self.inner_steps, rate=self.inner_rate, first_order=self.first_order
            )
            return learner.apply({"params": adapted}, target_x)

        each_task = jnp.vectorize(adapt_and_predict, signature="(n,p),(n,q),(n),(m,p)->(m,q)")
        return each_task(context_x, context_y, context_mask, target_x)


def gradient_descent(loss: Callable, params, *, steps: int, rate: float, first_order: bool = False):
    """params after `steps` steps of params - rate * gradient of loss(params).

    With first_order the gradients are constants to an outer differentiation, so that d(result)/d(params) is the identity.
    """

    def step(params, _):
        gradients = jax.grad(loss)(params)
        if first_order:
            gradients = jax.lax.stop_gradient(gradients)
        return jax.tree.map(lambda param, gradient: param - rate * gradient, params, gradients), None

    return jax.lax.scan(step, params, length=steps)[0]


def masked_mean(x: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean of x [N, k] over the rows that mask [N] keeps and all k columns; 0 if it keeps none."""
    kept = mask.astype(bool)[:, None]
    return jnp.sum(jnp.where(kept, x, 0)) / (jnp.maximum(jnp.sum(kept), 1) * x.shape[-1])


def check_shapes(context_x, context_y, context_mask, target_x):
    """Raises ValueError if the arguments of a few-shot regressor do not fit each other."""
    if context_mask is not None and jnp.issubdtype(context_mask.dtype, jnp.floating):
        raise ValueError(f"context_mask is boolean (True = take part), not {context_mask.dtype}")
    shapes = f"context_x {context_x.shape}, context_y {context_y.shape}, target_x {target_x.shape}"
    if context_x.shape[:-1] != context_y.shape[:-1]:
        raise ValueError(f"context_x and context_y differ before their last dimension: {shapes}")
    if context_x.shape[:-2] != target_x.shape[:-2] or context_x.shape[-1] != target_x.shape[-1]:
        raise ValueError(f"context_x and target_x differ in more than the number of points: {shapes}")
    if context_mask is not None and context_mask.shape != context_x.shape[:-1]:
        raise ValueError(f"context_mask {context_mask.shape} is not context_x without its last dimension: {shapes}")


def _pad_features(x: jax.Array, width: int) -> jax.Array:
    """x [..., d] -> [..., width], with zeros."""
    return jnp.concatenate([x, jnp.zeros((*x.shape[:-1], width - x.shape[-1]), x.dtype)], axis=-1)


FEW_SHOT_REGRESSORS = {
    "intention": IntentionRegressor,
    "attention": AttentionRegressor,
    "neural_process": NeuralProcessRegressor,
    "maml": MAMLRegressor,
}
