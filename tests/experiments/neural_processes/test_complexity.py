"""Memory of conditioning, querying and updating, as the compiler counts it; tables and figures of runs."""

import csv
import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from configs.neural_processes import complexity as config_file
from configs.neural_processes import images as images_config
from experiments import catalogue
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch
from experiments.harness.programs import memory
from experiments.harness.settings import build_named
from experiments.neural_processes.complexity import experiment, figures, programs, tables
from experiments.neural_processes.complexity.programs import conditioning, querying, training, updating
from experiments.neural_processes.images import tables as image_tables
from kvq_jax.models import MODELS, family
from tests.processes import ROOT

SIZES = (128, 256, 384)  # two chunks and more


def narrow(name):
    """A model as the memory of all models is measured."""
    config = config_file.get_config("what=memory,preset=quick")
    return programs.shaped(build_named(MODELS, config.models[name], name), config.measurement.chunk, dim_x=1)


def growth(program_of) -> str:
    made = [program_of(size) for size in SIZES]
    return "none" if None in made else tables.mark([memory(program) for program in made], SIZES)


@pytest.mark.parametrize(
    "name, mark",
    [
        ("cnp", "constant"),
        ("cmanp", "constant"),
        ("intention_anp", "constant"),
        ("lbanp", "linear"),
        ("bnp", "linear"),
        ("eqtnp", "quadratic"),
        ("tnp_d", "none"),
    ],
)
def test_what_conditioning_needs(name, mark):
    model = narrow(name)
    assert growth(lambda n: conditioning(model, n)) == mark


@pytest.mark.parametrize(
    "name, mark", [("cmanp", "constant"), ("cmanp_and", "constant"), ("lbanp", "constant"), ("tnp_d", "quadratic")]
)
def test_what_a_query_needs_of_the_context(name, mark):
    model = narrow(name)
    assert growth(lambda n: querying(model, n, 8)) == mark


@pytest.mark.parametrize("name, mark", [("tnp_nd", "quadratic"), ("cmanp_and", "constant"), ("cmanp", "linear")])
def test_what_a_query_needs_of_its_targets(name, mark):
    model = narrow(name)
    assert growth(lambda m: querying(model, 8, m)) == mark


def test_an_update_forgets_how_much_it_has_seen():
    model = narrow("cmanp")
    assert growth(lambda n: updating(model, n, 8)) == "constant"
    assert growth(lambda u: updating(model, 8, u)) == "constant"


def test_without_a_state_an_update_is_conditioning_anew():
    model = narrow("banp")
    assert growth(lambda n: conditioning(model, n)) == "quadratic"
    again, anew = updating(model, 20, 4), conditioning(model, 24)
    assert again.arguments == anew.arguments and memory(again) == memory(anew)


def test_what_training_needs():
    """All activations of a batch: as much again for as many functions again, and with the square of TNP-D's points."""
    model = narrow("tnp_d")
    assert growth(lambda n: training(model, n, 8)) == "quadratic"
    one, four = (memory(training(model._replace(batch=(size,)), 32, 8)) for size in (4, 16))
    assert 3 < four / one < 5


@pytest.mark.parametrize(
    "measured, found",
    [
        (lambda n: 1000.0, "constant"),
        (lambda n: 1000 + 0.1 * n, "constant"),
        (lambda n: 100 + 7 * n, "linear"),
        (lambda n: 50 * n + 0.01 * n**2, "linear"),
        (lambda n: 1e4 + 50 * n + n**2, "quadratic"),
    ],
)
def test_marks(measured, found):
    assert tables.mark([measured(n) for n in SIZES], SIZES) == found


def run(what, folder, **series):
    """The result of a tiny run, some fields of its series changed; its table and figure are shown."""
    config = config_file.get_config(f"what={what},preset=tiny")
    for name, fields in series.items():
        config.series[name].update(fields)
    return launch(config, folder / what, Options(), Console(file=io.StringIO()), catalogue.show)


def test_memory(tmp_path):
    result = run("memory", tmp_path)
    table = tables.table8([result])
    rows = dict(table.rows)
    assert list(rows) == ["CNP", "TNP-D", "CMANP"] and rows["TNP-D"][0] == "none" and "missing" not in rows["CMANP"]
    assert len(table.columns) == 6 and "from 32 to 128 points, 8 of the others" in table.caption
    assert result.content["facts"]["absent"] == [
        "conditioning_context/tnp_d",
        "updating_context/tnp_d",
        "updating_points/tnp_d",
    ]
    assert (tmp_path / "memory" / "figure.png").read_bytes()[1:4] == b"PNG" and result.content["steps"] == 0
    del result.metrics["querying_points/cnp@64"]
    assert dict(tables.table8([result]).rows)["CNP"][2] == "missing"


def test_the_scores_of_attention_are_counted():
    """In a process that compiles as users do: there XLA hands all of it to a library that it does not look into."""
    code = """
import jax
from experiments.harness.programs import Program, memory
from kvq_jax.ops import softmax_attention
points = jax.ShapeDtypeStruct((4000, 32), "float32")
print(memory(Program(softmax_attention, (points, points, points))))"""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert int(done.stdout) >= 4 * 4000**2, done.stderr


def test_images(tmp_path):
    """Table 3 says how much memory a model would need that is not trained."""
    result = run("images", tmp_path)
    assert set(result.metrics) == {f"celeba{size}/{model}@8" for size in (64, 128) for model in ("tnp_d", "lbanp")}
    needed = image_tables.memory_needed([result])
    assert needed["tnp_d", "celeba64"] == f"{result.metrics['celeba64/tnp_d@8']['mean'] / 2**30:.2g} GiB"


def test_models_of_images_are_those_that_are_trained():
    config = config_file.get_config("what=images,preset=paper")
    assert set(config.models) == set(family("neural_process"))
    for name, model in config.models.items():
        assert model == images_config.get_config(f"model={name},data=celeba128,preset=paper").model
    slots = {name: (series.sizes[0] + series.fixed, series.batch) for name, series in config.series.items()}
    for data, (points, batch) in slots.items():
        own = images_config.get_config(f"data={data},preset=paper")
        assert (points, batch) == (own.task.max_points, own.train.batch_size)


def test_times(tmp_path):
    result = run("times", tmp_path, querying_points=dict(sizes=(8,)))
    times = tables.times([result])
    assert [[cell == "none" for cell in cells] for _, cells in times.rows] == [
        [True, True] + [False] * 3 + [True] * 2,
        [False] * 7,
    ]
    assert all(cell == "none" or cell.mean > 0 for _, cells in times.rows for cell in cells)
    heads = "conditioning: 4,conditioning: 8,querying: 4 of 4,querying: 4 of 8,querying: 8 of 4,updating: 4 after 4"
    assert list(times.columns) == ["model", *heads.split(","), "updating: 4 after 8"]
    assert tables.run_table(result).rows == times.rows


def test_figures(tmp_path):
    found = [run("context", tmp_path), run("update", tmp_path)]
    for name, panels in (
        ("figure3", ["joint prediction, 4 context points", "conditioning and 4 targets", "querying 4 targets"]),
        ("figure8", ["update by 4 points", "query of 4 targets"]),
    ):
        draw = figures.FIGURES[f"cmanp/{name}"]
        assert draw(found, tmp_path).read_bytes()[1:4] == b"PNG"
        assert (tmp_path / f"{name}.csv").read_text().startswith("panel,model,what,points")
        rows = list(csv.DictReader((tmp_path / f"{name}.csv").open()))
        assert list(dict.fromkeys(row["panel"] for row in rows)) == panels
        assert all(float(row["MiB or ms"]) > 0 for row in rows) and {row["points"] for row in rows} == {"8", "16"}
    assert {"tnp_d", "eqtnp", "lbanp", "cmanp", "cmanp, anew"} == {row["model"] for row in rows}
    both = found[0].metrics["conditioning/eqtnp@16"]["mean"], found[0].metrics["querying/eqtnp@16"]["mean"]
    (eqtnp,) = (
        row
        for row in csv.DictReader((tmp_path / "figure3.csv").open())
        if (row["panel"], row["model"], row["points"]) == ("conditioning and 4 targets", "eqtnp", "16")
    )
    assert float(eqtnp["MiB or ms"]) == pytest.approx(max(both) / 2**20)


def test_blocks(tmp_path):
    result = run("blocks", tmp_path, blocks=dict(sizes=(4, 8), fixed=8))
    assert {name: summary["n"] for name, summary in result.metrics.items()} == {
        "blocks/cmanp_and@4": 1,
        "blocks/cmanp_and@8": 1,
    }
    heads = ["model", "blocks: 8 of 8, block_size 4", "blocks: 8 of 8, block_size 8"]
    assert list(tables.run_table(result).columns) == heads


def test_without_results_they_say_so(tmp_path):
    assert tables.table8([]) is None and tables.times([]) is None
    for draw in figures.FIGURES.values():
        with pytest.raises(UserError, match="there is none"):
            draw([], tmp_path)
    assert catalogue.find("tables", "cmanp/times") is tables.times and "cmanp/figure8" in catalogue.names("figures")


@pytest.mark.parametrize("what", config_file.SERIES)
def test_quick_measures_what_it_says(what):
    """Traced, not compiled: every program of the preset has a phase, and models are the rows of MODELS."""
    config = config_file.get_config(f"what={what},preset=quick")
    models = {name for series in config.series.values() for name in series.models}
    assert models == set(config.models) <= set(family("neural_process"))
    assert what not in ("memory", "times") or models == set(family("neural_process"))


@pytest.mark.parametrize(
    "section, change, message",
    [
        ("blocks", dict(phase="queryng"), "did you mean 'querying'"),
        ("blocks", dict(quantity="tme"), "did you mean 'time'"),
        ("blocks", dict(models=("cmanp",)), "unknown model of a series 'cmanp'"),
        ("blocks", dict(vary="block_sise"), "did you mean 'block_size'"),
        ("measurement", dict(turns=0), "at least 1"),
    ],
)
def test_impossible_measurements_are_refused(section, change, message):
    config = config_file.get_config("what=blocks,preset=tiny")
    (config.measurement if section == "measurement" else config.series[section]).update(change)
    with pytest.raises(ConfigError, match=message):
        experiment.measure(config)
