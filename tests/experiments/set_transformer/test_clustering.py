"""Amortised clustering: a run at preset tiny with its metrics of the host, Table 3 and Figure 4."""

import copy
import csv
import dataclasses

import jax
import numpy as np
import pytest
from rich.console import Console

from configs.set_transformer import clustering as config_file
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.findings import said
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.set_transformer.clustering import experiment as clustering
from experiments.set_transformer.clustering import figures, host
from experiments.set_transformer.clustering.findings import published
from experiments.set_transformer.clustering.tables import TABLES, run_table
from kvq_jax.models.mixture import Mixture, log_likelihood
from tests.kvq_jax.nn.drawing import drawn


def build(arg, **model):
    config = config_file.get_config(arg)
    config.model.update(model)
    return clustering.build(config, split_evaluation(config.evaluation)[1], None)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    config = config_file.get_config("model=rff_pma,preset=tiny")
    return launch(config, tmp_path_factory.mktemp("run") / "run", Options(), Console(quiet=True))


def test_metrics_of_a_tiny_run(result):
    found = {name.removeprefix("trained/"): summary for name, summary in result.metrics.items()}
    assert set(found) == {*("ll0", "ll1", "ari0", "ari1", "ll_oracle", "ari_oracle"), *("ll_em", "ari_em", "ms_em")}
    assert {found[name]["n"] for name in ("ll0", "ari0", "ari_oracle")} == {6} and found["ll_em"]["n"] == 2
    assert len(found["ll0"]["seeds"]) == 2 and len(found["ll_em"]["seeds"]) == 1
    assert found["ll0"]["mean"] < found["ll1"]["mean"] and found["ll0"]["mean"] < found["ll_oracle"]["mean"]
    assert found["ari_oracle"]["mean"] > 0.5 and found["ll_oracle"]["seeds"][0] == found["ll_oracle"]["seeds"][1]
    assert found["ms_em"]["mean"] > 0


def test_the_loss_is_minus_the_likelihood_under_what_is_predicted():
    made = build("model=rff_mean,preset=tiny")
    shapes = jax.eval_shape(made.init, jax.random.key(0))
    still = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)  # all components at 0
    drawn = jax.vmap(lambda key: made.sample(key, None))(jax.random.split(jax.random.key(1), 4))
    batch = jax.vmap(lambda draw: made.sizes.fill(draw, (50, 0), (30, 0)))(drawn)
    alone = Mixture(np.zeros(1, np.float32), np.zeros((1, 2), np.float32), np.full((1, 2), np.log(2), np.float32))
    expected = -np.mean([log_likelihood(alone, x[:30]) for x in np.asarray(batch.x)])
    assert made.loss(still, batch, None)[0] == pytest.approx(expected, rel=1e-4)


def test_a_padded_set_has_the_loss_of_its_points_alone():
    made = build("model=rff_mean,preset=tiny")
    one = made.sample(jax.random.key(1), None)
    variables, loss = drawn(made.init, jax.random.key(0)), jax.jit(made.loss)
    padded, alone = (made.sizes.fill(one, *size) for size in (((50, 0), (30, 0)), ((30, 0), None)))
    assert loss(variables, padded, None)[0] == pytest.approx(float(loss(variables, alone, None)[0]), rel=1e-4)


def test_rand_index_and_em_of_points_that_are_there():
    truth = np.array([[0, 0, 1, 1, -1], [0, 1, 0, 1, 0]])
    found = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
    index = host.rand_index(truth, found)
    assert index.shape == (2,) and index[0] == 1 and index[1] < 0.2
    rng = np.random.default_rng(0)
    component = rng.integers(0, 2, (3, 60))
    x = rng.normal(size=(3, 60, 2)) * 0.1 + 4 * component[..., None]
    x[:, 50:], component[:, 50:] = 100, host.ABSENT
    metrics = host.em_metrics(x, component, clusters=np.array([2, 2, 2]), starts=2)
    assert all(values.shape == (1, 3) for values in metrics.values())
    np.testing.assert_array_equal(metrics["ari_em"], 1)
    # The entropy of two far clusters: log 2, and log(2 pi e 0.1^2) of each.
    np.testing.assert_allclose(metrics["ll_em"].mean(), -np.log(2) - np.log(2 * np.pi * np.e * 0.01), atol=0.25)


def test_tables_and_figures_of_a_tiny_run(result, tmp_path):
    rows = dict(TABLES["set_transformer/table3"]([result]).rows)
    assert rows["rFF + PMA"][0].known and rows["rFF + PMA"][1].text() == "-1.6680 ± 0.0040"
    assert not rows["SAB + PMA"][0].known and rows["SAB + PMA"][3].text() == "-1.4619 ± 0.0048"
    assert rows["oracle (the true mixture)"][1].text() == "-1.4726" and rows["EM, scikit-learn"][0].known
    assert TABLES["set_transformer/large"]([result]) is None and TABLES["set_transformer/table3"]([]) is None
    table = run_table(result)
    assert len(table.rows) == 3 and "2 of the sets" in table.caption
    path = figures.run_figure(result, tmp_path)
    assert path.stat().st_size > 10_000 and len(drawn_rows(path)) == 4 * 4
    with pytest.raises(UserError, match="set_transformer/clustering; there are none"):
        figures.FIGURES["set_transformer/figure4"]([], tmp_path)


def drawn_rows(path):
    with path.with_suffix(".csv").open() as file:
        return list(csv.DictReader(file))


def test_figure_4_has_the_networks_of_the_paper_on_the_same_sets(result, tmp_path):
    """The likelihoods of a network are those of its own prediction: here that of another is the true mixture."""
    draw = figures.FIGURES["set_transformer/figure4"]
    as_model = lambda model: result.content | {"axes": result.axes | {"model": model}}
    arrays = result.examples
    true = arrays | {"trained/prediction": arrays["truth"]}
    other = Result(tmp_path / "other", as_model("isab16_pma"))
    other.folder.mkdir()
    np.savez(other.folder / "examples.npz", **true)
    rows = drawn_rows(draw([other, Result(result.folder, as_model("deep_sets")), result], tmp_path))
    names = ["oracle", "rFF + PMA", "ISAB (16) + PMA", "EM, scikit-learn"]
    assert [row["mixture"] for row in rows] == 4 * names
    found = {name: [row["log_likelihood"] for row in rows if row["mixture"] == name] for name in names}
    assert found["oracle"] == found["ISAB (16) + PMA"] != found["rFF + PMA"]
    np.savez(other.folder / "examples.npz", **true | {"x": arrays["x"] + 1})
    with pytest.raises(UserError, match="Figure 4 has one test set in a line"):
        draw([Result(other.folder, other.content), result], tmp_path)
    rows = drawn_rows(draw([Result(result.folder, as_model("deep_sets"))], tmp_path))
    assert [row["mixture"] for row in rows[:3]] == ["oracle", "DeepSets", "EM, scikit-learn"]


def test_published_runs_are_told_beside_the_paper(result):
    content = copy.deepcopy(result.content)
    content["axes"]["preset"] = "paper"
    numbers = {"ll0": (-1.70, 0.02), "ll1": (-1.60, 0.02), "ll_oracle": (-1.48, 0.01)}  # rFF + PMA: -1.668 and -1.5409
    for name, (mean, sem) in numbers.items():
        content["metrics"][f"trained/{name}"] = dict(mean=mean, sem=sem, median=mean, n=6, seeds=[mean])
    told = list(published([result, dataclasses.replace(result, content=content)]))
    assert "rFF + PMA -1.700 and -1.600 (the paper -1.668 and -1.541). 1 of these 2 numbers" in told[0].text
    assert told[2].holds and "-1.4800 ± 0.0100" in told[2].text
    content["metrics"]["trained/ll_oracle"]["mean"] = -1.51  # nearly four errors away
    assert not list(published([dataclasses.replace(result, content=content)]))[2].holds
    assert said(published, [result])[0] == []


def test_what_differs_from_the_paper_is_told_with_how_far_it_moves_by_chance(result):
    content = copy.deepcopy(result.content)
    content |= {"axes": content["axes"] | {"preset": "paper"}, "validation_losses": [[10, 9.0], [15, 1.7], [20, 1.8]]}
    for name, mean in (("ll0", -1.67), ("ll1", -1.60)):  # rFF + PMA: -1.668 and -1.5409
        content["metrics"][f"trained/{name}"] = dict(mean=mean, sem=0.01, median=mean, n=6, seeds=[mean])
    told = "by more: rFF + PMA LL1 by -0.059 ({})."

    def findings():
        return list(published([dataclasses.replace(result, content=content)]))

    assert told.format("its validation loss after 14 steps: 1.700 to 1.800") in findings()[1].text
    content["metrics"]["trained/ll1"]["seeds"] = [-1.61, -1.59]
    assert told.format("2 seeds: -1.610 to -1.590") in findings()[1].text
    content["metrics"]["trained/ll1"] |= dict(mean=-1.541, seeds=[-1.541])
    assert len(findings()) == 2  # nothing differs


def test_the_released_protocol_and_other_kernels_are_told_beside_the_table(result):
    printed, coded, glorot = (copy.deepcopy(result.content) for _ in range(3))
    coded["axes"]["protocol"] = "code"
    glorot["config"]["model"]["kernel_init"] = "glorot_uniform"
    for content, mean in ((printed, -1.7), (coded, -1.6), (glorot, -1.5)):
        content["axes"]["preset"] = "paper"
        for name in ("ll0", "ll1"):
            content["metrics"][f"trained/{name}"] = dict(mean=mean, sem=0.01, median=mean, n=6, seeds=[mean])
    runs = [dataclasses.replace(result, content=content) for content in (glorot, coded, printed)]
    texts = [finding.text for finding in published(runs)]
    assert "rFF + PMA -1.700 and -1.700 (the paper" in texts[0]
    for start, end in (
        ("By the protocol of the released code", "rFF + PMA has -1.600 and -1.600, else -1.700 and -1.700."),
        (
            "From kernels by glorot_uniform",
            "has -1.500 and -1.500, else -1.700 and -1.700; the paper has -1.668 and -1.541.",
        ),
    ):
        assert [text.startswith(start) and text.endswith(end) for text in texts].count(True) == 1
    assert len(list(published(runs[2:]))) == len(texts) - 2


def test_what_a_command_line_changed_is_told(result):
    content = copy.deepcopy(result.content)
    content |= {"overrides": {"optimizer.clip_norm": 50.0}, "axes": content["axes"] | {"preset": "paper"}}
    changed = dataclasses.replace(result, content=content)
    told = "; rFF + PMA with optimizer.clip_norm=50.0"
    assert told in next(published([changed])).text and told in run_table(changed).caption
    assert "clip_norm" not in run_table(result).caption


def test_both_weighings_of_a_dot_product_are_told_once_both_are_there(result):
    contents = []
    for model, mean in (("rff_dotprod", -2.08), ("rff_attsets", -1.86)):
        content = copy.deepcopy(result.content)
        content["axes"] |= dict(preset="paper", model=model)
        for name in ("ll0", "ll1"):
            content["metrics"][f"trained/{name}"] = dict(mean=mean, sem=0.01, median=mean, n=6, seeds=[mean])
        contents.append(dataclasses.replace(result, content=content))
    assert len(list(published(contents[:1]))) == 3
    text = list(published(contents))[2].text
    assert "(rFF + Dotprod) it has -2.080" in text and "(rFF + AttSets), -1.860" in text and "paper has -1.855" in text


def test_numbers_of_clusters_that_vary_have_a_table_of_their_own(result):
    config = result.config | {"task": result.config["task"] | {"min_clusters": 2}}
    content = result.content | {"name": "set_transformer/clusters", "config": config}
    other = Result(result.folder, content | {"axes": result.axes | {"size": "varying"}})
    table = TABLES["set_transformer/clusters"]([result, other])
    assert "2 to 4 clusters, 20 to 50 points" in table.caption
    assert dict(table.rows)["rFF + PMA"][1] == dict(table.rows)["oracle (the true mixture)"][1] == "(none)"
    assert TABLES["set_transformer/table3"]([other]) is None and run_table(other).caption == table.caption.replace(
        "; in bold the best of each column and those within the joint error of it", ""
    )


def test_protocols():
    paper, code = (config_file.get_config(f"model=isab32_pma,protocol={p},preset=paper") for p in ("paper", "code"))
    assert (paper.task.min_size, paper.task.max_size, paper.optimizer.decay_begin) == (100, 500, 35_000)
    assert (code.task.min_size, code.task.max_size, code.optimizer.decay_begin) == (300, 599, 25_000)
    assert (paper.model.out_features, code.model.out_features) == (5, 4)
    assert (paper.model.decoder_layers, code.model.decoder_layers) == (1, 2)


@pytest.mark.parametrize(
    "model, message",
    [(dict(num_outputs=3), "num_outputs: 3 of 4 clusters"), (dict(out_features=7), "7 numbers for a component of 2")],
)
def test_what_describes_no_mixture_is_refused(model, message):
    with pytest.raises(ConfigError, match=message):
        build("preset=tiny", **model)
