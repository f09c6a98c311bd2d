"""Transformer neural processes (Nguyen and Grover 2022, arXiv 2207.04179): TNP-D, TNP-A and TNP-ND.

Context and targets are one sequence of tokens: a context point is (x, y), a target (x, 0), and one MLP embeds both. In
every layer all tokens attend to the context only. A target does not attend to itself: its own x stays in the residual.
Options are those of the released code (TNP-pytorch); class defaults are those of its one-dimensional regression.
"""

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.distributions import Distribution

from kvq_jax.domains import Count, Depth, Fraction, NotNegative
from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.base import NeuralProcess, need_key
from kvq_jax.models.neural_processes.joint import HEAD_NAMES, JointHead
from kvq_jax.models.points import Points, as_floats, join, whole_mask
from kvq_jax.models.torch_names import encoder_names, mlp_names
from kvq_jax.names import choose
from kvq_jax.nn import MLP, Op
from kvq_jax.nn.transformer import TransformerEncoder


class TransformerProcess(NeuralProcess):
    """What the family shares: the embedder and the encoder.

    `op` is the operator of the encoder's attention. In the loss each output of the context is replaced by a draw from
    N(0, 1) with probability `drop_y` (published for the wheel bandit: 0.5). For copy_layers see
    kvq_jax.nn.transformer.TransformerEncoder.

    Raises ValueError if a name is unknown, num_heads does not divide features, or something is to be drawn without a
    key.
    """

    features: Count = 64
    embed_depth: Depth = 4
    hidden: Count = 128  # of each layer's feed-forward and of the predictor
    num_heads: Count = 4
    num_layers: Depth = 6
    op: Op = "softmax"
    copy_layers: bool = True
    drop_y: Fraction = 0.0

    def setup(self):
        self.embedder = MLP((self.features,) * self.embed_depth, kernel_init="fan_in_uniform")
        self.encoder = TransformerEncoder(self.num_layers, self.num_heads, self.hidden, self.op, self.copy_layers)

    def encode(self, context: Points, target_x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Encodings of the context [..., N, features] and of the targets [..., M, features]."""
        tokens = self.embed(context, without_outputs(target_x, self.dim_y))
        size = context.x.shape[-2]
        encoded = self.encoder(tokens, mask=context.mask, num_keys=size)
        return encoded[..., :size, :], encoded[..., size:, :]

    def embed(self, *parts: Points) -> jax.Array:
        """Tokens [..., n, features] of all points, in order."""
        x, y = (jnp.concatenate(arrays, -2) for arrays in zip(*((part.x, part.y) for part in parts)))
        return self.embedder(x, y)

    def dropped(self, context: Points, key: jax.Array | None) -> Points:
        """The context as the loss shows it to the encoder: see `drop_y`."""
        if not self.drop_y:
            return context
        (which, noise), y = jax.random.split(need_key(key, "drop_y")), as_floats(context.y)
        drop = jax.random.bernoulli(which, self.drop_y, y.shape)
        return context._replace(y=jnp.where(drop, jax.random.normal(noise, y.shape, y.dtype), y))


def without_outputs(x: jax.Array, dim_y: int) -> Points:
    """Points at x [..., M, dx] with zeros for outputs."""
    return Points(x, jnp.zeros((*x.shape[:-1], dim_y), x.dtype))


# Name -> (points, which of them are context) -> the points of the loss. 'all' is published for the wheel bandit.
LOSS_POINTS = {
    "targets": lambda points, seen: points._replace(mask=whole_mask(points) & ~seen),
    "all": lambda points, seen: points,
}


def first_rows(context: Points, points: Points) -> jax.Array:
    """Which of the points [..., n] are context, [..., n]: of the first rows those that the context's mask has."""
    seen = whole_mask(context)
    return jnp.pad(seen, [(0, 0)] * (seen.ndim - 1) + [(0, points.x.shape[-2] - seen.shape[-1])])


class PointwiseProcess(TransformerProcess):
    """TNP-D and TNP-A: a predictor reads a normal distribution for each point from its encoding.

    `std_map` and `std_floor` as in predictive.moments: 'exp' and 0 are published; for bounded deviations (EMNIST)
    'softplus' and 0.05.
    """

    std_map: str = "exp"  # a name of predictive.STD_MAPS
    std_floor: NotNegative = 0.0
    loss_points: str = "targets"  # a name of LOSS_POINTS

    def setup(self):
        super().setup()
        self.predictor = MLP((self.hidden, 2 * self.dim_y), kernel_init="fan_in_uniform")

    def moments(self, encoded: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Encodings [..., features] -> mean and standard deviation [..., dim_y]."""
        return predictive.moments(self.predictor(encoded), self.std_map, self.std_floor)

    def _loss_of(self, encoded: jax.Array, points: Points, context: Points) -> jax.Array:
        """The mean negative log-likelihood [...] of the points that `loss_points` names, the first of them the context.

        encoded [..., n, features] predicts the n points.
        """
        judged = choose(LOSS_POINTS, self.loss_points, "loss_points")(points, first_rows(context, points))
        return -self._mean_log_prob(judged._replace(x=encoded))

    def _mean_log_prob(self, points: Points) -> jax.Array:
        """Of points whose x are encodings."""
        prediction = predictive.factorised(*self.moments(points.x))
        count = predictive.count(points.mask, points.y.shape[-2])
        return predictive.log_prob(prediction, points.y, points.mask) / count


class TNPD(PointwiseProcess):
    """TNP-D: each target on its own given the context. The predictive distribution is factorised."""

    slot_costs = (0.1, 1.0)  # context points are keys beside

    def __call__(self, context, target_x, target_mask=None, *, key=None) -> Distribution:
        """Independent(Normal) with batch [..., M], event [dim_y]."""
        return predictive.factorised(*self.moments(self.encode(context, target_x)[1]))

    def loss(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """The mean negative log-likelihood of the targets, [...]; with loss_points='all' of all points."""
        return self.loss_of_points(context, join(context, target), key=key)

    def loss_of_points(self, context: Points, points: Points, *, key: jax.Array | None = None) -> jax.Array:
        """See NeuralProcess: one token for each point."""
        seen, size = first_rows(context, points), context.x.shape[-2]
        y = self.dropped(context, key).y
        y = jnp.concatenate([y, jnp.zeros_like(points.y[..., size:, :])], -2)
        tokens = self.embedder(points.x, jnp.where(seen[..., None], y, 0))
        return self._loss_of(self.encoder(tokens, mask=context.mask, num_keys=size), points, context)


class TNPA(PointwiseProcess):
    """TNP-A: target by target, each given the context and the targets before it.

    The sequence [C ; (x_t, y_t) ; (x_t, 0)] holds each target twice. All tokens see C. The i-th (x_t, y_t) also sees
    those up to itself. The i-th (x_t, 0), from which the target is predicted, sees those before it. So one pass gives
    the likelihood of all targets in the order given; it depends on that order. In the loss the y_t that are seen have
    noise N(0, teacher_noise^2) (published with bounded deviations: 0.05).

    Without outputs, `samples` functions are drawn target by target, which takes a key; with `permute` each in an order
    of its own. The predictive distribution of a target is the mixture of what the samples predict.
    """

    likelihood = "joint"
    slot_costs = (1.0, 2.0)

    samples: Count = 50
    permute: bool = True
    teacher_noise: NotNegative = 0.0

    def log_likelihood(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """log p(target.y | context) / M of each task, [...], in the order given."""
        _, encoded = self.judged(context, target)
        return self._mean_log_prob(target._replace(x=encoded))

    def judged(self, context: Points, target: Points) -> tuple[jax.Array, jax.Array]:
        """The encodings that predict the outputs: of context [..., N, features] and targets [..., M, features]."""
        size, total = context.x.shape[-2], target.x.shape[-2]
        pairs = jnp.tril(jnp.ones((total, total), bool))
        order = jnp.concatenate([jnp.zeros((size, total), bool), pairs, jnp.tril(pairs, -1)])
        visible = jnp.concatenate([jnp.ones((size + 2 * total, size), bool), order], axis=-1)
        there = jnp.concatenate([whole_mask(context), whole_mask(target)], axis=-1)
        tokens = self.embed(context, target, without_outputs(target.x, self.dim_y))
        encoded = self.encoder(tokens, mask=there[..., None, :] & visible, num_keys=size + total)
        return encoded[..., :size, :], encoded[..., size + total :, :]

    def loss(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """As TNP-D's; the targets that are seen have `teacher_noise`."""
        drop_key, noise_key = (None, None) if key is None else jax.random.split(key)
        encoded = self.judged(self.dropped(context, drop_key), self.taught(target, noise_key))
        return self._loss_of(jnp.concatenate(encoded, -2), join(context, target), context)

    def taught(self, target: Points, key: jax.Array | None) -> Points:
        """The targets as the loss shows them to `judged`."""
        if not self.teacher_noise:
            return target
        y = as_floats(target.y)
        noise = jax.random.normal(need_key(key, "teacher_noise"), y.shape, y.dtype)
        return target._replace(y=y + self.teacher_noise * noise)

    def __call__(self, context, target_x, target_mask=None, *, key=None) -> Distribution:
        """A mixture of `samples` Independent(Normal), batch [..., M], event [dim_y]."""
        if self.is_initializing():  # all parameters take part in one pass
            return predictive.factorised(*self.moments(self.judged(context, without_outputs(target_x, self.dim_y))[1]))
        _, mean, std = self.rollout(context, target_x, target_mask, key=key)
        return predictive.mixture(mean, std)

    def rollout(
        self, context: Points, target_x: jax.Array, target_mask: jax.Array | None = None, *, key: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Sampled outputs, and the means and standard deviations they were drawn from: [samples, ..., M, dim_y].

        Targets stay in the order given. A cache holds the keys and values of what is seen: a target costs two tokens
        for each sample.
        """
        model, variables = self.unbind()
        order_key, noise_key = jax.random.split(need_key(key, "a rollout of TNPA"))
        target_x = as_floats(target_x)  # draws have its dtype
        size, (*batch, total, _) = context.x.shape[-2], target_x.shape
        if total == 0:
            return (jnp.zeros((self.samples, *batch, 0, self.dim_y)),) * 3
        order = jnp.broadcast_to(jnp.arange(total), (self.samples, *batch, total))
        if self.permute:
            order = jax.random.permutation(order_key, order, axis=-1, independent=True)
        target = Points(target_x, target_x[..., :0], target_mask)
        x = jnp.take_along_axis(target.x[None], order[..., None], axis=-2)
        there = jnp.take_along_axis(whole_mask(target)[None], order, axis=-1)

        # Rows of the cache: the context, then what came before the first target (nothing), before the second, ...
        seen = jnp.broadcast_to(whole_mask(context), (self.samples, *batch, size))
        seen = jnp.concatenate([seen, jnp.zeros_like(there[..., :1]), there[..., :-1]], axis=-1)
        _, cache = model.apply(variables, context, total, method="start", mutable="cache")
        cache = jax.tree.map(lambda rows: jnp.broadcast_to(rows, (self.samples, *rows.shape)), cache)

        def step(carry, index):
            cache, last = carry
            new_x = lax.dynamic_slice_in_dim(x, index, 1, axis=-2)
            mask = seen & (jnp.arange(size + total) <= size + index)
            (mean, std), cache = model.apply(
                variables | cache, last, new_x, mask, size + index, method="advance", mutable="cache"
            )
            y = mean + std * jax.random.normal(jax.random.fold_in(noise_key, index), mean.shape, mean.dtype)
            return (cache, Points(new_x, y.astype(x.dtype))), (y, mean, std)

        nothing = without_outputs(jnp.zeros_like(x[..., :1, :]), self.dim_y)
        _, drawn = lax.scan(step, (cache, nothing), jnp.arange(total))
        back = jnp.argsort(order, axis=-1)[..., None]
        return tuple(jnp.take_along_axis(jnp.moveaxis(rows[..., 0, :], 0, -2), back, axis=-2) for rows in drawn)

    def start(self, context: Points, total: int) -> jax.Array:
        """Caches the context, with room for `total` targets; returns its encoding."""
        room = jnp.zeros((*context.x.shape[:-2], total), bool)
        mask = jnp.concatenate([whole_mask(context), room], axis=-1)
        return self.encoder(self.embed(context), mask=mask, position=0)

    def advance(self, last: Points, x: jax.Array, mask: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Caches the point `last` in row `position`; mean and std [..., 1, dim_y] at x [..., 1, dx] given the mask."""
        tokens = self.embed(last, without_outputs(x, self.dim_y))
        return self.moments(self.encoder(tokens, mask=mask, num_keys=1, position=position)[..., 1:, :])


# Name -> (joint log density, number of targets, () -> squared error of the mean on the context) -> loss.
OBJECTIVES = {
    "joint": lambda joint, count, context_error: -joint,
    "joint_and_context_error": lambda joint, count, context_error: context_error() - joint / count,
}


class TNPND(JointHead, TransformerProcess):
    """TNP-ND: one multivariate normal for all targets, by kvq_jax.nn.covariance_head.CovarianceHead.

    The published loss is the joint negative log-likelihood of the targets, not divided by their number: tasks with many
    targets weigh more. `log_likelihood` divides by it. objective='joint_and_context_error' divides it too and adds the
    squared error of the mean at the context points, summed over outputs and averaged over points. It is published for
    the wheel bandit, with covariance='lowrank'.
    """

    objective: str = "joint"  # a name of OBJECTIVES

    def __call__(self, context, target_x, target_mask=None, *, key=None) -> Distribution:
        """A multivariate normal with batch [...] and event [M dim_y], index = target * dim_y + output."""
        return self.head(self.encode(context, target_x)[1], target_mask)

    def loss(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """See `objective`; [...]."""
        of_context, of_target = self.encode(self.dropped(context, key), target.x)
        joint = predictive.log_prob(self.head(of_target, target.mask), target.y, target.mask)

        def context_error():
            error = jnp.sum(jnp.square(self.head.mean(of_context) - context.y), -1)
            error = error if context.mask is None else jnp.where(context.mask, error, 0)
            return jnp.sum(error, -1) / predictive.count(context.mask, context.y.shape[-2])

        count = predictive.count(target.mask, target.y.shape[-2])
        return choose(OBJECTIVES, self.objective, "objective")(joint, count, context_error)


TORCH_NAMES = [*encoder_names("encoder", "encoder"), *mlp_names("(embedder|predictor)", r"\1"), *HEAD_NAMES]
