"""Blocks by the number of elements: operations by hand, powers of growth, what does not fit, a run and its pictures."""

import csv
import dataclasses
import io
import time

import jax
import numpy as np
import pytest
from rich.console import Console

from configs.set_transformer import complexity as config_file
from experiments import catalogue
from experiments.harness import timing
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.findings import said
from experiments.harness.launch import Options, launch
from experiments.harness.programs import operations
from experiments.set_transformer.complexity import experiment, figures, tables
from kvq_jax.nn import ISAB, PMA, SAB
from scripts.benchmarks import sets


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    config = config_file.get_config("preset=tiny")
    folder = tmp_path_factory.mktemp("run") / "run"
    return launch(config, folder, Options(), Console(file=io.StringIO()), catalogue.show)


def products(queries, keys, dim):
    """Twice the multiplications of the matrix products of MAB(X [queries, dim], Y [keys, dim])."""
    projections = (2 * queries + 2 * keys) * dim * dim  # W_q and the last layer of X, W_k and W_v of Y
    return 2 * (projections + 2 * queries * keys * dim)  # and scores and averages


@pytest.mark.parametrize(
    "block, products_of",
    [
        (SAB(32), lambda n: products(n, n, 32)),
        (ISAB(32, num_inducing=16), lambda n: products(16, n, 32) + products(n, 16, 32)),
        (PMA(32, num_seeds=4), lambda n: products(4, n, 32)),
    ],
    ids=["sab", "isab", "pma"],
)
def test_operations_are_those_of_the_products_by_hand(block, products_of):
    """What is not a product, the softmax and the rest of a row, is less than a fifth of them; nothing is missing."""
    for n in (200, 400):
        counted = operations(experiment.forward(block, n, 32))
        assert 1 <= counted / products_of(n) < 1.2
    assert operations(experiment.gradient(block, 200, 32)) > 1.8 * products_of(200)


def test_the_gradient_is_that_of_the_benchmark():
    block = SAB(8, num_heads=2)
    program = experiment.gradient(block, 10, 8)
    x = jax.random.normal(jax.random.key(0), (10, 8))
    variables = jax.jit(block.init)(jax.random.key(1), x[:2])
    step = sets.step_program(block, 10, 8)
    after = step.compiled(*step.arguments)
    stepped = jax.tree.map(lambda old, slope: old - sets._RATE * slope, variables, program.run(variables, x))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6), stepped, after)


@pytest.mark.parametrize("form, features", [("code", 3), ("paper", 64)])
def test_blocks_of_the_published_figure(form, features):
    """Supplement, Section 3.1: SAB(64, 8) and ISAB_4(64, 8), on elements of three features where they take them."""
    config = config_file.get_config(f"preset=paper,form={form}")
    assert config.measurement.features == features and 2000 in config.measurement.sizes
    for name, inducing in (("sab", None), ("isab", 4)):
        section = config.blocks[name]
        assert (section.dim, section.num_heads, section.get("num_inducing")) == (64, 8, inducing)
        block = experiment.settings.build_named(experiment.BLOCKS, section, name)
        program = experiment.forward(block, 20, features)
        assert jax.eval_shape(program.run, *program.arguments).shape == (20, 64)


def powered(result, **powers):
    """The result as if each quantity grew with a power of n, from 3 at the smallest size."""
    sizes = result.config["measurement"]["sizes"]
    metrics = {}
    for name, summary in result.metrics.items():
        quantity, size = name.split("/")[0], int(name.split("@")[1])
        metrics[name] = summary | {"mean": 3.0 * (size / sizes[0]) ** powers.get(quantity, 0)}
    return dataclasses.replace(result, content=result.content | {"metrics": metrics})


def test_a_power_is_read_from_the_larger_sizes(result):
    made = powered(result, time=2, operations=1)
    powers = {quantity: tables.power(made, quantity, "forward", "sab") for quantity in tables.SCALES}
    assert powers == pytest.approx({"time": 2, "operations": 1, "memory": 0})
    rows = dict(tables.run_table(made).rows)
    assert list(rows)[:3] == ["SAB, forward", "ISAB (4), forward", "PMA (4), forward"] and len(rows) == 6
    assert [cell.text() for cell in rows["PMA (4), gradient"][-3:]] == ["2.00", "1.00", "0.00"]
    assert rows["SAB, forward"][1].mean == pytest.approx(4 * 3e3)


def test_findings_read_the_powers_and_hold_where_isab_is_linear_and_sab_is_not(result):
    find = catalogue.find("findings", "set_transformer/complexity")
    (ratio, grows), why = said(find, [powered(result, time=2, operations=2)])
    assert why is None and not grows.holds and "2.00, its time with that of 2.0" in grows.text
    assert not ratio.holds and "On a set of 16 elements SAB takes 1.0 times as long as ISAB (4)" in ratio.text
    assert said(find, [])[1] == "no result of set_transformer/complexity"
    made = powered(result, time=2, operations=2)
    made.metrics["operations/forward/isab@64"]["mean"] = made.metrics["operations/forward/isab@32"]["mean"] * 2
    assert said(find, [made])[0][1].holds
    del made.metrics["time/forward/sab@64"]
    assert said(find, [made]) == ([], "set_transformer/complexity: a block did not fit in memory")


def test_what_does_not_fit_is_counted_and_not_run(monkeypatch, tmp_path):
    config = config_file.get_config("preset=tiny")
    config.blocks = {"pma": config.blocks.pma}
    config.measurement.update(sizes=(8, 16), phases=("forward",))
    monkeypatch.setattr(experiment, "free_memory", lambda: 0)
    metrics, _, facts = experiment.measure(config)
    assert facts == {"too_large": ["forward/pma@8", "forward/pma@16"]}
    assert set(metrics) == {f"{quantity}/forward/pma@{n}" for quantity in ("operations", "memory") for n in (8, 16)}


def test_a_run_its_table_and_its_figure(result, tmp_path):
    assert result.content["facts"] == {"too_large": []} and len(result.metrics) == 3 * 2 * 3 * 3
    assert (result.folder / "figure.png").stat().st_size > 10_000
    table = tables.TABLES["set_transformer/complexity"]([result])
    assert "of width 8, by blocks of width 8 with 2 heads" in table.caption and "from n = 32 to 64" in table.caption
    assert tables.TABLES["set_transformer/complexity"]([]) is None
    sab, isab = (tables.power(result, "operations", "forward", block) for block in ("sab", "isab"))
    assert isab < 1.05 < 1.5 < sab < 2
    figures.FIGURES["set_transformer/complexity"]([result], tmp_path)
    with (tmp_path / "complexity.csv").open() as file:
        rows = {(row["quantity"], row["block"], row["phase"], row["elements"]): row for row in csv.DictReader(file)}
    assert len(rows) == 2 * 3 * 2 * 3
    own = result.metrics["time/gradient/isab@32"]["mean"]
    assert float(rows["time", "isab", "gradient", "32"]["ms or 10^9"]) == pytest.approx(1e3 * own)
    with pytest.raises(UserError, match="there is none"):
        figures.FIGURES["set_transformer/complexity"]([], tmp_path)
    other = dataclasses.replace(result, content=result.content | {"axes": result.axes | {"op": "intention"}})
    assert tables.TABLES["set_transformer/complexity"]([other]) is None  # another attention


def test_the_clock_of_a_processor_stands_still_while_it_waits_and_is_not_for_accelerators(monkeypatch):
    wait = lambda: time.sleep(0.2)
    wall, processor = (timing.elapsed(wait, 1, clock) for clock in ("wall", "processor"))
    assert wall >= 0.2 > 4 * processor
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    config = config_file.get_config("preset=quick")
    with pytest.raises(ConfigError, match="config.measurement.clock: 'processor' does not see the work of a gpu"):
        experiment.measure(config)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"measurement.phases": ("forwards",)}, "did you mean 'forward'"),
        ({"measurement.sizes": (0, 10)}, "a set without elements"),
        ({"measurement.sizes": (20, 10)}, "increasing"),
        ({"measurement.clock": "processo"}, "did you mean 'processor'"),
        ({"blocks.sab.name": "sabb"}, "did you mean 'sab'"),
        ({"blocks.sab.dim": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, message, monkeypatch):
    monkeypatch.setattr(experiment, "memory", lambda program: pytest.fail("measured"))
    config = config_file.get_config("preset=tiny")
    config.update_from_flattened_dict(change)
    with pytest.raises(ConfigError, match=message):
        experiment.measure(config)
