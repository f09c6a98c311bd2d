"""One file for each published family of architectures, composed from kvq_jax.nn, and the tables that name the models.

MODELS has every model of a regression, from a context to predictions at targets, all with one call:

    model.apply(variables, context, target_x, target_mask, key=key)             # a prediction, or a distribution
    model.apply(variables, context, target, key=key, method="loss")             # [...], of each task

CLASSIFIERS, IMAGE_CLASSIFIERS, WEIGHT_REGRESSORS, TARGET_REGRESSORS, SET_NETWORKS, SET_CLASSIFIERS,
IMAGE_SET_NETWORKS, IMAGE_SET_DETECTORS and EVENT_MODELS are models with another call: see their files.
"""

from typing import NamedTuple

from flax import linen as nn

from kvq_jax.models.event_processes.base import EventProcess, Forecast
from kvq_jax.models.event_processes.cmhp import CMHP, IntentionHawkes
from kvq_jax.models.event_processes.events import EventLogLikelihood, Events
from kvq_jax.models.event_processes.recurrent import GRUProcess
from kvq_jax.models.event_processes.thp import THP, THPMixture
from kvq_jax.models.few_shot import (
    AttentionRegressor,
    IntentionRegressor,
    MAMLRegressor,
    NeuralProcessRegressor,
    Regressor,
)
from kvq_jax.models.few_shot_classifiers import (
    AttentionClassifier,
    IntentionClassifier,
    MAMLClassifier,
    NeuralProcessClassifier,
    PrototypeClassifier,
)
from kvq_jax.models.image_sets import IMAGE_SET_DETECTORS, IMAGE_SET_NETWORKS, ImageSetDetector, ImageSetNetwork
from kvq_jax.models.mlp import MLPRegressor
from kvq_jax.models.neural_processes.base import NeuralProcess
from kvq_jax.models.neural_processes.bootstrap import BANP, BNP
from kvq_jax.models.neural_processes.cmanp import CMANP, CMANPAND, IntentionCMANP
from kvq_jax.models.neural_processes.conditional import CANP, CNP
from kvq_jax.models.neural_processes.latent import ANP, NP, IntentionANP
from kvq_jax.models.neural_processes.lbanp import EQTNP, LBANP, LBANPND
from kvq_jax.models.neural_processes.tnp import TNPA, TNPD, TNPND
from kvq_jax.models.pair import PairRegressor
from kvq_jax.models.points import Points, join, whole_mask
from kvq_jax.models.set_anomaly import SetAnomalyDetector
from kvq_jax.models.set_networks import SET_CLASSIFIERS, SET_NETWORKS, SetClassifier, SetNetwork
from kvq_jax.models.weight_regressors import (
    AtOnce,
    AttentionTarget,
    AttentionWeights,
    IntentionTarget,
    IntentionWeights,
    MLPTarget,
    MLPWeights,
    NeuralProcessTarget,
    NeuralProcessWeights,
)
from kvq_jax.nn.vgg import VGG


class Model(NamedTuple):
    """A row of a table of models."""

    cls: type[nn.Module]
    label: str  # as papers write it
    # 'few_shot': predictions; 'neural_process': predictive distributions; 'event_process': forecasts;
    # 'image_classifier': features and logits
    family: str


# In the order of tables: few-shot regressors, then neural processes that judge each target alone, those that judge all
# jointly, and ours.
MODELS = {
    "intention": Model(IntentionRegressor, "Intention", "few_shot"),
    "attention": Model(AttentionRegressor, "Attention", "few_shot"),
    "neural_process": Model(NeuralProcessRegressor, "Neural Process", "few_shot"),
    "maml": Model(MAMLRegressor, "MAML", "few_shot"),
    "mlp": Model(MLPRegressor, "MLP", "few_shot"),
    "pair": Model(PairRegressor, "Pairs", "few_shot"),
    "cnp": Model(CNP, "CNP", "neural_process"),
    "canp": Model(CANP, "CANP", "neural_process"),
    "np": Model(NP, "NP", "neural_process"),
    "anp": Model(ANP, "ANP", "neural_process"),
    "bnp": Model(BNP, "BNP", "neural_process"),
    "banp": Model(BANP, "BANP", "neural_process"),
    "tnp_d": Model(TNPD, "TNP-D", "neural_process"),
    "eqtnp": Model(EQTNP, "EQTNP", "neural_process"),
    "lbanp": Model(LBANP, "LBANP", "neural_process"),
    "cmanp": Model(CMANP, "CMANP", "neural_process"),
    "tnp_a": Model(TNPA, "TNP-A", "neural_process"),
    "tnp_nd": Model(TNPND, "TNP-ND", "neural_process"),
    "lbanp_nd": Model(LBANPND, "LBANP-ND", "neural_process"),
    "cmanp_and": Model(CMANPAND, "CMANP-AND", "neural_process"),
    "intention_anp": Model(IntentionANP, "Intention ANP", "neural_process"),
    "intention_cmanp": Model(IntentionCMANP, "Intention CMANP", "neural_process"),
}

CLASSIFIERS = {
    "intention": Model(IntentionClassifier, "Intention", "few_shot"),
    "attention": Model(AttentionClassifier, "Attention", "few_shot"),
    "neural_process": Model(NeuralProcessClassifier, "Neural Process", "few_shot"),
    "prototypes": Model(PrototypeClassifier, "Prototypical networks", "few_shot"),
    "maml": Model(MAMLClassifier, "MAML", "few_shot"),
}

IMAGE_CLASSIFIERS = {"vgg": Model(VGG, "VGG", "image_classifier")}

WEIGHT_REGRESSORS = {
    "intention": Model(IntentionWeights, "Intention", "few_shot"),
    "attention": Model(AttentionWeights, "Attention", "few_shot"),
    "neural_process": Model(NeuralProcessWeights, "Neural Process", "few_shot"),
    "mlp": Model(MLPWeights, "MLP", "few_shot"),
}

TARGET_REGRESSORS = {
    "intention": Model(IntentionTarget, "Intention", "few_shot"),
    "attention": Model(AttentionTarget, "Attention", "few_shot"),
    "neural_process": Model(NeuralProcessTarget, "Neural Process", "few_shot"),
    "mlp": Model(MLPTarget, "MLP", "few_shot"),
}

# In the order of tables: what most are compared with, the Transformer's, then constant memory, and ours.
EVENT_MODELS = {
    "gru": Model(GRUProcess, "GRU", "event_process"),
    "thp": Model(THP, "THP", "event_process"),
    "thp_mixture": Model(THPMixture, "THP, mixture", "event_process"),
    "cmhp": Model(CMHP, "CMHP", "event_process"),
    "intention_hawkes": Model(IntentionHawkes, "Intention Hawkes", "event_process"),
}


def family(name: str) -> dict[str, Model]:
    """The rows of MODELS of one family, in their order."""
    return {key: model for key, model in MODELS.items() if model.family == name}
