"""The released neural processes in PyTorch, so that their training can be timed beside ours.

They are written from the papers and from the names and shapes of the released parameters, which they keep
(BorealisAI/constant-memory-anp and its ancestors). Losses and gradients are the released ones (tests/golden). Each
operation stands by itself as in those formulas: none is fused, and what is constant is computed again in each step.
PyTorch is no dependency of this project: pip install '.[released]'.
"""

import copy
import functools
import math
from collections.abc import Callable

import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal
from torch.nn import functional

Points = tuple[torch.Tensor, torch.Tensor]  # x [B, N, dx], y [B, N, dy]
_SAMPLES = 4  # of the latent variable, or bootstraps, in training


def sample(batch: int = 16) -> tuple[Points, Points]:
    """Context and target of a training step of gp.py: RBF functions, numbers of points that the batch shares."""
    context = int(torch.randint(3, 47, ()))
    points = context + int(torch.randint(3, 50 - context, ()))
    x = 4 * torch.rand(batch, points, 1) - 2
    length, scale = 0.1 + 0.5 * torch.rand(batch, 1, 1, 1), 0.1 + 0.9 * torch.rand(batch, 1, 1)
    distance = (x[:, :, None] - x[:, None]) / length
    covariance = scale.square() * torch.exp(-0.5 * distance.square().sum(-1)) + 0.02**2 * torch.eye(points)
    y = MultivariateNormal(torch.zeros(batch, points), covariance).rsample()[..., None]
    return (x[:, :context], y[:, :context]), (x[:, context:], y[:, context:])


def mlp(dim_in: int, hidden: int, dim_out: int, depth: int) -> nn.Sequential:
    """`depth` linear layers with ReLU between them."""
    layers = [nn.Linear(dim_in, hidden), nn.ReLU()]
    for _ in range(depth - 2):
        layers += [nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, dim_out))


def _joined(one: Points, other: Points) -> Points:
    return torch.cat([one[0], other[0]], -2), torch.cat([one[1], other[1]], -2)


def _log_prob(prediction: Normal, y: torch.Tensor) -> torch.Tensor:
    """Of each point: [..., N]."""
    return prediction.log_prob(y).sum(-1)


def _log_mean_exp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, 0) - math.log(len(x))


def _copies(x: torch.Tensor, count: int, dim: int = 0) -> torch.Tensor:
    return torch.stack(count * [x], dim)


# CNP to BANP.


class MultiHeadAttention(nn.Module):
    """Eight heads, scaled by the root of the whole width; a residual of the projected query; post-norm."""

    def __init__(self, width: int, heads: int = 8):
        super().__init__()
        self.heads = heads
        self.fc_q, self.fc_k, self.fc_v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.fc_out, self.ln1, self.ln2 = nn.Linear(width, width), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, query, key, value):
        query, key, value = self.fc_q(query), self.fc_k(key), self.fc_v(value)
        q, k, v = (torch.cat(x.chunk(self.heads, -1), -3) for x in (query, key, value))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(query.shape[-1]), -1)
        out = self.ln1(query + torch.cat((weights @ v).chunk(self.heads, -3), -1))
        return self.ln2(out + functional.relu(self.fc_out(out)))


class SelfAttention(MultiHeadAttention):
    def forward(self, x):
        return super().forward(x, x, x)


class PoolingEncoder(nn.Module):
    """The mean over points, mapped; of a latent variable, its distribution."""

    def __init__(self, dim, hidden, out, pre_depth, post_depth, self_attention, latent=False):
        super().__init__()
        self.latent = latent
        if self_attention:
            self.net_pre = nn.Sequential(mlp(dim, hidden, hidden, pre_depth - 2), nn.ReLU(), SelfAttention(hidden))
        else:
            self.net_pre = mlp(dim, hidden, hidden, pre_depth)
        self.net_post = mlp(hidden, hidden, 2 * out if latent else out, post_depth)

    def forward(self, points):
        out = self.net_post(self.net_pre(torch.cat(points, -1)).mean(-2))
        if not self.latent:
            return out
        mean, raw = out.chunk(2, -1)
        return Normal(mean, 0.1 + 0.9 * torch.sigmoid(raw))


class CrossAttentionEncoder(nn.Module):
    def __init__(self, dim_x, dim_y, hidden, v_depth, qk_depth):
        super().__init__()
        self.net_v, self.self_attn = mlp(dim_x + dim_y, hidden, hidden, v_depth - 2), SelfAttention(hidden)
        self.net_qk, self.attn = mlp(dim_x, hidden, hidden, qk_depth), MultiHeadAttention(hidden)

    def forward(self, context, x):
        value = self.self_attn(self.net_v(torch.cat(context, -1)))
        return self.attn(self.net_qk(x), self.net_qk(context[0]), value)


class Decoder(nn.Module):
    def __init__(self, dim_x, dim_y, hidden, depth, encoded, bootstrapped=None):
        super().__init__()
        self.fc = nn.Linear(encoded + dim_x, hidden)
        self.mlp = nn.Sequential(nn.ReLU(), *mlp(hidden, hidden, 2 * dim_y, depth - 1))
        if bootstrapped:
            self.fc_ctx = nn.Linear(bootstrapped, hidden, bias=False)

    def forward(self, encoded, x, bootstrapped=None):
        first = self.fc(torch.cat([encoded, x], -1))
        if bootstrapped is not None:
            first = first + self.fc_ctx(bootstrapped)
        mean, raw = self.mlp(first).chunk(2, -1)
        return Normal(mean, 0.1 + 0.9 * functional.softplus(raw))


class _Encoded(nn.Module):
    """Encoders and a decoder of equal widths and depths, which a model names and puts together."""

    ATTENTION = False

    def __init__(
        self,
        dim_x=1,
        dim_y=1,
        dim_hid=128,
        dim_lat=128,
        enc_v_depth=4,
        enc_qk_depth=2,
        enc_pre_depth=4,
        enc_post_depth=2,
        dec_depth=3,
    ):
        super().__init__()
        pooling = functools.partial(
            PoolingEncoder, dim_x + dim_y, dim_hid, pre_depth=enc_pre_depth, post_depth=enc_post_depth
        )
        if self.ATTENTION:
            first = CrossAttentionEncoder(dim_x, dim_y, dim_hid, enc_v_depth, enc_qk_depth)
        else:
            first = pooling(dim_hid, self_attention=False)
        second = functools.partial(pooling, self_attention=self.ATTENTION)
        self._add(first, second, functools.partial(Decoder, dim_x, dim_y, dim_hid, dec_depth), dim_hid, dim_lat)


class CNP(_Encoded):
    BOOTSTRAP = False

    def _add(self, first, second, decoder, dim_hid, dim_lat):
        self.enc1, self.enc2 = first, second(dim_hid)
        self.dec = decoder(2 * dim_hid, 2 * dim_hid if self.BOOTSTRAP else None)

    def encode(self, context, x):
        first = self.enc1(context, x) if self.ATTENTION else _copies(self.enc1(context), x.shape[-2], -2)
        return torch.cat([first, _copies(self.enc2(context), x.shape[-2], -2)], -1)

    def loss(self, context, target):
        x, y = _joined(context, target)
        return -_log_prob(self.dec(self.encode(context, x), x), y).mean()


class CANP(CNP):
    ATTENTION = True


class BNP(CNP):
    BOOTSTRAP = True

    def loss(self, context, target):
        x, y = _joined(context, target)
        with torch.no_grad():
            copies, resampled = self._bootstrapped(context)
        base = self.encode(context, x)
        together = self.dec(base, x)
        xs = _copies(x, _SAMPLES)
        each = self.dec(_copies(base, _SAMPLES), xs, self.encode((copies, resampled), xs))
        every = _log_mean_exp(_log_prob(each, _copies(y, _SAMPLES)))
        return -_log_prob(together, y).mean() - every.mean()

    def _bootstrapped(self, context):
        """Copies of the context's x, and at them values of its residuals, resampled under resampled contexts."""
        x, y = (_copies(part, _SAMPLES) for part in context)
        chosen = torch.randint(x.shape[-2], x.shape[:-1])
        predicted = self.dec(self.encode((_rows(x, chosen), _rows(y, chosen)), x), x)
        residual = _rows((y - predicted.mean) / predicted.stddev, torch.randint(x.shape[-2], x.shape[:-1]))
        residual = residual - residual.mean(-2, keepdim=True)
        return x, predicted.mean + predicted.stddev * residual


def _rows(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, -2, chosen[..., None].expand(*chosen.shape, x.shape[-1]))


class BANP(BNP):
    ATTENTION = True


class NP(_Encoded):
    def _add(self, first, second, decoder, dim_hid, dim_lat):
        self.denc, self.lenc = first, second(dim_lat, latent=True)
        self.dec = decoder(dim_hid + dim_lat)

    def loss(self, context, target):
        x, y = _joined(context, target)
        count, prior, posterior = x.shape[-2], self.lenc(context), self.lenc((x, y))
        z = posterior.rsample([_SAMPLES])
        if self.ATTENTION:
            encoded = _copies(self.denc(context, x), _SAMPLES)
        else:
            encoded = _copies(_copies(self.denc(context), _SAMPLES), count, -2)
        prediction = self.dec(torch.cat([encoded, _copies(z, count, -2)], -1), _copies(x, _SAMPLES))
        weights = prior.log_prob(z).sum(-1) - posterior.log_prob(z).sum(-1)
        weights = weights + _log_prob(prediction, _copies(y, _SAMPLES)).sum(-1)
        return -_log_mean_exp(weights).mean() / count


class ANP(NP):
    ATTENTION = True


# TNP.


def _transformer(width, heads, hidden, layers) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def _head(width, hidden, out) -> nn.Sequential:
    return mlp(width, hidden, out, 2)


def _independent(out: torch.Tensor) -> Normal:
    mean, raw = out.chunk(2, -1)
    return Normal(mean, torch.exp(raw))


class JointHead:
    """What the joint models add to another: its targets' mean, and a Cholesky factor from products of projections."""

    def __init__(
        self, dim_y=1, d_model=64, dim_feedforward=128, nhead=4, num_std_layers=2, prj_dim=20, prj_depth=4, **others
    ):
        super().__init__(dim_y=dim_y, d_model=d_model, dim_feedforward=dim_feedforward, nhead=nhead, **others)
        self.mean_net = _head(d_model, dim_feedforward, dim_y)
        self.std_encoder = _transformer(d_model, nhead, dim_feedforward, num_std_layers)
        self.projector = mlp(d_model, dim_feedforward, prj_dim * dim_y, prj_depth)

    def loss(self, context, target):
        encoded, y = self.encode(context, target), target[1].flatten(1)
        projected = self.projector(self.std_encoder(encoded)).reshape(*y.shape, -1)
        scale = (projected @ projected.transpose(-2, -1)).tril()
        return -MultivariateNormal(self.mean_net(encoded).flatten(1), scale_tril=scale).log_prob(y).mean()


class TNPD(nn.Module):
    def __init__(self, dim_x=1, dim_y=1, d_model=64, emb_depth=4, dim_feedforward=128, nhead=4, num_layers=6):
        super().__init__()
        self.embedder = mlp(dim_x + dim_y, d_model, d_model, emb_depth)
        self.encoder = _transformer(d_model, nhead, dim_feedforward, num_layers)
        self.predictor = _head(d_model, dim_feedforward, 2 * dim_y)

    def encode(self, context, target):
        """What becomes of targets: each sees the context alone."""
        shown, asked = context[0].shape[1], target[0].shape[1]
        mask = torch.full((shown + asked, shown + asked), -torch.inf, dtype=target[0].dtype)
        mask[:, :shown] = 0
        unknown = target[0], torch.zeros_like(target[1])
        return self.encoder(self.embedder(torch.cat(_joined(context, unknown), -1)), mask=mask)[:, -asked:]

    def loss(self, context, target):
        return -_log_prob(_independent(self.predictor(self.encode(context, target))), target[1]).mean()


class TNPA(TNPD):
    def encode(self, context, target):
        """What becomes of targets: each sees the context and the targets before it, with their values."""
        shown, asked = context[0].shape[1], target[0].shape[1]
        mask = torch.full((shown + 2 * asked, shown + 2 * asked), -torch.inf, dtype=target[0].dtype)
        mask[:, :shown] = 0
        mask[shown : shown + asked, shown : shown + asked].triu_(diagonal=1)
        mask[shown + asked :, shown : shown + asked].triu_()
        tokens = _joined(_joined(context, target), (target[0], torch.zeros_like(target[1])))
        return self.encoder(self.embedder(torch.cat(tokens, -1)), mask=mask)[:, -asked:]


class TNPND(JointHead, TNPD):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        del self.predictor


# EQTNP, LBANP, CMANP.


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.to_q, self.to_kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x, context=None):
        key, value = self.to_kv(x if context is None else context).chunk(2, -1)
        q, k, v = (self._split(part) for part in (self.to_q(x), key, value))
        weights = (torch.einsum("bid,bjd->bij", q, k) * self.scale).softmax(-1)
        out = torch.einsum("bij,bjd->bid", weights, v)
        return self.to_out(out.reshape(len(x), self.heads, *out.shape[1:]).transpose(1, 2).reshape(x.shape))

    def _split(self, x):
        """[B, N, width] -> [B * heads, N, width / heads]."""
        parts = x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)
        return parts.reshape(-1, *parts.shape[2:])


class GEGLU(nn.Module):
    def forward(self, x):
        value, gate = x.chunk(2, -1)
        return value * functional.gelu(gate)


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 2 * hidden), GEGLU(), nn.Linear(hidden, width))

    def forward(self, x):
        return self.net(x)


class PreNorm(nn.Module):
    """f(LN(x)) + LN(x)."""

    def __init__(self, width, function, has_context=False):
        super().__init__()
        self.fn, self.norm = function, nn.LayerNorm(width)
        if has_context:
            self.norm_context = nn.LayerNorm(width)

    def forward(self, x, context=None):
        x = self.norm(x)
        return (self.fn(x) if context is None else self.fn(x, self.norm_context(context))) + x


class Layer(nn.Module):
    """Blocks of attention, each with a feed-forward part: names of both -> whether the block has a context."""

    def __init__(self, width, heads, hidden, **blocks: tuple[str, bool]):
        super().__init__()
        for attention, (feed_forward, has_context) in blocks.items():
            setattr(self, attention, PreNorm(width, Attention(width, heads), has_context))
            setattr(self, feed_forward, PreNorm(width, FeedForward(width, hidden)))


class DatasetLayer(Layer):
    def __init__(self, *sizes):
        super().__init__(*sizes, dataset_self_attn=("ff", False))

    def forward(self, x):
        return self.ff(self.dataset_self_attn(x))


class CrossLayer(Layer):
    def __init__(self, *sizes):
        super().__init__(*sizes, cross_attn=("cross_ff", True))

    def forward(self, query, context):
        return self.cross_ff(self.cross_attn(query, context))


class LatentLayer(Layer):
    def __init__(self, *sizes, **others):
        super().__init__(*sizes, latent_self_attn=("latent_ff", False), cross_attn=("cross_ff", True), **others)

    def forward(self, latents, context):
        latents = self.cross_ff(self.cross_attn(latents, context))
        return self.latent_ff(self.latent_self_attn(latents))


class ConstantMemoryLayer(LatentLayer):
    """Latents of its own (a parameter that CMANP adds) read the context, and those that all layers share read them."""

    def __init__(self, *sizes):
        own = dict(layer_latent_self_attn=("layer_latent_ff", False), layer_cross_attn=("layer_cross_ff", True))
        super().__init__(*sizes, **own)

    def forward(self, latents, context):
        own = self.layer_cross_ff(self.layer_cross_attn(_for_each_task(self.latents, context), context))
        return super().forward(latents, self.layer_latent_ff(self.layer_latent_self_attn(own)))


class Layers(nn.Module):
    """Copies of one layer."""

    def __init__(self, layer, count):
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(count))


def _for_each_task(latents, like):
    return latents[None].repeat(len(like), 1, 1)


class EQTNP(nn.Module):
    """Each layer of queries reads a level of the context."""

    LAYER, FEWER = DatasetLayer, 1  # the first level is the embedded context

    def __init__(self, dim_x=1, dim_y=1, d_model=64, emb_depth=4, dim_feedforward=128, nhead=4, num_layers=6):
        super().__init__()
        sizes = d_model, nhead, dim_feedforward
        self.embedder = mlp(dim_x + dim_y, d_model, d_model, emb_depth)
        self.query_embedder = mlp(dim_x, d_model, d_model, emb_depth)
        self.encoder = Layers(self.LAYER(*sizes), num_layers - self.FEWER)
        self.decoder = Layers(CrossLayer(*sizes), num_layers)
        self.norm, self.predictor = nn.LayerNorm(d_model), _head(d_model, dim_feedforward, 2 * dim_y)

    def levels(self, embedded):
        levels = [embedded]
        for layer in self.encoder.layers:
            levels.append(layer(levels[-1]))
        return levels

    def encode(self, context, target):
        queries = self.query_embedder(target[0])
        levels = self.levels(self.embedder(torch.cat(context, -1)))
        for layer, level in zip(self.decoder.layers, levels, strict=True):
            queries = layer(queries, level)
        return self.norm(queries)

    def loss(self, context, target):
        return -_log_prob(_independent(self.predictor(self.encode(context, target))), target[1]).mean()


class LBANP(EQTNP):
    LAYER, FEWER = LatentLayer, 0

    def __init__(self, num_latents=128, d_model=64, **sizes):
        super().__init__(d_model=d_model, **sizes)
        self.latents = nn.Parameter(torch.randn(num_latents, d_model))

    def levels(self, embedded):
        latents, levels = _for_each_task(self.latents, embedded), []
        for layer in self.encoder.layers:
            latents = layer(latents, embedded)
            levels.append(latents)
        return levels


class CMANP(LBANP):
    LAYER = ConstantMemoryLayer

    def __init__(self, num_latents_per_layer=128, d_model=64, **sizes):
        super().__init__(d_model=d_model, **sizes)
        for layer in self.encoder.layers:
            layer.latents = nn.Parameter(torch.randn(num_latents_per_layer, d_model))


class LBANPND(JointHead, LBANP):
    """Its predictor is without use, as released."""


class CMANPAND(JointHead, CMANP):
    """Its predictor is without use, as released."""


# Name of a model of configs/neural_processes/gp.py -> the released class.
MODELS: dict[str, type[nn.Module]] = {
    "cnp": CNP,
    "canp": CANP,
    "np": NP,
    "anp": ANP,
    "bnp": BNP,
    "banp": BANP,
    "tnp_d": TNPD,
    "tnp_a": TNPA,
    "tnp_nd": TNPND,
    "eqtnp": EQTNP,
    "lbanp": LBANP,
    "lbanp_nd": LBANPND,
    "cmanp": CMANP,
    "cmanp_and": CMANPAND,
}


def trainer(name: str, threads: int) -> Callable[[], float]:
    """A training of gp.py on some threads: a function that makes one step of it and returns the loss."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000)

    def step():
        optimizer.zero_grad()
        loss = model.loss(*sample())
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()

    return step
