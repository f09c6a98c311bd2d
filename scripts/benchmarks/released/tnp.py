"""TNP-D, TNP-A and TNP-ND: a transformer over context and targets under a mask."""

import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal

from scripts.benchmarks.released.points import joined, log_prob, mlp


def _transformer(width, heads, hidden, layers) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def head(width, hidden, out) -> nn.Sequential:
    return mlp(width, hidden, out, 2)


def independent(out: torch.Tensor) -> Normal:
    mean, raw = out.chunk(2, -1)
    return Normal(mean, torch.exp(raw))


class JointHead:
    """What the joint models add to another: its targets' mean, and a Cholesky factor from products of projections."""

    def __init__(
        self, dim_y=1, d_model=64, dim_feedforward=128, nhead=4, num_std_layers=2, prj_dim=20, prj_depth=4, **others
    ):
        super().__init__(dim_y=dim_y, d_model=d_model, dim_feedforward=dim_feedforward, nhead=nhead, **others)
        self.mean_net = head(d_model, dim_feedforward, dim_y)
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
        self.predictor = head(d_model, dim_feedforward, 2 * dim_y)

    def encode(self, context, target):
        """What becomes of targets: each sees the context alone."""
        shown, asked = context[0].shape[1], target[0].shape[1]
        mask = torch.full((shown + asked, shown + asked), -torch.inf, dtype=target[0].dtype)
        mask[:, :shown] = 0
        unknown = target[0], torch.zeros_like(target[1])
        return self.encoder(self.embedder(torch.cat(joined(context, unknown), -1)), mask=mask)[:, -asked:]

    def loss(self, context, target):
        return -log_prob(independent(self.predictor(self.encode(context, target))), target[1]).mean()


class TNPA(TNPD):
    def encode(self, context, target):
        """What becomes of targets: each sees the context and the targets before it, with their values."""
        shown, asked = context[0].shape[1], target[0].shape[1]
        mask = torch.full((shown + 2 * asked, shown + 2 * asked), -torch.inf, dtype=target[0].dtype)
        mask[:, :shown] = 0
        mask[shown : shown + asked, shown : shown + asked].triu_(diagonal=1)
        mask[shown + asked :, shown : shown + asked].triu_()
        tokens = joined(joined(context, target), (target[0], torch.zeros_like(target[1])))
        return self.encoder(self.embedder(torch.cat(tokens, -1)), mask=mask)[:, -asked:]


class TNPND(JointHead, TNPD):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        del self.predictor
