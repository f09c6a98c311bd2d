"""Training data in two: to train on, and to validate."""

import numpy as np

from experiments.harness.errors import ConfigError


def hold_out(fraction: float, count: int, things: str) -> dict[str, np.ndarray]:
    """Which of `count` things train and which validate: indices by split, in one fixed random order.

    Raises ConfigError where the fraction, config.data.validation_fraction, leaves none to train on.
    """
    order = np.random.default_rng(0).permutation(count)
    held_out = max(1, round(fraction * count))
    if held_out == count:
        raise ConfigError(f"config.data.validation_fraction: leaves none of {count} {things} to train on")
    return {"train": order[held_out:], "validation": order[:held_out]}
