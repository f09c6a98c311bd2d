"""What is shown of the wheel bandit: its tables, findings and figure, from made-up results."""

import jax
import numpy as np

from configs.neural_processes.wheel import RADII
from experiments.harness.evaluation import summarise
from experiments.harness.results import Result
from experiments.neural_processes.wheel import experiment as bandit
from experiments.neural_processes.wheel import tables
from experiments.neural_processes.wheel.figures import run_figure
from experiments.neural_processes.wheel.findings import FINDINGS
from kvq_jax.models import MODELS, Model
from tests.experiments.neural_processes.test_wheel import DELTAS, MeanReward, wheels


def result(model, protocol="code", preset="quick", drop="published", level=2.0, select="last", losses=()) -> Result:
    rng = np.random.default_rng(0)
    metrics = {f"cumulative@{delta}": rng.normal(level, 0.1, (1, 10)) for delta in DELTAS}
    metrics |= {f"simple@{delta}": np.ones((1, 10)) for delta in DELTAS}
    metrics |= {
        f"{policy}/cumulative@{delta}": np.full((1, 10), 100.0) for policy in bandit.POLICIES for delta in DELTAS
    }
    return Result(
        None,
        {
            "name": "neural_processes/wheel",
            "axes": dict(model=model, preset=preset, protocol=protocol, drop=drop),
            "metrics": {f"trained/{name}": summary for name, summary in summarise(metrics).items()},
            "steps": 10,
            "best_step": None,
            "seeds": [0],
            "validation_losses": list(losses),
            "config": {
                "evaluation": dict(deltas=list(DELTAS), rounds=500, seeds=10, wheels="published", last=100),
                "train": {"select": select},
                "task": {
                    "code": dict(name="fixed_wheels", deltas=RADII),
                    "text": dict(name="fresh_wheels", delta=(0.0, 1.0)),
                }[protocol]
                | dict(context=3, targets=2, small_std=0.01, large_std=0.01)
                | dict(drop=0.5 if model in ("lbanp", "cmanp") or drop == "all" else 0.0),
                "model": {"drop_y": 0.5} if model == "tnp_d" else {},
            },
        },
    )


def test_table_7_with_missing_cells():
    assert tables.table7([]) is None
    results = [result("cnp"), result("lbanp", level=1.0), result("cmanp", protocol="text"), result("np", preset="tiny")]
    table = tables.table7(results)
    rows = dict(table.rows)
    assert list(tables.REFERENCES) == list(bandit.POLICIES)
    assert rows["CNP"][2].text() == "4.08 ± 0.29" and rows["CMANP"][0] == "missing" == rows["CMANP"][1].text()
    assert rows["NP"][1].mean is None and rows["EQTNP"][2] == "-"
    assert rows["LBANP"][1].best and not rows["CNP"][1].best and not rows["Uniform"][1].best
    summary = results[0].metrics[f"trained/cumulative@{DELTAS[0]}"]
    values = np.random.default_rng(0).normal(2.0, 0.1, (1, 10))
    np.testing.assert_allclose([rows["CNP"][1].mean, rows["CNP"][1].error], [summary["mean"], values.std()])
    assert "protocol code" in table.caption and "500 rounds" in table.caption
    assert "half of the rewards dropped in training of LBANP." in table.caption
    assert "no rewards dropped" in tables.table7(results[:1]).caption
    assert "of TNP-D." in tables.table7([result("tnp_d")]).caption
    assert table.facts == {"preset": "quick", "seeds": "1", "n": "10"} and "0.7 std" in table.csv().splitlines()[0]
    assert {len(cells) for _, cells in table.rows} == {len(table.columns) - 1}


def test_a_run_of_fewer_plays_stands_in_its_table_and_is_told():
    banp = result("banp", level=1.0)
    banp.config["evaluation"]["seeds"] = 5
    fewer = Result(None, banp.content | {"overrides": {"evaluation.seeds": 5, "evaluation.stages": 20}})
    found = [result("cnp"), result("np"), fewer]
    table = tables.table7(found)
    assert "over 10 (BANP: 5) orders of the published wheels, 500 rounds each, of 1 seed of training." in table.caption
    assert round(dict(table.rows)["BANP"][1].mean) == 1 and tables.changed(fewer) == ""
    assert "over 5 orders of the published wheels" in tables.run_table(fewer).caption


def test_every_reading_has_a_table_of_its_own():
    readings = [("code", "last"), ("code", "best"), ("text", "last")]
    results = [result("cnp", level=3.0 + i, protocol=p, select=s) for i, (p, s) in enumerate(readings)]
    shown = {name: build(results) for name, build in tables.TABLES.items()}
    assert [round(dict(table.rows)["CNP"][1].mean) for table in shown.values() if table] == [3, 4, 5]
    assert shown.pop("cmanp/table7_text_best") is None and len({table.title for table in shown.values()}) == 3
    assert "protocol code, the state of the least validation loss;" in shown["cmanp/table7_best"].caption


def test_rewards_dropped_for_all_models_stand_beside_none_of_the_published():
    results = [result("np"), result("cnp", drop="all"), result("np", drop="all")]
    assert list(tables.chosen_results(results)) == ["np"]
    assert list(tables.chosen_results(results[1:])) == ["cnp", "np"]


def test_findings_say_who_is_below_the_rule_and_what_was_learnt_by_heart():
    learnt = [result("cnp", level=200.0, losses=[[1, 4.0], [2, 2.0], [3, 9.0]]), result("lbanp", losses=[[1, 1.0]])]
    ranked, rule, by_heart = [finding.text for finding in FINDINGS["cmanp/table7_quick"](learnt)]
    assert ranked.endswith("at delta = 0.7 and 0.9: LBANP 2 and 2 and CNP 200 and 200.")
    assert (
        "has 100.0 and 100" in rule and "it at 0.7: LBANP; less at 0.9, by a percent or more: LBANP; within a" in rule
    )
    assert rule.endswith("of it there: none.")
    assert by_heart.startswith("Trained on one batch of wheels in every step, 1 of 2 models") and by_heart.endswith(
        ": CNP 2.0 after 2 steps and 9.0 at the end."
    )
    below_zero = result("np", losses=[[1, -0.5], [2, 0.9]])  # a density has no zero that a ratio could begin at
    *_, by_heart = FINDINGS["cmanp/table7_quick"]([*learnt, below_zero, result("anp", losses=[[1, -0.5], [2, 0.4]])])
    assert "2 of 4 models" in by_heart.text and "NP -0.50 after 1 steps and 0.90 at the end" in by_heart.text
    best = [result("cnp", level=50.0, select="best"), result("lbanp", level=30.0, select="best"), result("np")]
    *_, beside = FINDINGS["cmanp/table7_best_quick"](learnt + best)
    assert beside.text.endswith("1 of 2 models have less regret at 0.7, by more than the joint deviation: CNP.")
    assert len(list(FINDINGS["cmanp/table7_quick"](learnt[1:]))) == 2


def test_the_papers_numbers_stand_beside_runs_of_its_length_alone():
    found = [result("cnp", level=5.0, preset="paper"), result("eqtnp", level=6.0, preset="paper"), result("np")]
    first = next(FINDINGS["cmanp/table7_paper"](found))
    assert "the last state, 10 steps, 10 orders of the published wheels, 500 rounds each), regret" in first.text
    assert first.text.endswith("0.7 and 0.9: CNP 5 and 5 (the paper 4 and 8) and EQTNP 6 and 6.")
    assert "the paper" not in next(FINDINGS["cmanp/table7_quick"](found)).text
    fresh = result("cnp", level=123.0, preset="paper", protocol="text")
    first, _, beside = FINDINGS["cmanp/table7_text_paper"]([*found, fresh])
    assert "protocol text" in first.text and ": CNP 123 and 123 (the paper" in first.text
    assert beside.text.endswith("0 of 1 models have less regret at 0.7, by more than the joint deviation: none.")


def test_the_finding_of_dropped_rewards_needs_both_ways_of_one_model():
    published = [result("cnp", level=123.0, protocol="text"), result("np", protocol="text")]
    dropped = [result("cnp", level=4.0, protocol="text", drop="all")]
    told = lambda results: FINDINGS["cmanp/table7_text_quick"]([result("np"), *results])
    (finding,) = (finding for finding in told(published + dropped) if "half the rewards" in finding.text)
    assert finding.text.endswith("(protocol text, the last state): CNP 4 and 4 in place of 123 and 123.")
    longer = [result("cnp", level=4.0, preset="paper", protocol="text", drop="all")]
    for part in (published, dropped, published[1:] + dropped, published + longer):
        assert not any("half the rewards" in finding.text for finding in told(part))


def test_the_finding_of_losses_without_context(tmp_path):
    """Of those that learn from dropped rewards on fresh wheels; the floor of CNP's head is in its own bound."""
    cnp = result("cnp", level=4.0, protocol="text", drop="all", losses=[[1, 3.0], [2, -1.6]])
    cnp.config["model"]["std_floor"] = 0.1
    found = [cnp, result("cnp", protocol="text", losses=[[2, -9.0]]), result("lbanp", losses=[[2, -9.0]])]
    found.append(result("lbanp", protocol="text", losses=[[2, -7.93]]))
    changed = result("lbanp", level=90.0, protocol="text", losses=[[1, 5.0], [2, 2.0], [3, -0.77]])
    changed.config["model"]["std_floor"] = 0.1
    overrides = {"model.std_floor": 0.1, "train.steps": 10}
    found.append(Result(tmp_path, changed.content | {"overrides": overrides}))
    *_, without, dropping, otherwise = FINDINGS["cmanp/table7_text_quick"](found)
    assert without.text.endswith(
        "LBANP -7.93 after -7.93 (-8.43), CNP with drop=all -1.60 after 3.00 (-1.20) and LBANP with std_floor=0.1 "
        "-0.77 after 2.00 (-1.20). Less than it: CNP with drop=all."
    )
    assert dropping.text.endswith("CNP 4 and 4 in place of 2 and 2.")
    assert otherwise.text.endswith("LBANP with std_floor=0.1 90 and 90 in place of 2 and 2.")


def test_the_table_of_one_run():
    rows = dict(tables.run_table(result("cnp")).rows)
    assert [cell.text() for cell in rows["CNP, paper"]] == ["4.08 ± 0.29", "8.14 ± 0.33"] and rows["Uniform"][
        0
    ].mean == 100
    assert rows["CNP, simple"][0].mean == 1


def test_a_model_added_at_run_time_has_its_row_and_no_number_of_the_paper(monkeypatch):
    monkeypatch.setitem(MODELS, "mean_reward", Model(MeanReward, "Mean reward", "neural_process"))
    found = [result("cnp"), result("mean_reward")]
    rows = dict(tables.table7(found).rows)
    assert rows["Mean reward"][1].known and rows["Mean reward"][2] == rows["Mean reward"][4] == "-"
    assert dict(tables.run_table(found[1]).rows)["Mean reward, paper"] == ["-", "-"]
    assert dict(tables.table7(found[:1]).rows)["Mean reward"][0] == "missing"


def test_the_figure_of_one_run(tmp_path):
    shown = jax.tree.map(np.asarray, wheels(seeds=1))
    run = result("cnp")
    run = Result(tmp_path, run.content)
    np.savez(tmp_path / "examples.npz", **shown._asdict(), **{"trained/prediction": shown.best})
    assert run_figure(run, tmp_path).read_bytes()[1:4] == b"PNG"
