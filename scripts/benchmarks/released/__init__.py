"""The released neural processes in PyTorch, so that their training can be timed beside ours.

They are written from the papers and from the names and shapes of the released parameters, which they keep
(BorealisAI/constant-memory-anp and its ancestors). Losses and gradients are the released ones (tests/golden). Each
operation stands by itself as in those formulas: none is fused, and what is constant is computed again in each step.
PyTorch is no dependency of this project: pip install '.[released]'.
"""

from collections.abc import Callable

import torch
from torch import nn

from scripts.benchmarks.released.encoder_decoder import ANP, BANP, BNP, CANP, CNP, NP
from scripts.benchmarks.released.lbanp import CMANP, CMANPAND, EQTNP, LBANP, LBANPND
from scripts.benchmarks.released.points import sample
from scripts.benchmarks.released.tnp import TNPA, TNPD, TNPND

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
