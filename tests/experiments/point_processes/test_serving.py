"""Time and memory of an event: what grows with the events before it, by shapes and by a run."""

import io

import jax
import pytest
from rich.console import Console

from configs.point_processes import serving as config_file
from experiments import catalogue
from experiments.harness.errors import UserError
from experiments.harness.launch import Options, launch
from experiments.harness.settings import build_named
from experiments.point_processes.serving import programs, tables
from kvq_jax.models import EVENT_MODELS


def model(name):
    """A model of `tiny`."""
    section = config_file.get_config("preset=tiny").models[name]
    return build_named(EVENT_MODELS, section, "config.model", num_marks=3, **programs.UNIT_GAPS)


@pytest.mark.parametrize(
    "name, grows", [("thp_mixture", True), ("cmhp", False), ("intention_hawkes", False), ("gru", False)]
)
def test_the_state_of_constant_memory_does_not_grow(name, grows):
    small, large = (
        sum(leaf.size for leaf in jax.tree.leaves(programs.state_of(model(name), events))) for events in (10, 1_000_000)
    )
    assert large > 1000 * small if grows else large == small


def test_serving_gives_the_state_that_it_takes():
    for name in config_file.get_config("preset=tiny").models:
        program = programs.serving(model(name), 8)
        state, mean, median, logits = jax.eval_shape(program.run, *program.arguments)
        assert jax.tree.map(lambda leaf: leaf.shape, state) == jax.tree.map(
            lambda leaf: leaf.shape, program.arguments[1]
        )
        assert mean.shape == median.shape == () and logits.shape == (3,)


def test_a_run_has_a_table_and_a_figure(tmp_path):
    config = config_file.get_config("preset=tiny")
    config.models = {name: config.models[name].to_dict() for name in ("gru", "thp_mixture")}
    result = launch(config, tmp_path / "run", Options(), Console(file=io.StringIO()), catalogue.show)
    assert (tmp_path / "run" / "figure.png").exists()
    table = tables.TABLES["events/serving"]([result])
    assert len(table.rows) == 8 and all(cell.known for _, cells in table.rows for cell in cells)
    state = dict(table.rows)["state, KiB: GRU"]
    assert state[0].mean == state[1].mean
    assert tables.TABLES["events/serving"]([]) is None
    with pytest.raises(UserError, match="events/serving needs a result"):
        catalogue.find("figures", "events/serving")([], tmp_path)
