"""Where the tensors of the published implementations lie."""
import os
import pathlib

import pytest


@pytest.fixture
def parity_dir():
    """The folder of published parameters, inputs and outputs named by KVQ_JAX_PARITY_DIR, or ../shared/parity.

    Skips where neither exists.
    """
    path = pathlib.Path(os.environ.get("KVQ_JAX_PARITY_DIR", pathlib.Path(__file__).parents[5] / "shared" / "parity"))
    if not path.is_dir():
        pytest.skip(f"no published tensors at {path.name}: set KVQ_JAX_PARITY_DIR to the folder of the parity fixtures")
    return path
