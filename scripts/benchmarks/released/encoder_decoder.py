"""CNP to BANP: encoders whose outputs a decoder reads beside x."""

import functools
import math

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional

from scripts.benchmarks.released.points import joined, log_prob, mlp

_SAMPLES = 4  # of the latent variable, or bootstraps, in training


def _log_mean_exp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, 0) - math.log(len(x))


def _copies(x: torch.Tensor, count: int, dim: int = 0) -> torch.Tensor:
    return torch.stack(count * [x], dim)


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
        x, y = joined(context, target)
        return -log_prob(self.dec(self.encode(context, x), x), y).mean()


class CANP(CNP):
    ATTENTION = True


class BNP(CNP):
    BOOTSTRAP = True

    def loss(self, context, target):
        x, y = joined(context, target)
        with torch.no_grad():
            copies, resampled = self._bootstrapped(context)
        base = self.encode(context, x)
        together = self.dec(base, x)
        xs = _copies(x, _SAMPLES)
        each = self.dec(_copies(base, _SAMPLES), xs, self.encode((copies, resampled), xs))
        every = _log_mean_exp(log_prob(each, _copies(y, _SAMPLES)))
        return -log_prob(together, y).mean() - every.mean()

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
        x, y = joined(context, target)
        count, prior, posterior = x.shape[-2], self.lenc(context), self.lenc((x, y))
        z = posterior.rsample([_SAMPLES])
        if self.ATTENTION:
            encoded = _copies(self.denc(context, x), _SAMPLES)
        else:
            encoded = _copies(_copies(self.denc(context), _SAMPLES), count, -2)
        prediction = self.dec(torch.cat([encoded, _copies(z, count, -2)], -1), _copies(x, _SAMPLES))
        weights = prior.log_prob(z).sum(-1) - posterior.log_prob(z).sum(-1)
        weights = weights + log_prob(prediction, _copies(y, _SAMPLES)).sum(-1)
        return -_log_mean_exp(weights).mean() / count


class ANP(NP):
    ATTENTION = True
