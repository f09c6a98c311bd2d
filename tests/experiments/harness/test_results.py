"""Which results may stand in one table."""

import dataclasses
import json
from pathlib import Path

import pytest

from experiments.harness.errors import UserError
from experiments.harness.results import Result, comparable, drawn, facts, load_results, of_one_data, seeds_by_name


def result(
    folder="a", model="mlp", preset="quick", data="real", dimension=2, steps=5, best_step=None, n=10, seeds=1
) -> Result:
    config = {"model": {"name": model}, "data": data, "task": {"dimension": dimension}}
    config["train"] = {"steps": steps, "seeds": seeds, "select": "best" if best_step else "last"}
    content = {
        "name": "paper/task",
        "axes": {"preset": preset},
        "config": config,
        "steps": steps,
        "best_step": best_step,
    }
    summary = dict(mean=3.0, sem=0.3, n=n, seeds=[2.6, 3.4][:seeds])
    return Result(Path(folder), content | {"seeds": list(range(seeds)), "metrics": {"mse": summary}})


def chosen(*results, name="paper/task") -> dict[str, Result]:
    def section(path):
        return lambda one: one.config[path]

    return comparable(
        results,
        name,
        lambda one: one.config["model"]["name"],
        lambda one: section("data")(one) != "real",
        lambda one: one.config["task"]["dimension"],
    )


def test_data_then_preset_then_variant():
    quick, paper = result(), result("b", preset="paper", dimension=3)
    stand_in, other = result("c", "maml", "paper", data="digits"), result("d", "maml", "paper")
    assert chosen(quick, stand_in) == {"mlp": quick}  # a paper run on a stand-in hides no quick run on real data
    assert chosen(quick, paper, stand_in) == {"mlp": paper}  # presets never mix
    assert chosen(quick, paper, other) == {"maml": other}  # nor do variants, the least of the preset that was chosen


def test_a_preset_that_fills_more_cells_hides_a_more_serious_one():
    quick = [result(), result("b", "maml")]
    assert chosen(*quick, result("c", preset="paper")) == dict(zip(["mlp", "maml"], quick))


def test_two_results_of_one_cell_are_an_error_that_names_both():
    with pytest.raises(
        UserError, match="^a and b claim one cell of paper/task but differ in config.train.steps: keep one"
    ):
        chosen(result("a"), result("b", steps=6))


def test_of_runs_that_differ_in_seeds_alone_the_one_with_the_most_fills_the_cell(capsys):
    one, three = result("a"), result("b", seeds=3)
    three.config["train"]["placement"] = "in_turn"
    assert chosen(one, three) == chosen(three, one) == {"mlp": three} and not capsys.readouterr().err
    with pytest.raises(UserError, match="but differ in config.train.seeds, config.train.steps: keep one"):
        chosen(one, result("b", seeds=3, steps=6))
    own = dataclasses.replace(three, source=1)
    assert chosen(one, own) == {"mlp": one} and "the earlier folder wins" in capsys.readouterr().err


def test_of_one_cell_the_result_of_the_earlier_folder_is_taken_and_said(capsys):
    own, shipped = result("a", steps=6), dataclasses.replace(result("b"), source=1)
    assert chosen(own, shipped) == {"mlp": own}
    claim = "note: a and b claim one cell of paper/task but differ in config.train.steps: the earlier folder wins"
    assert capsys.readouterr().err.splitlines() == [claim]


def test_an_evaluation_of_given_weights_fills_no_cell():
    given, own = result("a"), result("b", steps=6)
    given.config["weights"] = "0123456789abcdef"
    assert chosen(given, own) == {"mlp": own} and chosen(given) == {}


def test_a_column_has_one_set_of_data(capsys):
    results = [result(folder) for folder in "abc"]
    for each, data in zip(results, ("a part", "all", "a part")):
        each.content["facts"] = {"data": data}
    kept = of_one_data(results, lambda each: each.name, "data")
    assert kept == [results[0], results[2]]
    assert capsys.readouterr().err == "note: left out: b: ('all',) beside ('a part',)\n"
    assert of_one_data(results, lambda each: each.folder, "data") == results


def test_folders_are_searched_in_order(tmp_path):
    for folder, steps, key in (
        ("runs/own", 6, "x"),
        ("runs/same", 5, "y"),
        ("results/same", 5, "y"),
        ("results/other", 7, "z"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "result.json").write_text(json.dumps(result(steps=steps).content | {"config_hash": key}))
    found = load_results([tmp_path / "runs", tmp_path / "results", tmp_path / "missing"])
    assert [(str(one.folder.relative_to(tmp_path)), one.source) for one in found] == [
        ("runs/own", 0),
        ("runs/same", 0),
        ("results/other", 1),
    ]


def test_older_results_tell_neither_overrides_nor_code():
    old = result()
    assert (old.overrides, old.code, old.axes) == ({}, None, {"preset": "quick"})
    new = Result(Path("b"), old.content | {"overrides": {"train.steps": 20}, "code": "ab"})
    assert (new.overrides, new.code) == ({"train.steps": 20}, "ab")


def test_facts_join_what_differs():
    assert facts([result(), result(n=20, seeds=3)], "mse") == {"preset": "quick", "seeds": "1 or 3", "n": "10 or 20"}


def test_seeds_name_the_rows_that_have_another_number_than_most():
    one, three, five = (result(seeds=seeds) for seeds in (1, 3, 5))
    assert (seeds_by_name({"A": one}), seeds_by_name({"A": three, "B": three})) == ("1 seed", "3 seeds")
    assert seeds_by_name({"A": three, "B": one, "C": one, "D": three, "E": one}) == "1 seed (A, D: 3)"
    assert seeds_by_name({"A": five, "B": three, "C": one, "D": three}) == "3 seeds (C: 1; A: 5)"


def test_steps_are_those_of_the_weights_that_are_judged():
    assert (result(steps=2000).steps, result(steps=2000, best_step=900).steps) == ("2000", "900 of 2000")


def test_an_error_is_over_seeds_and_tasks_together():
    # The means of two seeds, 2.6 and 3.4, have the variance 0.32, their average half of it: 0.16 = 0.4^2.
    assert result(seeds=2).metrics["mse"]["sem"] == pytest.approx(0.5)  # 0.3 and 0.4
    assert result(seeds=2).metrics["mse"]["sem_of_tasks"] == 0.3
    assert result().metrics["mse"]["sem"] == 0.3


def test_a_mean_that_is_not_finite_has_no_error():
    one = result(seeds=2)
    one.content["metrics"]["mse"] |= dict(mean=None, sem=None, seeds=[2.6, None])
    assert one.metrics["mse"]["sem"] is None


def test_a_caption_says_what_an_error_is_over():
    assert drawn(facts([result()], "mse")) == "10"
    assert (
        drawn(facts([result(seeds=2)], "mse"))
        == drawn(facts([result(), result("b", seeds=2)], "mse"))
        == "seeds and 10"
    )
