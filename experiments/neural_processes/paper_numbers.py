"""The numbers that papers of the neural-process family print; labels and order are in kvq_jax.models.MODELS."""

from collections.abc import Hashable, Mapping

from experiments.harness.tables import Cell


def printed(numbers: Mapping[str, Mapping], row: str, column: Hashable) -> Cell | str:
    """A number with its ± to two decimals, as printed; a dash where the paper has none."""
    number = numbers[row].get(column) if row in numbers else None
    return Cell(*number, decimals=2) if number else "-"


# CMANP paper (Feng et al. 2023), Table 4: model -> kernel -> log-likelihood and its standard deviation over 5 seeds.
# The TNP and LBANP papers print the same rows, up to their own models.
TABLE4 = {
    "cnp": {"rbf": (0.26, 0.02), "matern": (0.04, 0.02)},
    "canp": {"rbf": (0.79, 0.00), "matern": (0.62, 0.00)},
    "np": {"rbf": (0.27, 0.01), "matern": (0.07, 0.01)},
    "anp": {"rbf": (0.81, 0.00), "matern": (0.63, 0.00)},
    "bnp": {"rbf": (0.38, 0.02), "matern": (0.18, 0.02)},
    "banp": {"rbf": (0.82, 0.01), "matern": (0.66, 0.00)},
    "tnp_d": {"rbf": (1.39, 0.00), "matern": (0.95, 0.01)},
    "lbanp": {"rbf": (1.27, 0.02), "matern": (0.85, 0.02)},
    "cmanp": {"rbf": (1.24, 0.01), "matern": (0.80, 0.01)},
    "tnp_nd": {"rbf": (1.46, 0.00), "matern": (1.02, 0.00)},
    "lbanp_nd": {"rbf": (1.24, 0.03), "matern": (0.78, 0.02)},
    "cmanp_and": {"rbf": (1.48, 0.03), "matern": (0.96, 0.01)},
}

# CMANP paper, Table 3: model -> (data, part) -> log-likelihood, summed over channels, and its std over 5 seeds. Where
# a row has nothing, the model did not fit into the memory of a GPU of 12 or 16 GB; the sources print no other reason.
_IMAGES = ("celeba32", "test"), ("celeba64", "test"), ("celeba128", "test"), ("emnist", "seen"), ("emnist", "unseen")
_TABLE3 = {
    "cnp": ((2.15, 0.01), (2.43, 0.00), (2.55, 0.02), (0.73, 0.00), (0.49, 0.01)),
    "canp": ((2.66, 0.01), (3.15, 0.00), None, (0.94, 0.01), (0.82, 0.01)),
    "np": ((2.48, 0.02), (2.60, 0.01), (2.67, 0.01), (0.79, 0.01), (0.59, 0.01)),
    "anp": ((2.90, 0.00), None, None, (0.98, 0.00), (0.89, 0.00)),
    "bnp": ((2.76, 0.01), (2.97, 0.00), None, (0.88, 0.01), (0.73, 0.01)),
    "banp": ((3.09, 0.00), None, None, (1.01, 0.00), (0.94, 0.00)),
    "tnp_d": ((3.89, 0.01), (5.41, 0.01), None, (1.46, 0.01), (1.31, 0.00)),
    "lbanp": ((3.97, 0.02), (5.09, 0.02), (5.84, 0.01), (1.39, 0.01), (1.17, 0.01)),
    "cmanp": ((3.93, 0.05), (5.02, 0.14), (5.55, 0.01), (1.36, 0.01), (1.09, 0.01)),
    "tnp_nd": ((5.48, 0.02), None, None, (1.50, 0.00), (1.31, 0.00)),
    "lbanp_nd": ((5.57, 0.03), None, None, (1.42, 0.01), (1.14, 0.01)),
    "cmanp_and": ((6.31, 0.04), (6.96, 0.07), (7.15, 0.14), (1.48, 0.03), (1.19, 0.03)),
}
TABLE3 = {
    model: {place: number for place, number in zip(_IMAGES, numbers, strict=True) if number}
    for model, numbers in _TABLE3.items()
}

# CMANP paper, Table 7, contextual bandits: policy -> radius delta -> cumulative regret after 2000 rounds in percent of
# Uniform's mean, and its standard deviation over 50 runs. Uniform's deviations show how the wheels were made:
# tasks.wheel.published_wheel.
_RADII = (0.7, 0.9, 0.95, 0.99, 0.995)
_TABLE7 = {
    "uniform": ((100.00, 1.18), (100.00, 3.03), (100.00, 4.16), (100.00, 7.52), (100.00, 8.11)),
    "cnp": ((4.08, 0.29), (8.14, 0.33), (8.01, 0.40), (26.78, 0.85), (38.25, 1.01)),
    "canp": ((8.08, 9.93), (11.69, 11.96), (24.49, 13.25), (47.33, 20.49), (49.59, 17.87)),
    "np": ((1.56, 0.13), (2.96, 0.28), (4.24, 0.22), (18.00, 0.42), (25.53, 0.18)),
    "anp": ((1.62, 0.16), (4.05, 0.31), (5.39, 0.50), (19.57, 0.67), (27.65, 0.95)),
    "bnp": ((62.51, 1.07), (57.49, 2.13), (58.22, 2.27), (58.91, 3.77), (62.50, 4.85)),
    "banp": ((4.23, 16.58), (12.42, 29.58), (31.10, 36.10), (52.59, 18.11), (49.55, 14.52)),
    "tnp_d": ((1.18, 0.94), (1.70, 0.41), (2.55, 0.43), (3.57, 1.22), (4.68, 1.09)),
    "lbanp": ((1.11, 0.36), (1.75, 0.22), (1.65, 0.23), (6.13, 0.44), (8.76, 0.15)),
    "cmanp": ((0.93, 0.12), (1.56, 0.10), (1.87, 0.32), (9.04, 0.42), (13.02, 0.03)),
}
TABLE7 = {policy: dict(zip(_RADII, numbers, strict=True)) for policy, numbers in _TABLE7.items()}
