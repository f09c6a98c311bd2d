"""Tasks of the GP setting, and the parts that all released families share."""

import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal

Points = tuple[torch.Tensor, torch.Tensor]  # x [B, N, dx], y [B, N, dy]


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


def joined(one: Points, other: Points) -> Points:
    return torch.cat([one[0], other[0]], -2), torch.cat([one[1], other[1]], -2)


def log_prob(prediction: Normal, y: torch.Tensor) -> torch.Tensor:
    """Of each point: [..., N]."""
    return prediction.log_prob(y).sum(-1)
