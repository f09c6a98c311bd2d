"""The neural-process family, behind one interface: see `NeuralProcess`.

NEURAL_PROCESSES has them by the names of the configs.
"""

from kvq_jax.models.neural_processes.base import NeuralProcess, Points, join
from kvq_jax.models.neural_processes.bootstrap import BANP, BNP
from kvq_jax.models.neural_processes.cmanp import CMANP, CMANPAND, IntentionCMANP
from kvq_jax.models.neural_processes.conditional import CANP, CNP
from kvq_jax.models.neural_processes.conditioning import condition, condition_made, has_state, sample
from kvq_jax.models.neural_processes.latent import ANP, NP, IntentionANP
from kvq_jax.models.neural_processes.lbanp import EQTNP, LBANP, LBANPND
from kvq_jax.models.neural_processes.tnp import TNPA, TNPD, TNPND

NEURAL_PROCESSES: dict[str, type[NeuralProcess]] = {
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
    "intention_anp": IntentionANP,
    "intention_cmanp": IntentionCMANP,
}

__all__ = [
    "ANP",
    "BANP",
    "BNP",
    "CANP",
    "CMANP",
    "CMANPAND",
    "CNP",
    "EQTNP",
    "IntentionANP",
    "IntentionCMANP",
    "LBANP",
    "LBANPND",
    "NEURAL_PROCESSES",
    "NP",
    "NeuralProcess",
    "Points",
    "TNPA",
    "TNPD",
    "TNPND",
    "condition",
    "condition_made",
    "has_state",
    "join",
    "sample",
]
