"""EQTNP, LBANP and CMANP: targets read the context level by level."""

import copy

import torch
from torch import nn
from torch.nn import functional

from scripts.benchmarks.released.points import log_prob, mlp
from scripts.benchmarks.released.tnp import JointHead, head, independent


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
        self.norm, self.predictor = nn.LayerNorm(d_model), head(d_model, dim_feedforward, 2 * dim_y)

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
        return -log_prob(independent(self.predictor(self.encode(context, target))), target[1]).mean()


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
