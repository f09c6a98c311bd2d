"""Imports a published PyTorch neural process: python -m scripts.import_weights --model cmanp --weights F --out DIR

F is a checkpoint or state dict of the released code (.tar, .pt, .pth), or a .npz of its tensors by name. Sizes follow
from the tensors. Fields that shapes cannot tell take the published default and are printed; --set field=value changes
them, such as --set num_heads=1 for the wheel bandit. Whether deviations are bounded (EMNIST) no tensor tells either;
which --set says so for the model is printed.

    python -m experiments.run --config configs/neural_processes/gp.py:model=cmanp --weights DIR     # evaluates them
    model, variables = kvq_jax.load("DIR")                                                           # in Python
"""

import sys
from pathlib import Path

import jax
from absl import flags

import kvq_jax
from experiments.harness import command_line
from experiments.harness.errors import UserError
from experiments.harness.tensor_files import read_tensors
from experiments.neural_processes.import_weights import TORCH_NAMES, UNTOLD, bounded, import_weights, parse_changes

_MODEL = flags.DEFINE_string("model", None, f"one of {', '.join(TORCH_NAMES)}")
_WEIGHTS = flags.DEFINE_string("weights", None, "file of the published tensors: .npz, .pt, .pth or .tar")
_OUT = flags.DEFINE_string("out", None, "folder to write, new or empty")
_SET = flags.DEFINE_multi_string("set", [], "field=value of the model; may be repeated")


def _import(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    for flag in (_MODEL, _WEIGHTS, _OUT):
        if not flag.value:
            raise UserError(f"--{flag.name} is missing: --model NAME --weights FILE --out DIR")
    folder = Path(_OUT.value)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is not empty: --out takes a new folder")
    made = import_weights(_MODEL.value, read_tensors(Path(_WEIGHTS.value)), parse_changes(_SET.value))
    kvq_jax.save(folder, made.module, {"params": made.params})
    print(f"{folder}: {sum(leaf.size for leaf in jax.tree.leaves(made.params)):,} parameters")
    known = {field: value for field, value in made.model.items() if field not in made.assumed}
    for said, fields in (("known", known), ("assumed, as published (--set changes it)", made.assumed)):
        print(f"{said}: {', '.join(f'{field}={value}' for field, value in fields.items())}")
    for field in (field for field in UNTOLD if field in made.assumed):
        value = made.assumed[field]
        print(f"warning: no tensor tells {field}: {value} is assumed ({UNTOLD[field]}): --set {field}=N")
    if not bounded(_MODEL.value).items() <= made.model.items():
        hint = " ".join(f"--set {field}={value}" for field, value in bounded(_MODEL.value).items())
        print(f"if its deviations were bounded in training (EMNIST): {hint}")


if __name__ == "__main__":
    sys.exit(command_line.guarded(_import, sys.argv))
