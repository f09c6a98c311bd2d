"""What is shown of meta-regression: its tables, figures and findings, from made-up results."""

import csv
import json

import numpy as np
import pytest

from configs.neural_processes import gp as config_file
from experiments import catalogue
from experiments.harness import drawing
from experiments.harness.errors import UserError
from experiments.harness.results import Result
from experiments.neural_processes import attention_results, likelihoods
from experiments.neural_processes.gp import tables
from experiments.neural_processes.gp.figures import FIGURES
from experiments.neural_processes.gp.findings import FINDINGS
from experiments.neural_processes.paper_numbers import TABLE4, TABLE7
from kvq_jax.models import MODELS, Model, family


def content(model, std="published", preset="quick", protocol="code", rbf=1.0):
    """A result.json as a run would write it, with likelihoods of our choice."""
    config = config_file.get_config(f"model={model},std={std},preset={preset},protocol={protocol}")

    def number(mean):
        return {"mean": mean, "sem": 0.01, "median": mean, "n": 100, "seeds": [mean]}

    metrics = {}
    for kernel, shift in (("rbf", 0), ("matern", -0.4), ("periodic", -3)):
        values = dict(target=rbf + shift, context=2, oracle_marginal=1.5, oracle_joint=1.8)
        values |= {f"gap_{kind}": values[f"oracle_{kind}"] - values["target"] for kind in ("marginal", "joint")}
        metrics |= {f"trained/{kernel}/{name}": number(value) for name, value in values.items()}
    as_dict = json.loads(config.to_json())
    shared = {
        "steps": config.train.steps,
        "validation_losses": [],
        "best_step": None,
        "seeds": [0],
        "parameter_count": 1,
        "config": as_dict,
    }
    return {"name": config.name, "axes": as_dict["axes"], "metrics": metrics} | shared


EXAMPLES = {
    "counts": np.array([1, 3]),
    "x": np.linspace(-2, 2, 9),
    "context_x": np.zeros((3, 3)),
    "context_y": np.zeros((3, 3)),
    "oracle": np.ones((3, 2, 2, 9)),
    "trained/prediction": np.ones((3, 2, 2, 9)),
}


def results(folder, *contents):
    found = []
    for index, made in enumerate(contents):
        (folder / str(index)).mkdir(parents=True)
        np.savez(folder / str(index) / "examples.npz", **EXAMPLES)
        found.append(Result(folder / str(index), made))
    return found


def given(folder):
    return results(
        folder,
        content("tnp_d", rbf=1.2),
        content("cnp", rbf=0.3),
        content("cnp", std="same", rbf=1.207),
        content("tnp_nd", rbf=1.45),
        content("cmanp", preset="tiny"),
        content("lbanp", protocol="text"),
    )


def test_table4_shows_the_paper_the_oracle_and_what_is_missing(tmp_path):
    table = tables.TABLES["cmanp/table4"](given(tmp_path))
    rows = {name: [cell if isinstance(cell, str) else cell.text() for cell in cells] for name, cells in table.rows}
    best = {name for name, cells in table.rows if cells[1].best}
    assert list(rows)[:8] == ["CNP", "CANP", "NP", "ANP", "BNP", "BANP", "TNP-D", "EQTNP"]
    assert rows["TNP-D"][1:4] == ["1.200 ± 0.010", "1.39 ± 0.00", "0.300 ± 0.010"] and rows["TNP-D"][5] == "0.95 ± 0.01"
    assert rows["CNP, same std"][1:3] == ["1.207 ± 0.010", "-"]
    assert rows["TNP-ND"][3] == "0.350 ± 0.010" and rows["oracle, joint"][1] == "1.800 ± 0.010"
    assert rows["oracle, marginal"][1] == "1.500 ± 0.010"
    assert best == {"TNP-D", "CNP, same std", "TNP-ND"}
    assert set(rows["CMANP"]) == {"missing"} | {"1.24 ± 0.01", "0.80 ± 0.01"}, "another preset is not mixed in"
    assert "missing" in rows["LBANP"], "nor another protocol"
    assert "Preset quick" in table.caption and "over 100 functions" in table.caption and "U(0.1, 0.6)" in table.caption
    assert tables.TABLES["cmanp/table4"]([]) is None and table.csv().startswith("model,")


def test_a_run_is_beside_the_paper_in_its_protocol_and_form_alone():
    def beside(overrides=(), **axes):
        run = content("cnp", **axes) | {"overrides": dict(overrides)}
        return [cells[-1] for _, cells in tables.run_table(Result(None, run)).rows]

    rbf, matern, periodic = beside()
    assert [rbf.text(), matern.text(), periodic] == ["0.26 ± 0.02", "0.04 ± 0.02", "-"]
    others = [dict(protocol="text"), dict(protocol="slides"), dict(std="same"), dict(overrides={"train.seed": 1})]
    assert [beside(**other) for other in others] == [["-"] * 3] * 4


@pytest.mark.parametrize("protocol, there", [("code", True), ("text", False), ("slides", False)])
def test_the_paper_is_beside_its_own_protocol_alone(protocol, there, tmp_path):
    found = results(tmp_path, content("cnp", protocol=protocol, rbf=0.1), content("lbanp", protocol=protocol))
    table = tables.TABLES["cmanp/table4"](found)
    place = table.columns.index("RBF, paper") - 1
    assert any(cells[place] != "-" for _, cells in table.rows) == there
    with FIGURES["cmanp/gp_likelihoods"](found, tmp_path).with_suffix(".csv").open() as file:
        assert any(row["paper"] for row in csv.DictReader(file)) == there
    assert any("The paper trains" in said.text for said in FINDINGS["cmanp/table4_quick"](found)) == there


def test_figures_draw_what_is_there(tmp_path):
    found = given(tmp_path)
    for name, columns in (("gp_functions_rbf", 6), ("gp_functions_periodic", 6), ("gp_likelihoods", 9)):
        draw = FIGURES[f"cmanp/{name}"]
        assert draw(found, tmp_path / "figures").read_bytes()[1:4] == b"PNG"
        with (tmp_path / "figures" / f"{name}.csv").open() as file:
            rows = list(csv.reader(file))
        assert len(rows[0]) == columns and {"cnp", "tnp_d", "tnp_nd"} <= {cell for row in rows for cell in row}
        with pytest.raises(UserError, match="there are none"):
            draw([], tmp_path)


def test_panels_of_other_functions_are_told(tmp_path, monkeypatch):
    """Runs of other code may have drawn their examples otherwise."""
    heads, save = [], drawing.save
    monkeypatch.setattr(
        drawing, "save", lambda figure, *rest: heads.append(figure.get_suptitle()) or save(figure, *rest)
    )
    found = given(tmp_path)
    FIGURES["cmanp/gp_functions_rbf"](found, tmp_path)
    found[1].examples["oracle"] = found[1].examples["oracle"] + 1
    FIGURES["cmanp/gp_functions_rbf"](found, tmp_path)
    assert heads[0].startswith("One function of the RBF kernel")
    assert heads[1].startswith("Functions, not the same in all panels, of the RBF kernel")


def test_likelihoods_with_both_stds_are_drawn(tmp_path):
    with FIGURES["cmanp/gp_likelihoods"](given(tmp_path), tmp_path).with_suffix(".csv").open() as file:
        found = {row["model"]: row for row in csv.DictReader(file) if row["kernel"] == "rbf"}
    ours = [[found[model][f"ours, {std} std"] for std in ("published", "same")] for model in ("cnp", "tnp_d")]
    assert ours == [["0.3", "1.207"], ["1.2", ""]]


def test_functions_of_anp_with_each_attention(tmp_path):
    kinds = ("multihead", "laplace")
    cells = [content("anp", protocol=protocol, rbf=rbf) for protocol in ("code", "slides") for rbf in (0.5, -0.25)]
    for cell, kind in zip(cells, kinds * 2):
        cell |= dict(name=attention_results.CONFIG, axes=cell["axes"] | dict(data="gp", attention=kind, op="own"))
    found = results(tmp_path, *cells)
    table = tables.TABLES["anp/functions"](found)
    assert [name for name, _ in table.rows] == ["laplace", "multihead", "oracle"] and "protocol slides" in table.caption
    assert [cells[0].mean for _, cells in table.rows] == [-0.25, 0.5, 1.5]
    numbers, words = FINDINGS["anp/functions"](found)
    assert "RBF: multihead 0.500 ± 0.010 and laplace -0.250 ± 0.010; periodic" in numbers.text
    assert not words.holds, "no uniform attention is there to be the worst"
    assert tables.TABLES["anp/functions"](given(tmp_path / "none")) is None
    draw = FIGURES["anp/functions_rbf"]
    path = draw(found, tmp_path / "figures")
    assert path.name == "functions_rbf.png" and path.read_bytes()[1:4] == b"PNG"
    with path.with_suffix(".csv").open() as file:
        drawn = [row["model"] for row in csv.DictReader(file)]
    assert drawn == ["laplace"] * 9 + ["multihead"] * 9, "in the order of the slides, and of one protocol"
    assert [cells[-1] for _, cells in tables.run_table(found[0]).rows] == ["-"] * 3, "the paper has another attention"
    with pytest.raises(UserError, match="anp/functions_rbf needs results of neural_processes/attention with data=gp"):
        draw(given(tmp_path / "other"), tmp_path)


def test_the_catalogue_has_them():
    assert catalogue.find("tables", "cmanp/table4") is tables.TABLES["cmanp/table4"]
    assert "cmanp/gp_functions_rbf" in catalogue.names("figures")


def test_rows_say_which_likelihood_judges_a_model_and_whether_its_std_has_a_floor():
    models = family("neural_process")
    assert [model for model in models if likelihoods.kind(model) == "joint"] == [
        "tnp_a",
        "tnp_nd",
        "lbanp_nd",
        "cmanp_and",
    ]
    floored = ["cnp", "canp", "np", "anp", "bnp", "banp", "intention_anp"]
    assert [model for model in models if tables.has_floor(model)] == floored


def test_printed_numbers_are_of_known_models():
    models = family("neural_process")
    assert set(TABLE4) <= set(models) and set(TABLE7) - {"uniform"} <= set(models)


def test_a_model_added_at_run_time_has_its_row_and_no_number_of_the_paper(monkeypatch, tmp_path):
    monkeypatch.setitem(MODELS, "constant", Model(MODELS["tnp_d"].cls, "Constant", "neural_process"))
    ours = content("tnp_d", rbf=0.5)
    ours["axes"] = ours["axes"] | {"model": "constant"}
    found = [*given(tmp_path), Result(tmp_path / "0", ours)]
    rows = dict(tables.TABLES["cmanp/table4"](found).rows)
    assert rows["Constant"][1].text() == "0.500 ± 0.010" and rows["Constant"][2] == rows["Constant"][5] == "-"
    assert [cells[-1] for _, cells in tables.run_table(found[-1]).rows] == ["-", "-", "-"]
    assert FIGURES["cmanp/gp_likelihoods"](found, tmp_path).exists()
    del found[-1]
    assert dict(tables.TABLES["cmanp/table4"](found).rows)["Constant"][0] == "missing"


def test_published_runs_are_told_beside_the_paper_where_it_has_them(tmp_path):
    ours = [content("tnp_d", preset="paper", rbf=1.36), content("intention_anp", preset="paper", rbf=0.9)]
    runs, beside = FINDINGS["cmanp/table4"](results(tmp_path, *ours))
    assert runs.text.endswith(
        "each target alone, RBF and Matern 5/2, over 100 functions, 1 seed: TNP-D 1.360 ± 0.010 and 0.960 ± 0.010 "
        "(the paper 1.39 and 0.95); Intention ANP 0.900 ± 0.010 and 0.500 ± 0.010."
    )
    assert beside.text.startswith("2 of 2") and beside.text.endswith("-0.030 to +0.010.")


def test_published_runs_have_a_sentence_for_each_likelihood_best_first(tmp_path):
    ours = [content(model, preset="paper", rbf=rbf) for model, rbf in (("cnp", 0.2), ("tnp_nd", 1.4), ("eqtnp", 1.3))]
    alone, jointly, *_ = FINDINGS["cmanp/table4"](results(tmp_path, *ours))
    assert "each target alone" in alone.text and 0 < alone.text.index("EQTNP 1.300") < alone.text.index("CNP 0.200")
    assert "all targets jointly" in jointly.text and "TNP-ND 1.400" in jointly.text
    assert "TNP-ND" not in alone.text and "CNP" not in jointly.text


def test_models_of_intention_are_told_beside_those_that_they_are_made_from(tmp_path):
    ours = [content("anp", preset="paper", rbf=0.8), content("intention_anp", preset="paper", rbf=0.75)]
    *_, said = FINDINGS["cmanp/table4"](results(tmp_path / "both", *ours))
    assert said.text == (
        "The context read by Intention, each target alone, 1 seed: Intention ANP less ANP, from which it differs in op "
        "and self_attention, -0.050 on RBF, -0.050 on Matern 5/2 and -0.050 on periodic."
    )
    for said in FINDINGS["cmanp/table4"](results(tmp_path / "one", *ours[1:])):
        assert "differs" not in said.text
    ours += [content(model, std="same", preset="paper", rbf=rbf) for model, rbf in (("anp", 0.9), ("intention_anp", 1))]
    ours.append(content("tnp_d", preset="paper", rbf=1.2))  # what floors cost is told beside it
    (said,) = (each for each in FINDINGS["cmanp/table4"](results(tmp_path / "same", *ours)) if "differs" in each.text)
    same = "Intention ANP, same std less ANP, same std, from which it differs in op and self_attention, +0.100 on RBF"
    assert f"; {same}" in said.text


def test_what_the_floor_costs(tmp_path):
    ours = [content("tnp_d", preset="paper", rbf=1.2), content("cnp", preset="paper", rbf=0.2)]
    for said in FINDINGS["cmanp/table4"](results(tmp_path / "published", *ours)):
        assert "floor" not in said.text
    both = results(tmp_path / "both", *ours, content("cnp", std="same", preset="paper", rbf=0.45))
    *_, said, elsewhere = FINDINGS["cmanp/table4"](both)
    assert (
        "CNP 0.200 ± 0.010 with its floor of 0.1 and 0.450 ± 0.010 without, 25% of what it lacks to TNP-D" in said.text
    )
    assert elsewhere.text.endswith("without the floor less with it: CNP +0.250 on Matern 5/2 and +0.250 on periodic.")


def test_a_run_with_one_thing_changed_has_a_row_of_its_own(tmp_path):
    few = content("lbanp", preset="paper", rbf=1.25) | {"overrides": {"model.num_latents": 8}}
    ours = results(tmp_path / "one", content("tnp_d", preset="paper", rbf=1.36), few)
    rows = dict(tables.TABLES["cmanp/table4"](ours).rows)
    assert rows["LBANP, 8 latents"][1].text() == "1.250 ± 0.010" and rows["LBANP, 8 latents"][2] == "-"
    assert rows["LBANP"][0] == "missing" and list(rows).index("LBANP, 8 latents") < list(rows).index("TNP-A")
    assert FIGURES["cmanp/gp_likelihoods"](ours, tmp_path).exists()
    *_, said = FINDINGS["cmanp/table4"](ours)
    assert said.text.endswith("RBF: LBANP, 8 latents, 1.250 ± 0.010 (the paper 1.27).")
    both = [*ours, *results(tmp_path / "two", content("lbanp", preset="paper", rbf=0.9))]
    *_, said = FINDINGS["cmanp/table4"](both)
    assert said.text.endswith(
        "LBANP, 8 latents, 1.250 ± 0.010 (as published, with 128 latents, 0.900 ± 0.010 and the paper 1.27)."
    )
    other = few | {"overrides": {"train.seed": 1, "optimizer.clip_norm": 10.0, "train.seeds": 1}}
    rows = dict(tables.TABLES["cmanp/table4"](results(tmp_path / "three", other)).rows)
    assert rows["LBANP, gradient clipped at 10, seed 1"][1].text() == "1.250 ± 0.010"
    both = content("cnp", std="same", preset="paper", rbf=0.45) | {"overrides": {"train.seed": 1}}
    rows = dict(tables.TABLES["cmanp/table4"](results(tmp_path / "four", both)).rows)
    assert rows["CNP, same std, seed 1"][1].text() == "0.450 ± 0.010" and rows["CNP, same std"][0] == "missing"


def test_a_run_far_from_the_paper_is_told_with_the_rise_of_its_loss(tmp_path):
    far = content("lbanp", preset="paper", rbf=0.9)
    falling = far | {"validation_losses": [[1, 0.5], [2, 0.1]]}
    *_, said = FINDINGS["cmanp/table4"](results(tmp_path / "falling", falling))
    assert said.text == "Farther from the paper: LBANP, -0.370 on RBF and -0.350 on Matern 5/2."
    rising = far | {"validation_losses": [[1, 0.2], [2, -0.3], [3, 0.5], [4, 0.4], [5, -0.4]]}
    *_, said = FINDINGS["cmanp/table4"](results(tmp_path / "rising", rising))
    assert said.text.endswith("; its validation loss went from -0.300 after 2 steps to 0.500 after 3.")
    near = results(tmp_path / "near", content("lbanp", preset="paper", rbf=1.25) | {"validation_losses": [[1, 1.0]]})
    assert not any("Farther" in said.text for said in FINDINGS["cmanp/table4"](near))
