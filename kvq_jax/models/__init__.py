"""One file for each published family of architectures, composed from kvq_jax.nn."""
from kvq_jax.models.few_shot import (
    FEW_SHOT_REGRESSORS,
    AttentionRegressor,
    IntentionRegressor,
    MAMLRegressor,
    NeuralProcessRegressor,
)

__all__ = ["FEW_SHOT_REGRESSORS", "AttentionRegressor", "IntentionRegressor", "MAMLRegressor", "NeuralProcessRegressor"]
