"""An experiment and its evaluation without a run."""

import jax
import numpy as np

from experiments.harness.launch import split_evaluation


def built(module, config_file, arg, data_dir=None, **changes):
    """The Experiment of a module for the axes `arg` of a config file; changes: flat config keys."""
    config = config_file.get_config(arg)
    config.update_from_flattened_dict(changes)
    return module.build(config, split_evaluation(config.evaluation)[1], data_dir)


def evaluated(made, variables, key):
    """name -> [tasks]: what `made`, an Experiment with its own `part`, measures, all parts joined."""
    evaluate = jax.jit(made.evaluate)
    found = [evaluate(variables, made.part(made.data["test"], number), key) for number in range(made.parts)]
    return {name: np.concatenate([values[name] for values in found]) for name in found[0]}
