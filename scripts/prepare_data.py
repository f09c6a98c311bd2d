"""Computes features that experiments read: python -m scripts.prepare_data embed --weights F --out FILE.npz ...

    python -m scripts.prepare_data embed --weights resnet34.safetensors --data_dir DATA --out DATA/cifar100_resnet34.npz
    python -m scripts.prepare_data embed --weights RUN --data_dir DATA --out DATA/cifar100_vgg.npz

embed: the features of CIFAR-100 by a frozen network, of which --weights is one of two. A file F has the ImageNet
weights of a ResNet (a state dict with torchvision's names: .safetensors, .npz, .pt or .pth), for features=resnet34 of
configs/intention/anomaly.py. Its images are resized to 224x224: 7 GFLOP each, or 45 minutes for all 60,000 on two CPU
cores. RUN is the folder of a run of configs/set_transformer/encoder.py, for configs/set_transformer/features.py. Its
images stay as they are.
"""

import sys
from pathlib import Path

from absl import flags

from experiments.harness import command_line
from experiments.harness.errors import UserError
from kvq_jax.names import unknown

_WEIGHTS = flags.DEFINE_string(
    "weights", None, "file of a network's tensors: .safetensors, .npz, .pt or .pth; or the folder of a run"
)
_DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of the original data archives, or of prepared TFDS data")
_SOURCE = flags.DEFINE_string("source", "archive", "archive or tfds")
_OUT = flags.DEFINE_string("out", None, "file to write, .npz")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "images at once", lower_bound=1)


def _prepare(argv: list[str]) -> None:
    if len(argv) < 2 or argv[1] not in COMMANDS:
        raise UserError(unknown("command", argv[1] if len(argv) > 1 else "", COMMANDS))
    command_line.parse_flags([argv[0], *argv[2:]])
    COMMANDS[argv[1]]()


def _embed() -> None:
    from experiments.data import cifar, image_features

    for flag in (_WEIGHTS, _OUT):
        if not flag.value:
            raise UserError(f"--{flag.name} is missing: embed --weights FILE_OR_RUN --data_dir DATA --out FILE.npz")
    out = Path(_OUT.value)
    if out.suffix != ".npz" or not out.parent.is_dir() or out.exists():
        raise UserError(f"--out {out}: expected a new file .npz in a folder that exists")
    data = cifar.load(_SOURCE.value, _DATA_DIR.value)
    made = image_features.compute(Path(_WEIGHTS.value), data, _BATCH_SIZE.value)
    image_features.write(out, made, data)
    print(f"{out}: features of {data.name}, {made.provenance['images']}, by {made.provenance['network']}")


COMMANDS = {"embed": _embed}

if __name__ == "__main__":
    sys.exit(command_line.guarded(_prepare, sys.argv))
