"""One file for each published family of architectures, composed from kvq_jax.nn."""

from kvq_jax.models.few_shot import (
    FEW_SHOT_REGRESSORS,
    AttentionRegressor,
    IntentionRegressor,
    MAMLRegressor,
    NeuralProcessRegressor,
)
from kvq_jax.models.few_shot_classifiers import (
    FEW_SHOT_CLASSIFIERS,
    AttentionClassifier,
    IntentionClassifier,
    MAMLClassifier,
    NeuralProcessClassifier,
    PrototypeClassifier,
)
from kvq_jax.models.flat import MLPRegressor
from kvq_jax.models.pairs import PairRegressor
from kvq_jax.models.set_anomaly import SetAnomalyDetector
from kvq_jax.models.weight_regressors import (
    TARGET_REGRESSORS,
    WEIGHT_REGRESSORS,
    AttentionTarget,
    AttentionWeights,
    IntentionTarget,
    IntentionWeights,
    MLPTarget,
    MLPWeights,
    NeuralProcessTarget,
    NeuralProcessWeights,
)

__all__ = [
    "AttentionClassifier",
    "AttentionRegressor",
    "AttentionTarget",
    "AttentionWeights",
    "FEW_SHOT_CLASSIFIERS",
    "FEW_SHOT_REGRESSORS",
    "IntentionClassifier",
    "IntentionRegressor",
    "IntentionTarget",
    "IntentionWeights",
    "MAMLClassifier",
    "MAMLRegressor",
    "MLPRegressor",
    "MLPTarget",
    "MLPWeights",
    "NeuralProcessClassifier",
    "NeuralProcessRegressor",
    "NeuralProcessTarget",
    "NeuralProcessWeights",
    "PairRegressor",
    "PrototypeClassifier",
    "SetAnomalyDetector",
    "TARGET_REGRESSORS",
    "WEIGHT_REGRESSORS",
]
