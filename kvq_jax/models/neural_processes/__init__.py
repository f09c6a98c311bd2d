"""The neural-process family, behind one interface: see `NeuralProcess`. kvq_jax.models.MODELS has them by name."""

from kvq_jax.models.neural_processes.base import NeuralProcess
from kvq_jax.models.neural_processes.bootstrap import BANP, BNP
from kvq_jax.models.neural_processes.cmanp import CMANP, CMANPAND, IntentionCMANP
from kvq_jax.models.neural_processes.conditional import CANP, CNP
from kvq_jax.models.neural_processes.conditioning import condition, condition_made, has_cache, has_state, sample
from kvq_jax.models.neural_processes.latent import ANP, NP, IntentionANP
from kvq_jax.models.neural_processes.lbanp import EQTNP, LBANP, LBANPND
from kvq_jax.models.neural_processes.tnp import TNPA, TNPD, TNPND
