"""Figures of the neural-process experiments from results."""

import functools

from experiments.neural_processes import analyses_figures, complexity, gp_figures, gp_tables

FIGURES = {
    "figure3": complexity.figure3,
    "figure4": analyses_figures.figure4,
    "figure6": analyses_figures.figure6,
    "figure8": complexity.figure8,
    "figure9": analyses_figures.figure9,
    "figure10": analyses_figures.figure10,
    **{
        f"gp_functions_{kernel}": functools.partial(gp_figures.functions, kernel=kernel) for kernel in gp_tables.KERNELS
    },
    "gp_likelihoods": gp_figures.likelihoods,
}
