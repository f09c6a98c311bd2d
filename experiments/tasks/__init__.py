"""Samplers of tasks, with what is known of their truth, whatever paper they come from."""

from experiments.tasks.base import Task, has_oracle, marginals, oracle_log_likelihood
from experiments.tasks.gaussian_process import GaussianProcess
from experiments.tasks.kabsch import Kabsch
from experiments.tasks.pixels import Pixels
from experiments.tasks.policy_distillation import PolicyDistillation
from experiments.tasks.sine import Sine
from experiments.tasks.wheel import FixedWheels, FreshWheels

# Name -> sampler of a Task, as in the config's `task.name`.
TASKS = {
    "sine": Sine,
    "pixels": Pixels,
    "gp": GaussianProcess,
    "fixed_wheels": FixedWheels,
    "fresh_wheels": FreshWheels,
    "policy_distillation": PolicyDistillation,
    "kabsch": Kabsch,
}
