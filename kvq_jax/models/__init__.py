"""One file for each published family of architectures, composed from kvq_jax.nn."""
from kvq_jax.models.few_shot import (
    FEW_SHOT_REGRESSORS,
    AttentionRegressor,
    IntentionRegressor,
    MAMLRegressor,
    NeuralProcessRegressor,
)
from kvq_jax.models.flat import MLPRegressor
from kvq_jax.models.weight_regressors import (
    WEIGHT_REGRESSORS,
    AttentionWeights,
    IntentionWeights,
    MLPWeights,
    NeuralProcessWeights,
)

__all__ = [
    "AttentionRegressor",
    "AttentionWeights",
    "FEW_SHOT_REGRESSORS",
    "IntentionRegressor",
    "IntentionWeights",
    "MAMLRegressor",
    "MLPRegressor",
    "MLPWeights",
    "NeuralProcessRegressor",
    "NeuralProcessWeights",
    "WEIGHT_REGRESSORS",
]
