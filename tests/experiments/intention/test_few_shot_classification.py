"""Few-shot classification: its episodes, runs at preset tiny, the paper's widths, and Tables 1 and 2 and Figure 14."""

import csv
import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from configs.intention import few_shot_classification as config_file
from experiments import catalogue
from experiments.data.image_classes import SPLITS, ImageClasses, Split
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.results import Result
from experiments.harness.step import make_init, make_step
from experiments.intention.few_shot_classification import experiment as few_shot_classification
from experiments.intention.few_shot_classification import findings, tables
from experiments.intention.few_shot_classification.experiment import accuracy
from experiments.intention.few_shot_classification.figures import figure14
from experiments.tasks.episodes import Episodes, Images
from scripts import sweep
from tests.kvq_jax.nn.drawing import drawn

COUNTS = (7, 5, 9, 5, 6)  # images of each class


def numbered_images(training=False):
    """Images of one pixel that shows their number, and classes of different sizes."""
    ends = np.cumsum(COUNTS)
    member = np.full((len(COUNTS), max(COUNTS)), -1)
    for row, (end, count) in enumerate(zip(ends, COUNTS)):
        member[row, :count] = range(end - count, end)
    return Images(jnp.arange(ends[-1], dtype=jnp.uint8).reshape(-1, 1, 1, 1), jnp.asarray(member), training)


CLASS_OF = np.repeat(range(len(COUNTS)), COUNTS)


@functools.cache
def sampler(way, shot, query):
    return jax.jit(Episodes(way, shot, query).sample)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.sampled_from([(2, 1, 1), (3, 2, 3), (5, 1, 4), (5, 4, 1)]))
def test_no_image_is_in_context_and_target_and_labels_are_a_permutation(seed, sizes):
    way, shot, query = sizes
    episode = sampler(*sizes)(jax.random.key(seed), numbered_images())
    context, target = (np.asarray(image).ravel() for image in (episode.context_image, episode.target_image))
    assert len({*context.tolist(), *target.tolist()}) == way * (shot + query)  # each image once
    classes = {}
    for images, labels, count in ((context, episode.context_label, shot), (target, episode.target_label, query)):
        assert labels.shape == (way * count, way) and (labels.sum(0) == count).all() and (labels.sum(1) == 1).all()
        for image, label in zip(images, labels.argmax(-1).tolist()):
            classes.setdefault(label, set()).add(CLASS_OF[image])
    assert sorted(classes) == list(range(way))
    assert all(len(found) == 1 for found in classes.values()) and len(set.union(*classes.values())) == way


def test_every_class_gets_every_label_and_every_image_is_drawn():
    keys = jax.random.split(jax.random.key(0), 4000)
    numbers = np.asarray(jax.jit(jax.vmap(lambda key: Episodes(3, 2, 2).draw(key, numbered_images().member)))(keys))
    classes = CLASS_OF[numbers[:, :, 0]]
    for label in range(3):
        assert np.bincount(classes[:, label]) / len(keys) == pytest.approx(np.full(5, 0.2), abs=0.03)
    for column in (numbers[:, :, :2], numbers[:, :, 2:]):
        often = np.bincount(column.ravel(), minlength=len(CLASS_OF)) / column.size
        assert often == pytest.approx(0.2 / np.array(COUNTS)[CLASS_OF], abs=0.006)


def test_accuracy_by_hand():
    scores, label = jnp.array([[0.1, 2], [3, 1], [0, 1]]), jax.nn.one_hot(jnp.array([1, 1, 1]), 2)
    assert accuracy(scores, label) == pytest.approx(2 / 3)


ONE_BLOCK = {"encoder.features": (8,), "data.size": 8}  # quick to compile


def build(arg="preset=tiny", **changes):
    config = config_file.get_config(arg)
    config.update_from_flattened_dict(changes)
    return few_shot_classification.build(config, split_evaluation(config.evaluation)[1], None), config


def test_running_averages_flow_through_training_and_judge_each_image_by_itself():
    experiment, config = build("model=prototypes,preset=tiny", **ONE_BLOCK | {"encoder.statistics": "running"})
    optimizer = build_optimizer(OptimizerSettings(**config.optimizer), 20)
    state = drawn(make_init(experiment, optimizer), jnp.uint32(0))
    after, _ = jax.jit(make_step(experiment, optimizer, 2))(state, experiment.data["train"])
    before, moved = (one.collections["batch_stats"]["encoder"]["norm_0"]["mean"] for one in (state, after))
    assert not before.any() and np.abs(moved).max() > 1e-4
    task = Episodes(3, 2, 3)
    batch = jax.eval_shape(task.sample, jax.random.key(0), experiment.data["validation"])
    _, (_, collections) = jax.eval_shape(experiment.loss, after.variables, batch, jax.random.key(0))
    assert collections == {}  # a validation changes nothing


def noise(section, task, data_dir):
    """An archive of noise in the shape of mini-ImageNet."""
    rng = np.random.default_rng(0)
    member = np.arange(100, dtype=np.int32).reshape(5, 20)
    image = rng.integers(0, 256, (100, section.size, section.size, 3), np.uint8)
    return ImageClasses("noise", *(Split(image, member, tuple("abcde")) for _ in SPLITS))


CONV4, RESNET12 = 112_832, 12_424_320
HEADS = {
    ("intention", "conv4"): CONV4 + 1601 * 8192 + 1,
    ("attention", "conv4"): CONV4
    + (1601 + 6 + 3 * 513) * 512
    + (3 * 513 + 2561) * 2560
    + (2561 + 2 * 513) * 512
    + 513 * 5,
    ("neural_process", "conv4"): CONV4 + 1601 * 2048 + (6 * 2048 + 1) * 1024 + 1025 * 5,
    ("prototypes", "conv4"): CONV4,
    ("maml", "conv4"): 28_768 + 801 * 5,  # 32 filters, as its authors have on mini-ImageNet
    ("intention", "resnet12"): RESNET12 + 16_001 * 8192 + 1,
    ("intention", "resnet12,kernel=gaussian"): RESNET12 + 16_001 * 32 + 1,
}


@pytest.mark.parametrize("model, encoder", HEADS)
def test_a_step_of_the_paper_preset_at_full_width_fits_together(model, encoder, monkeypatch):
    """Shapes and numbers of parameters: eight episodes of 100 images of 84 x 84 pixels are too many to compute."""
    monkeypatch.setattr(few_shot_classification, "_load", noise)
    experiment, config = build(f"model={model},encoder={encoder},preset=paper")
    optimizer = build_optimizer(OptimizerSettings(**config.optimizer), config.train.steps)
    state = jax.eval_shape(make_init(experiment, optimizer), jnp.uint32(0))
    after, metrics = jax.eval_shape(
        make_step(experiment, optimizer, config.train.batch_size), state, experiment.data["train"]
    )
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state) and metrics["loss"].shape == ()
    assert sum(leaf.size for leaf in jax.tree.leaves(state.params)) == HEADS[model, encoder]


@pytest.mark.parametrize(
    "arg, changes, message",
    [
        ("preset=tiny", {"task.way": 4}, "config.task.way: an episode has 4 classes, .* has 3 for validation"),
        ("preset=tiny", {"task.shot": 0}, "config.task.shot: expected int, at least 1"),
        ("preset=tiny", {"encoder.name": "conv5"}, "config.encoder.name 'conv5': did you mean 'conv'"),
        ("preset=tiny", {"data.size": 0}, "config.data.size: expected int, at least 1"),
    ],
)
def test_settings_are_checked(arg, changes, message):
    with pytest.raises(ConfigError, match=message):
        build(arg, **changes)


def test_axes_belong_to_models():
    with pytest.raises(ValueError, match="kernel=gaussian is for model=intention, not for model=maml"):
        config_file.get_config("model=maml,kernel=gaussian")
    assert config_file.get_config("preset=tiny").axes.source == "digits"
    assert config_file.get_config("preset=quick").axes.source == "mini_imagenet"
    found = list(sweep.cells(config_file, "preset=quick", {}, "figure14"))
    assert len(found) == 8 and {cell.config.model.latent for cell in found} == {16, 32, 64, 128}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = config_file.get_config("preset=tiny")
    config.update_from_flattened_dict(ONE_BLOCK)
    return launch(config, tmp_path_factory.mktemp("run"), Options(), Console(quiet=True), catalogue.show)


def test_a_tiny_run_learns_digits_it_has_not_seen(run):
    summary = run.metrics["trained/accuracy"]
    assert summary["n"] == 10 and summary["mean"] > 0.45  # chance is 1/3
    assert run.content["facts"]["data"].startswith("scikit-learn's 8x8 digits")
    assert (run.folder / "figure.png").stat().st_size > 10_000
    assert run.examples["trained/prediction"].shape == run.examples["target_label"].shape == (1, 9)


def renamed(run, features=None, first_order=True, **axes):
    """The same run as if it were of other axes."""
    model = run.config["model"] | ({"latent": features} if features else {}) | {"first_order": first_order}
    config = run.config | {"axes": run.config["axes"] | axes, "model": model}
    return Result(run.folder, run.content | {"config": config, "axes": config["axes"]})


table1, table2 = (tables.TABLES[f"intention/{number}"] for number in ("table1", "table2"))


def test_tables_show_ours_beside_the_papers_and_what_is_missing(run):
    rows = dict(table1([run, renamed(run, encoder="resnet12", kernel="gaussian")]).rows)
    ours = rows["Intention"][0]
    assert ours.mean == 100 * run.metrics["trained/accuracy"]["mean"]
    assert ours.error == pytest.approx(1.96 * 100 * run.metrics["trained/accuracy"]["sem"])
    assert rows["Intention"][1].text() == "67.30 ± 0.51" and rows["Intention"][2] == f"{run.content['best_step']} of 20"
    assert rows["MAML"][0].mean is None and "MAML, second order" not in rows
    assert rows["Prototypical networks"][0].mean is None and rows["Prototypical networks"][1] == "(none)"
    second = table2([run, renamed(run, encoder="resnet12", kernel="gaussian")])
    rows = dict(second.rows)
    assert rows["Intention, Gaussian kernel"][1].text() == "70.43 ± 0.52" and rows["Intention"][0].mean is None
    for piece in ("Preset tiny", "2 seeds", "10 episodes", "scikit-learn's 8x8 digits", "8x8,", "transductive"):
        assert piece in second.caption
    csv_row = next(
        row for row in csv.DictReader(io.StringIO(second.csv())) if row["model"] == "Intention, Gaussian kernel"
    )
    assert csv_row["the paper's"] == "70.43" and csv_row["the paper's 95 %"] == "0.52"
    assert (csv_row["preset"], csv_row["seeds"], csv_row["n"]) == ("tiny", "2", "10")


def test_second_order_has_a_row_of_its_own_and_small_images_go_first(run):
    first, second = (renamed(run, model="maml", first_order=order) for order in (True, False))
    rows = dict(table1([run, first, second]).rows)
    assert rows["MAML"][0].mean is not None and rows["MAML, second order"][0].mean is not None
    large, small = (renamed(run, size=str(size)) for size in (84, 28))
    for result, size in ((large, 84), (small, 28)):
        result.config["data"] = {"source": "digits", "size": size}
    assert tables.chosen([large, small], ["conv4"]) == {(tables.INTENTION, "base"): small}


@pytest.mark.parametrize(
    "section,changes", [("encoder", {"statistics": "running"}), ("task", {"shot": 1}), ("task", {"query": 5})]
)
def test_runs_of_another_protocol_hide_none_of_the_papers(run, section, changes):
    usual = renamed(run)
    usual.config["task"] = run.config["task"] | {"shot": 5, "query": 15}
    other = renamed(run, model="attention")
    other.config["task"] = usual.config["task"]
    other.config[section] = other.config[section] | changes
    assert tables.chosen([other, usual], ["conv4"]) == {(tables.INTENTION, "base"): usual}
    assert len(tables.chosen([other], ["conv4"])) == 1


def test_rows_that_the_paper_does_not_have_follow_and_presets_never_mix(run):
    extra = [
        renamed(run, covariance="qda"),
        renamed(run, model="attention", op="intention"),
        renamed(run, 16, latent="16"),
    ]
    names = [name for name, _ in table1([run, *extra]).rows]
    assert names[-2:] == ["Intention, covariance qda", "Attention, op intention"] and "Intention" in names
    quick = renamed(run, model="maml", preset="quick")
    assert [name for name, cells in table1([run, quick]).rows if cells[0].mean is not None] == ["MAML"]
    assert table1([]) is None


@pytest.mark.parametrize(
    "others, place",
    [
        (0.5, "Intention is first, as in the paper."),
        (1.0, "is there beside Prototypical networks, MAML, Attention and N"),
    ],
)
def test_the_finding_says_whether_intention_is_first_alone(run, others, place):
    """Other models with `others` times the accuracy."""
    accuracy = run.metrics["trained/accuracy"]
    less = {"trained/accuracy": accuracy | {"mean": others * accuracy["mean"]}}
    rest = [renamed(run, model=model) for model in ("attention", "neural_process", "maml", "prototypes")]
    results = [run, *(Result(other.folder, other.content | {"metrics": less}) for other in rest)]
    finding = next(findings.table1(results))
    assert finding.holds and place in finding.text


def test_figure14_draws_both_kernels(run, tmp_path):
    cells = [
        renamed(run, size, latent=str(size), kernel=kernel) for kernel in ("linear", "gaussian") for size in (16, 64)
    ]
    assert figure14([run, *cells], tmp_path).stat().st_size > 10_000
    with (tmp_path / "figure14.csv").open() as file:
        rows = list(csv.reader(file))
    assert [row[:2] for row in rows[1:]] == [["linear", "16"], ["linear", "64"], ["gaussian", "16"], ["gaussian", "64"]]
    with pytest.raises(UserError, match="Figure 14 needs results"):
        figure14([run], tmp_path)
