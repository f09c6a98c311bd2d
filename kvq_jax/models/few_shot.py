"""Few-shot regressors of the Intention paper (Section 5.1, Appendix 4), called as neural processes are.

    prediction = model.apply(variables, context, target_x)                      # [..., M, dy]
    loss = model.apply(variables, context, target, method="loss")               # [...], mean squared error of each task

Contexts and targets are kvq_jax.models.Points with the same leading dimensions. A masked point is exactly an absent
point: its place may hold any number on which no encoder overflows. Parameters and predictions are float32 where the
fields `dtype` and `param_dtype` say nothing else. Class defaults are the sizes of Appendix 4.1. Fields are plain
values, so that a config can hold them. All raise ValueError if shapes disagree or a name is unknown.

Encoders and projections come before the mask is used. They run once under a `vmap` over masks alone, as in an
evaluation of many context sizes on the same points.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict

from kvq_jax.domains import Count, Depth, Natural, NotNegative
from kvq_jax.models.doors import Guarded
from kvq_jax.models.initialised import Initialised
from kvq_jax.models.points import Points, whole_mask
from kvq_jax.names import choose
from kvq_jax.nn import MLP, Mixer, Op, fourier_features, set_mean
from kvq_jax.nn.mlp import parameter
from kvq_jax.ops.linalg import matmul


class Regressor(Guarded):
    """The interface. A model defines `__call__`; the number of outputs is that of the context."""

    slot_costs = (1.0, 1.0)  # as NeuralProcess has them

    def __call__(self, context: Points, target_x: jax.Array, target_mask=None, *, key=None) -> jax.Array:
        """Context [..., N] and target_x [..., M, dx] -> prediction [..., M, dy], each target on its own.

        target_mask and key are those of the shared interface: no regressor looks at them.
        """
        raise NotImplementedError

    def loss(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """The mean squared error of each task, [...], over outputs and the targets that are there."""
        error = self(context, target.x, target.mask, key=key) - target.y
        return masked_mean(jnp.square(error), whole_mask(target))


class IntentionRegressor(Initialised, Regressor):
    """E_K = e_K(K), E_Q = e_K(Q), prediction = E_Q e_w(w(E_K, E_V)) with one encoder e_K (Intention paper, Eq. 12).

    The paper encodes the values with e_K too and has no decoder, but predicts 1 number and not the 1000 of e_K.
    value='identity' takes E_V := V, as its Appendix 5 does; its untrained curves (Figures 6 and 7) need it.
    value='shared' takes E_V := e_K(V) and adds one linear layer back to dy. A shared encoder needs inputs of one width:
    the narrower of x and y is padded with zeros.

    The paper defines e_w (Section 3) and leaves it open in its experiments. Here it is the identity, so that the op
    itself predicts. With weight_features it is w + g MLP(w), and g starts at 0: the same model when untrained. A model
    that is linear in V predicts 0 without a context; with e_w it can learn what to expect before there is much to see.

    The paper does not say whether ReLU follows the last layer of e_K. Here it does not by default: non-negative
    features have no negative similarities, and after training on sine curves with few points the error is twice as
    large (4.0 against 2.2 at one point).

    Systems are solved in float32. An alpha below 1e-7 of the largest eigenvalue of E_K E_K' (a million, for 50 points
    and a thousand features of size 5) is lost in rounding.
    """

    key_features: Sequence[Count] = (1000, 1000, 1000, 1000)
    activate_final: bool = False
    value: str = "identity"  # or 'shared'
    weight_features: Sequence[Count] = ()  # hidden widths of e_w; none: the identity
    op: Op = FrozenDict(name="intention", alpha=0.1, alpha_kind="softplus")  # with weights, if weight_features
    fourier_levels: Natural = 0  # position features of x: see kvq_jax.nn.fourier_features

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        context, target_x = positions(context, target_x, self.fourier_levels)
        readings = {"identity": self._regress_values, "shared": self._regress_encoded_values}
        regress = choose(readings, self.value, "value encoder")
        encode = self.mlp(self.key_features, "key_encoder", activate_final=self.activate_final)
        mixer = Mixer(self.op, name="mixer")

        def read(query, key, value):
            if not self.weight_features:
                return mixer(query, key, value, mask=context.mask)
            weights = mixer.weights(key, value, mask=context.mask)  # [..., d, k]
            columns = jnp.swapaxes(weights, -1, -2)
            gain = parameter(self, "weight_gain", nn.initializers.zeros, ())
            changed = self.mlp((*self.weight_features, columns.shape[-1]), "weight_encoder")(columns)
            return matmul(query, weights + gain * jnp.swapaxes(changed, -1, -2))

        return regress(encode, read, context, target_x)

    @nn.nowrap
    def _regress_values(self, encode, read, context: Points, target_x):
        key = encode(context.x)
        return read(encode(target_x), key, context.y.astype(key.dtype))

    @nn.nowrap
    def _regress_encoded_values(self, encode, read, context: Points, target_x):
        width = max(context.x.shape[-1], context.y.shape[-1])
        key, value, query = (encode(_pad_features(x, width)) for x in (context.x, context.y, target_x))
        return self.mlp((context.y.shape[-1],), "value_decoder")(read(query, key, value))


class AttentionRegressor(Initialised, Regressor):
    """E_K = e_K(K), E_Q = e_K(Q), E_V = e_V(V), prediction = e_P(h_MHA(E_K, E_V, E_Q)) (Intention paper, Eq. 13).

    The paper has 5 heads and encoders of width 128, which 5 does not divide. It gives no width for a head. We follow
    Haiku, whose `key_size` is the width of one head: 5 heads of 128, and 640 features from the attention to e_P.
    """

    key_features: Sequence[Count] = (128, 128, 128)
    value_features: Sequence[Count] = (128, 128, 128)
    decoder_features: Sequence[Count] = (128, 128)  # then one more layer, to dy
    activate_final: bool = False  # of the encoders
    op: Op = "softmax"
    num_heads: Count = 5
    head_features: Count = 128
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    fourier_levels: Natural = 0

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        context, target_x = positions(context, target_x, self.fourier_levels)
        encode = self.mlp(self.key_features, "key_encoder", activate_final=self.activate_final)
        value = self.mlp(self.value_features, "value_encoder", activate_final=self.activate_final)(context.y)
        attended = self.attention(self.head_features)(encode(target_x), encode(context.x), value, mask=context.mask)
        return self.mlp((*self.decoder_features, context.y.shape[-1]), "decoder")(attended)


class NeuralProcessRegressor(Initialised, Regressor):
    """prediction = e_P(mean_i e_H(K_i, V_i), Q), the conditional neural process (Intention paper, Eq. 14).

    The mean is the op 'uniform' with one query for all targets; without context it is zero. The first layer of e_P
    multiplies the mean and the targets separately: the mean is multiplied once, not once for each target.
    """

    encoder_features: Sequence[Count] = (2000, 2000, 16)
    decoder_features: Sequence[Count] = (2000, 2000, 2000)  # then one more layer, to dy
    activate_final: bool = False  # of the encoder
    fourier_levels: Natural = 0

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        context, target_x = positions(context, target_x, self.fourier_levels)
        encode = self.mlp(self.encoder_features, "encoder", activate_final=self.activate_final)
        points = encode(context.x, context.y)
        mean = set_mean(points, context.mask)  # [..., 1, 16]
        return self.mlp((*self.decoder_features, context.y.shape[-1]), "decoder")(mean, target_x)


class MAMLRegressor(Initialised, Regressor):
    """prediction = e'_P(Q), where e'_P is e_P after gradient descent on MSE(e_P(K), V) (Intention paper, Eq. 15).

    Each task adapts its own copy of the parameters to the mean over its context points; without context they stay as
    they are. The paper does not say whether the outer gradient passes through the inner ones. As in Finn et al. (2017)
    it does, unless `first_order`. An evaluation may take another number of inner steps with the same parameters:
    `model.clone(inner_steps=10)`.

    The paper's inner rate of 0.1 is too large for its sine curves, x in [-6, 6). With lecun_normal kernels three steps
    of an untrained model overflow on most tasks; with smaller kernels training overflows sooner or later. The rate of
    Finn et al., 0.01, trains well. The kernels of fan_in_uniform keep the untrained model finite at both rates.
    """

    features: Sequence[Count] = (128, 128, 128, 128)  # then one more layer, to dy
    inner_steps: Depth = 3
    inner_rate: NotNegative = 0.1
    first_order: bool = False
    kernel_init: str = dataclasses.field(default="fan_in_uniform", kw_only=True)
    fourier_levels: Natural = 0

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        context, target_x = positions(context, target_x, self.fourier_levels)
        if (steps := self.inner_steps) < 0:
            raise ValueError(f"inner_steps is at least 0, not {steps}")
        learner = MLP((*self.features, context.y.shape[-1]), **self.inits, **self.dtypes, parent=None)
        one_point = jnp.zeros((1, target_x.shape[-1]))
        initial = self.param("learner", lambda rng: learner.init(rng, one_point)["params"])

        def adapt_and_predict(x, y, mask, target_x):  # one task
            def loss(params):
                return masked_mean(jnp.square(learner.apply({"params": params}, x) - y), mask)

            adapted = gradient_descent(loss, initial, steps=steps, rate=self.inner_rate, first_order=self.first_order)
            return learner.apply({"params": adapted}, target_x)

        each_task = jnp.vectorize(adapt_and_predict, signature="(n,p),(n,q),(n),(m,p)->(m,q)")
        return each_task(context.x, context.y, whole_mask(context), target_x)


def gradient_descent(loss: Callable, params, *, steps: int, rate: float, first_order: bool = False):
    """params after `steps` steps of params - rate * gradient of loss(params).

    With first_order an outer differentiation takes the gradients for constants: d(result)/d(params) is the identity.
    """

    def step(params, _):
        gradients = jax.grad(loss)(params)
        if first_order:
            gradients = jax.lax.stop_gradient(gradients)
        return jax.tree.map(lambda param, gradient: param - rate * gradient, params, gradients), None

    return jax.lax.scan(step, params, length=steps)[0]


def masked_mean(x: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean of x [..., N, k] over the rows that mask [..., N] keeps and all k columns, [...]; 0 if it keeps none."""
    kept = mask.astype(bool)[..., None]
    return jnp.sum(jnp.where(kept, x, 0), (-2, -1)) / (jnp.maximum(jnp.sum(kept, (-2, -1)), 1) * x.shape[-1])


def positions(context: Points, target_x: jax.Array, fourier_levels: int) -> tuple[Points, jax.Array]:
    """The context and target_x, both with `fourier_levels` levels of position features of x."""
    x, target_x = (fourier_features(rows, fourier_levels) for rows in (context.x, target_x))
    return context._replace(x=x), target_x


def _pad_features(x: jax.Array, width: int) -> jax.Array:
    """x [..., d] -> [..., width], with zeros."""
    return jnp.concatenate([x, jnp.zeros((*x.shape[:-1], width - x.shape[-1]), x.dtype)], axis=-1)
