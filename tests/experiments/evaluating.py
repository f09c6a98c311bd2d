"""The evaluation of an experiment without a run."""

import jax
import numpy as np


def evaluated(made, variables, key):
    """name -> [tasks]: what `made`, an Experiment with its own `part`, measures, all parts joined."""
    evaluate = jax.jit(made.evaluate)
    found = [evaluate(variables, made.part(made.data["test"], number), key) for number in range(made.parts)]
    return {name: np.concatenate([values[name] for values in found]) for name in found[0]}
