"""Figures of the neural-process experiments from results."""
from experiments.neural_processes import complexity, gp_figures

FIGURES = {
    "figure3": complexity.figure3,
    "figure8": complexity.figure8,
    "gp_functions": gp_figures.functions,
    "gp_likelihoods": gp_figures.likelihoods,
}
