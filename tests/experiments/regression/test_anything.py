"""Any model, any task, any operator: rows of one's own run at once, with their table and figure."""

import io

import numpy as np
import pytest
from rich.console import Console

from configs.kvq import anything
from experiments import catalogue
from experiments.harness.launch import Options, launch
from experiments.regression.figures import run_figure
from experiments.regression.tables import run_table
from kvq_jax.models import MODELS, Model, Regressor
from kvq_jax.nn import MLP, Mixer
from kvq_jax.ops import OPERATORS, Operator, softmax_attention


def sharp(query, key, value, *, mask=None, factor=4.0):
    """Softmax attention with a factor of one's own."""
    return softmax_attention(factor * query, key, value, mask=mask)


class OneLayer(Regressor):
    """One operator between linear maps of the inputs."""

    op: str = "softmax"
    features: int = 8

    def setup(self):
        self.encode, self.mix = MLP((self.features,)), Mixer(self.op)

    def __call__(self, context, target_x, target_mask=None, *, key=None):
        return self.mix(self.encode(target_x), self.encode(context.x), context.y, mask=context.mask)


@pytest.fixture
def rows(monkeypatch):
    """A model and an operator, by one row each."""
    monkeypatch.setitem(OPERATORS, "sharp", Operator(sharp))
    monkeypatch.setitem(MODELS, "one_layer", Model(OneLayer, "One layer", "few_shot"))


def run(arg, folder):
    return launch(anything.get_config(f"{arg},preset=tiny"), folder, Options(), Console(quiet=True))


@pytest.mark.parametrize("task", ["gp", "sine", "kabsch"])
def test_a_model_and_an_operator_added_by_a_row_run_with_their_table(rows, task, tmp_path):
    result = run(f"model=one_layer,task={task},op=sharp", tmp_path)
    assert result.config["model"]["op"] == "sharp"
    table = run_table(result)
    names = [name for name, _ in table.rows]
    extra = {"gp": ["squared error, oracle"], "sine": [], "kabsch": ["squared error, Umeyama (similarity, oracle)"]}
    assert set(["squared error", *extra[task]]) <= set(names) and "One layer" in table.title
    assert all(np.isfinite(cell.mean) for _, cells in table.rows for cell in cells)
    assert run_figure(result, tmp_path).read_bytes()[1:4] == b"PNG"


def test_a_run_of_a_distribution_is_shown_by_the_table_and_figure_of_any_run(tmp_path):
    result, console = run("model=cnp,task=gp", tmp_path), Console(record=True, file=io.StringIO())
    catalogue.show(result, tmp_path, console)
    text = console.export_text()
    for name in ("log-likelihood of a target", "gap to the oracle", "squared error, oracle", "figure"):
        assert name in text
    assert (tmp_path / "figure.png").stat().st_size > 10_000
