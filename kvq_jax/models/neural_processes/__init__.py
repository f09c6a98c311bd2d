"""The neural-process family, behind one interface: see `NeuralProcess`."""
from kvq_jax.models.neural_processes.base import NeuralProcess, Points, join

__all__ = ["NeuralProcess", "Points", "join"]
