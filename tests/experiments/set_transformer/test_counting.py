"""Counting characters: the law of its sets, likelihood and mode by hand, a `tiny` run, table, figure and findings."""

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from configs.set_transformer import counting as config_file
from experiments import catalogue
from experiments.data.errors import DataError
from experiments.data.image_classes import Split
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.findings import said
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.set_transformer.counting import experiment as counting
from experiments.set_transformer.counting import figures
from experiments.set_transformer.counting.findings import published
from experiments.set_transformer.counting.tables import TABLES
from experiments.set_transformer.operators.tables import operators
from experiments.tasks.counting import Counting
from experiments.tasks.episodes import Images
from kvq_jax.models import IMAGE_SET_NETWORKS
from tests.kvq_jax.nn.drawing import drawn

TASK, CLASSES = Counting(min_size=3, max_size=5), 6
COUNTS = np.array([5, 8, 6, 5, 9, 7])  # images of each class
CLASS_OF = np.repeat(np.arange(CLASSES), COUNTS)


def numbered() -> Images:
    """Images of one pixel that shows their number, from 1 on: 0 is an absent image."""
    ends = np.cumsum(COUNTS)
    member = [np.r_[end - n : end, np.full(max(COUNTS) - n, -1)] for n, end in zip(COUNTS, ends)]
    image = jnp.arange(1, ends[-1] + 1, dtype=jnp.uint8).reshape(-1, 1, 1, 1)
    return Images(image, jnp.asarray(np.stack(member), jnp.int32), True)


@pytest.fixture(scope="module")
def sets():
    """Sets with numbers of images of their own."""
    sample = jax.jit(jax.vmap(TASK.sample, (0, None)))
    return jax.device_get(sample(jax.random.split(jax.random.key(0), 20_000), numbered()))


def test_no_image_is_there_twice_and_the_number_is_that_of_the_characters(sets):
    image, number = sets.x[..., 0, 0, 0], sets.truth
    assert not image[~sets.mask].any() and sets.training
    for own, there, expected in zip(image[:2000], sets.mask, number):
        assert len(set(own[there].tolist())) == there.sum()
        assert len(set(CLASS_OF[own[there] - 1].tolist())) == expected


def test_sizes_numbers_characters_and_images_are_drawn_as_they_should_be(sets):
    image, size, number = sets.x[..., 0, 0, 0], sets.mask.sum(-1), sets.truth
    for n in (3, 4, 5):
        assert (size == n).mean() == pytest.approx(1 / 3, abs=0.02)
        found = np.bincount(number[size == n], minlength=6) / (size == n).sum()
        assert found == pytest.approx(np.r_[0, np.full(n, 1 / n), np.zeros(5 - n)], abs=0.025)
    first = np.bincount(image[:, 0] - 1, minlength=len(CLASS_OF)) / len(image)
    assert first == pytest.approx(1 / CLASSES / COUNTS[CLASS_OF], abs=0.007)
    # Of four images of two characters, the two that are left are of one in half of the sets.
    two = CLASS_OF[image[(size == 4) & (number == 2)][:, 2:4] - 1]
    assert (two[:, 0] == two[:, 1]).mean() == pytest.approx(0.5, abs=0.05)


def test_a_batch_shares_its_number_of_images():

    @jax.jit
    def filled(key, data):
        drawn = TASK.draw(key, data)
        return TASK.fill(drawn, (4, 0), None), TASK.fill(drawn, (5, 0), (4, 0))

    whole, part = filled(jax.random.key(3), numbered())
    assert whole.mask is None and whole.x.shape == (4, 1, 1, 1) and whole.truth == part.truth
    np.testing.assert_array_equal(part.x[:4], whole.x)
    assert part.mask.tolist() == [True] * 4 + [False] and not part.x[4].any()


def test_likelihood_and_mode_are_those_of_poisson():
    rate, number = np.array([0.3, 1.0, 4.2, 7.9]), np.array([1, 3, 4, 7])
    np.testing.assert_allclose(counting.log_likelihood(rate, number), stats.poisson.logpmf(number, rate), rtol=1e-5)
    modes = stats.poisson.pmf(np.arange(20)[:, None], rate + 0.01).argmax(0)
    np.testing.assert_array_equal(counting.is_right(rate + 0.01, modes), 1)
    np.testing.assert_array_equal(counting.is_right(rate, number), [0, 0, 1, 1])


def test_turned_characters_are_further_characters():
    image = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2, 1)
    turned = counting.rotated(Split(image, np.array([[0, 1], [2, -1]], np.int32), ("a", "b")))
    assert turned.image.shape == (12, 2, 2, 1) and len(turned.names) == len(set(turned.names)) == 8
    assert turned.member.tolist()[2:4] == [[3, 4], [5, -1]] and turned.member.tolist()[6] == [9, 10]
    assert turned.image[3, ..., 0].tolist() == [[1, 3], [0, 2]]  # 0 1 / 2 3, turned to the left
    np.testing.assert_array_equal(turned.image[6], image[0, ::-1, ::-1])


def build(arg, **changes):
    config = config_file.get_config(arg)
    config.update_from_flattened_dict(changes)
    return counting.build(config, split_evaluation(config.evaluation)[1], None)


def test_the_loss_is_minus_the_likelihood_and_validation_changes_no_average():
    made = build("model=rff_mean,preset=tiny,rotations=yes")
    assert made.facts["characters"] == {"train": 16, "validation": 3, "test": 3}
    shapes = jax.eval_shape(made.init, jax.random.key(0))
    still = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)  # a rate of log 2
    for split, collections in (("train", {"batch_stats"}), ("validation", set())):
        keys, data = jax.random.split(jax.random.key(1), 8), jax.tree.map(jnp.asarray, made.data[split])
        drawn = jax.jit(jax.vmap(made.sample, (0, None)))(keys, data)
        batch = jax.vmap(lambda one: made.sizes.fill(one, (3, 0), None))(drawn)
        loss, (_, updated) = jax.jit(made.loss)(still, batch, None)
        assert loss == pytest.approx(-stats.poisson.logpmf(batch.truth, np.log(2)).mean(), rel=1e-4)
        assert set(updated) == collections


def test_a_padded_set_has_the_loss_of_its_images_alone():
    made = build("model=rff_mean,preset=tiny")
    one = made.sample(jax.random.key(1), jax.tree.map(jnp.asarray, made.data["validation"]))
    variables, loss = drawn(made.init, jax.random.key(0)), jax.jit(made.loss)
    padded, alone = (made.sizes.fill(one, *size) for size in (((3, 0), (2, 0)), ((2, 0), None)))
    assert loss(variables, padded, None)[0] == pytest.approx(float(loss(variables, alone, None)[0]), rel=1e-4)


@pytest.mark.parametrize(
    "arg, changes, error, message",
    [
        ("preset=tiny", {"task.max_size": 4}, ConfigError, "may have 4 characters, .* has 3 for validation"),
        ("preset=tiny", {"data.size": 0}, ConfigError, "config.data.size: expected int, at least 1"),
        ("preset=quick", {}, DataError, "pass --data_dir"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arg, changes, error, message):
    with pytest.raises(error, match=message):
        build(arg, **changes)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    config = config_file.get_config("model=rff_mean,preset=tiny")
    return launch(config, tmp_path_factory.mktemp("run") / "run", Options(), Console(quiet=True), catalogue.show)


def renamed(result, **axes):
    """The run as if it were of other axes, with the parts of that model."""
    axes = result.axes | axes
    model = result.config["model"] | IMAGE_SET_NETWORKS[axes["model"]].parts
    return Result(result.folder, result.content | {"axes": axes, "config": result.config | {"model": model}})


def test_table_2_and_figure_3_of_tiny_runs(result, tmp_path):
    assert result.metrics["trained/accuracy"]["n"] == 20 and len(result.content["seeds"]) == 2
    induced, sab = (renamed(result, model=model) for model in ("isab4_pma", "sab_pma"))
    rows = dict(TABLES["set_transformer/table2"]([induced, sab]).rows)
    ours, theirs, likelihood = rows["SAB + PMA"]
    assert ours.mean == result.metrics["trained/accuracy"]["mean"] and theirs.text() == "0.6037 ± 0.0075"
    assert likelihood.mean == result.metrics["trained/log_likelihood"]["mean"] < 0
    assert not rows["rFF + Pooling (mean)"][0].known and rows["SAB + PMA (8)"][1].text() == "0.6001 ± 0.0078"
    assert list(rows)[-1] == "ISAB (4) + PMA" and rows["ISAB (4) + PMA"][1] == "(none)"
    assert TABLES["set_transformer/table2"]([]) is None
    assert TABLES["set_transformer/table2"]([renamed(result, op="linear")]) is None
    rows = dict(operators([renamed(sab, op="linear"), sab]).rows)
    assert rows["linear"][1].mean == rows["softmax"][1].mean == result.metrics["trained/accuracy"]["mean"]
    assert not rows["linear"][0].known and not rows["intention"][1].known
    assert (result.folder / "figure.png").stat().st_size > 10_000
    assert figures.figure3([induced, sab, result], tmp_path).stat().st_size > 10_000
    with (tmp_path / "figure3.csv").open() as file:
        rows = list(csv.reader(file))
    own = [row[:2] for row in rows[1:] if "paper" not in row[0]]
    assert own == [["ISAB + PMA", "4"], ["SAB + PMA", ""], ["rFF + Pooling (mean)", ""]]
    assert [row[:3] for row in rows[1:] if "paper" in row[0]] == [
        ["SAB + PMA, the paper", "", "0.6037"],
        ["SAB + Pooling, the paper", "", "0.5659"],
        ["rFF + PMA, the paper", "", "0.4572"],
        ["rFF + Pooling (mean), the paper", "", "0.4382"],
    ]
    with pytest.raises(UserError, match="Figure 3 needs results of set_transformer/counting"):
        figures.figure3([], tmp_path)


def test_networks_of_the_published_width_are_told_beside_the_paper_and_those_that_do_not_count(result):
    """Numbers of the examples, all of one rate: the sets of `tiny` have 2 or 3 images."""
    truth = result.examples["truth"]
    values = stats.poisson.logpmf(truth, truth.mean())

    def measured(model, accuracy, likelihood):
        summaries = {"accuracy": accuracy, "log_likelihood": likelihood}
        metrics = {f"trained/{name}": dict(mean=mean, sem=1e-3, n=40) for name, mean in summaries.items()}
        run = renamed(result, model=model, preset="paper")
        changed = {"metrics": metrics, "overrides": {"train.steps": 20}}
        return dataclasses.replace(run, content=run.content | changed)

    constant = measured("rff_mean", 0.12, values.mean() + stats.sem(values))
    able = measured("sab_pma", 0.59, values.mean() + 3 * stats.sem(values))
    told = list(published([result, constant, able]))
    assert told[0].text == (
        "Counting unique characters (2 seeds; rFF + Pooling (mean), SAB + PMA with train.steps=20), the share of sets "
        "that networks of the published width count right after 20 of 20 steps, the paper's after 200000: "
        "rFF + Pooling (mean) 0.120 (the paper 0.438); SAB + PMA 0.590 (the paper 0.604)."
    )
    assert told[1].text.startswith("rFF + Pooling (mean) has not begun to count")
    assert f"for {values.mean():.3f}." in told[1].text
    assert len(list(published([able]))) == 1 and said(published, [result])[0] == []
