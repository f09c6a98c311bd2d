"""What of a run must not depend on how often it was stopped."""

import json
from pathlib import Path
from typing import Any

from experiments.harness.checkpoints import digests
from experiments.harness.results import Result, read

_END = 8  # bytes, the same in every PNG


def outcome(folder: Path) -> dict[str, Any]:
    """What a finished run found, to the bit: two runs of a config with as many threads of XLA have the same.

    Fails where a file is not whole.
    """
    result = Result(folder, read(folder / "result.json"))
    return {
        "metrics": result.content["metrics"],
        "losses": [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()],
        "examples": {name: array.tobytes() for name, array in result.examples.items()},
        "names of files": sorted(entry.name for entry in folder.iterdir()),
        "the end of the picture": (folder / "figure.png").read_bytes()[-_END:],
        "states of training": [max(digests(kept).items()) for kept in sorted((folder / "checkpoints").iterdir())],
    }
