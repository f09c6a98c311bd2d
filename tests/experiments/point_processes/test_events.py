"""Events from config to table: processes and recorded files, what a result holds, and what the user is told."""

import io

import jax
import numpy as np
import pytest
from rich.console import Console

from configs.point_processes import events as config_file
from experiments import catalogue
from experiments.data.errors import DataError
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.findings import said
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import load_results
from experiments.harness.step import sample_batch
from experiments.point_processes.events import experiment as events
from experiments.point_processes.events import findings, tables
from experiments.point_processes.labels import LOOKS
from kvq_jax.models import EVENT_MODELS
from kvq_jax.models.event_processes.events import number
from scripts import collect
from tests.kvq_jax.nn.drawing import drawn

METRICS = {"nll", "nll_time", "rmse", "mae", "rmse_median", "mae_median", "rmse_log", "rmse_published", "calibration"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Mooc's file with 30 sequences of 3 to 12 events after their first, of three marks."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    lengths = rng.integers(4, 14, 30)
    times = np.concatenate([np.cumsum(rng.exponential(3600.0, n)) for n in lengths])
    np.savez(
        path / "mooc.npz",
        times=times,
        offsets=np.append(0, np.cumsum(lengths)),
        marks=rng.integers(0, 3, lengths.sum()),
    )
    return path


@pytest.fixture(scope="module")
def results(folder, tmp_path_factory):
    """Runs of `tiny`: a process without marks, one with, and recorded events."""
    path, console = tmp_path_factory.mktemp("runs"), Console(file=io.StringIO())
    for data in ("renewal", "multivariate", "mooc"):
        config = config_file.get_config(f"model=gru,data={data},preset=tiny")
        config.train.steps = 10
        launch(config, path / data, Options(data_dir=str(folder)), console, catalogue.show)
    return {result.axes["data"]: result for result in load_results([path])}


def built(folder=None, **changes):
    """The experiment of a `tiny` config with changes of its axes."""
    config = config_file.get_config(",".join(f"{axis}={value}" for axis, value in changes.items()) + ",preset=tiny")
    return config, events.build(config, split_evaluation(config.evaluation)[1], folder and str(folder))


def test_a_result_has_every_metric_and_the_likelihood_of_the_process(results):
    plain, marked, recorded = (results[data] for data in ("renewal", "multivariate", "mooc"))
    names = {data: {name.removeprefix("trained/") for name in result.metrics} for data, result in results.items()}
    assert names["mooc"] == METRICS | {"nll_mark", "accuracy", "calibration_bound"}
    of_process = METRICS | {"calibration_bound", "oracle_nll", "oracle_nll_time", "gap_nll", "gap_nll_time"}
    assert names["renewal"] == of_process
    assert names["multivariate"] == of_process | {"nll_mark", "accuracy", "oracle_nll_mark", "gap_nll_mark"}
    for result in (plain, marked):
        of = {name: result.metrics[f"trained/{name}"]["mean"] for name in ("nll", "oracle_nll", "gap_nll")}
        assert of["gap_nll"] == pytest.approx(of["nll"] - of["oracle_nll"], abs=1e-5)
    parts = [recorded.metrics[f"trained/{name}"]["mean"] for name in ("nll", "nll_time", "nll_mark")]
    assert parts[0] == pytest.approx(parts[1] + parts[2])
    facts = recorded.content["facts"]
    assert facts["data"] == "Mooc (30 of 7,047 sequences, re-split)" and facts["unit"] == "hours"
    assert recorded.metrics["trained/nll"]["n"] == facts["sequences"]["test"] == 6
    assert facts["gaps"]["mean_gap"] == pytest.approx(1.0, abs=0.4)


def test_scaling_is_that_of_the_training_data(folder):
    config, experiment = built(folder, model="gru", data="mooc")
    gaps = experiment.facts["gaps"]
    model = experiment.model
    assert (model.num_marks, model.time_scale) == (97, gaps["mean_gap"])
    assert (model.log_mean, model.log_std) == (gaps["mean_log_gap"], gaps["std_log_gap"])
    assert experiment.facts["waste"] < 1.4 and len(experiment.sizes.classes.classes) == 2
    drawn = sample_batch(experiment, jax.random.key(0), jax.device_put(experiment.data["train"]), 4)
    for slots in experiment.sizes.classes.classes:
        batch = jax.vmap(lambda draws, slots=slots: experiment.sizes.fill(draws, slots, None))(drawn).events
        assert batch.gap.shape == (4, slots) and (number(batch) > 0).all()


def test_an_event_counts_alike_in_batches_of_any_length_class(folder):
    """Of classes as often as they are drawn the loss is that of all events, and of a batch that of its parts."""
    config, experiment = built(folder, model="gru", data="mooc")
    variables, classes = drawn(experiment.init, jax.random.key(0)), experiment.sizes.classes
    loss = jax.jit(lambda batch: experiment.loss(variables, events.Shown(batch, True), None)[0])
    total = jax.jit(lambda batch: experiment.model.apply(variables, batch, method="log_likelihood").total.sum())
    parts = experiment.data["train"].events
    found = np.dot(classes.probabilities, [loss(part) for part in parts])
    everything = -sum(total(part) for part in parts) / sum(number(part).sum() for part in parts)
    np.testing.assert_allclose(found, everything, rtol=1e-5)
    batch = jax.tree.map(lambda leaf: leaf[:4], parts[-1])
    halves = [jax.tree.map(lambda leaf, half=half: leaf[2 * half : 2 * half + 2], batch) for half in (0, 1)]
    assert number(halves[0]).sum() != number(halves[1]).sum()
    np.testing.assert_allclose(loss(batch), np.mean([loss(half) for half in halves]), rtol=1e-5)


@pytest.mark.parametrize("data", ["mooc", "poisson"])
def test_dropout_acts_on_what_is_trained_on_alone(folder, data):
    _, experiment = built(folder, model="thp_mixture", data=data)
    variables = jax.tree.map(lambda leaf: 3 * leaf, drawn(experiment.init, jax.random.key(0)))
    for split, sampled in experiment.data.items():
        batch = sample_batch(experiment, jax.random.key(1), sampled, 4)
        if experiment.sizes:
            batch = jax.vmap(lambda one: experiment.sizes.fill(one, experiment.sizes.classes.classes[-1], None))(batch)
        loss = jax.jit(lambda key, batch=batch: experiment.loss(variables, batch, key)[0])
        one, other = loss(jax.random.key(2)), loss(jax.random.key(3))
        assert (one == other) == (split != "train"), split


def test_every_test_sequence_is_judged_once(folder):
    """With a model that is not trained: sums over all sequences are those of each alone."""
    config, experiment = built(folder, model="gru", data="mooc")
    variables = drawn(experiment.init, jax.random.key(0))
    found = jax.jit(experiment.evaluate)(variables, experiment.data["test"], jax.random.key(1))
    lengths = np.concatenate([number(part) for part in experiment.data["test"].events])
    np.testing.assert_array_equal(found["number"], lengths)
    log_likelihood = jax.jit(lambda part: experiment.model.apply(variables, part, method="log_likelihood"))
    expected = np.concatenate([log_likelihood(part).time.sum(-1) for part in experiment.data["test"].events])
    np.testing.assert_allclose(found["time"], expected, rtol=1e-5)
    config.evaluation.tasks = 4
    again = events.build(config, split_evaluation(config.evaluation)[1], str(folder))
    few = jax.eval_shape(again.evaluate, variables, again.data["test"], jax.random.key(1))
    assert few["time"].shape == (4,)


def test_pictures_are_of_sequences_of_all_lengths(folder):
    """As many of each class as is its share, the longest first; padded ones are judged as they are."""
    config, experiment = built(folder, model="gru", data="mooc")
    config.evaluation.example_tasks = 4
    experiment = events.build(config, split_evaluation(config.evaluation)[1], str(folder))
    variables, test = drawn(experiment.init, jax.random.key(0)), experiment.data["test"]
    found = jax.jit(experiment.examples)(variables, test, jax.random.key(1))
    counts = events._shares([len(part.rest) for part in test.events], 4)
    short, long = (number(part)[:count].tolist() for part, count in zip(test.events, counts))
    assert len(short) > 0 and len(long) > 0 and max(short) < min(long)
    assert found["mask"].sum(-1).tolist() == long + short and found["prediction_pit"].sum() == sum(long + short)
    first = jax.tree.map(lambda leaf: leaf[:1], test.events[0])
    alone = experiment.model.apply(variables, first, method="log_likelihood")
    np.testing.assert_allclose(found["prediction_time"][len(long), : short[0]], alone.time[0, : short[0]], rtol=1e-5)


@pytest.mark.parametrize("most, taken", [(4, [2, 2]), (6, [3, 3]), (100, [3, 3]), (1, [0, 1])])
def test_a_part_of_the_sequences_is_of_all_lengths(most, taken):
    assert events._shares([3, 3], most) == taken
    assert sum(events._shares([700, 200, 126], 1000)) == 1000


def test_tables_say_unit_split_and_what_is_missing(results):
    every = list(results.values())
    table = tables.TABLES["cmanp/table6"](every)
    text = table.markdown()
    assert "Mooc (30 of 7,047 sequences, re-split), in hours" in text and "Missing: Reddit" in text
    rows = dict(table.rows)
    assert rows["CMHP"][1].text() == "0.168 ± 0.011" and rows["GRU"][1] == "-"
    assert rows["GRU"][0].known and not rows["CMHP"][0].known
    reddit = tables.TABLES["cmanp/table5"](every)
    assert all(not cells[0].known for _, cells in reddit.rows) and "Missing: Reddit" in reddit.caption
    known = dict(tables.TABLES["events/processes"](every).rows)
    assert len(known["GRU"]) == 2 and all(cell.known for cell in known["NLL of the process itself"])
    assert len(tables.TABLES["events/recorded"](every).rows) == 1
    assert all(build([]) is None for build in tables.TABLES.values())


def test_findings_are_read_from_tables(results):
    found, why = said(findings.FINDINGS["events/processes"], list(results.values()))
    assert why is None and len(found) == 2 and "0 of 1 models" in found[1].text  # of five marks, after 10 steps
    found, why = said(findings.FINDINGS["cmanp/table6"], list(results.values()))
    assert not found and "missing" in why


def test_figures_are_drawn_from_results_without_the_data_themselves(results, tmp_path, monkeypatch):
    """What is collected holds no recorded time and no mark, and the pictures of papers need none."""
    for result in results.values():
        copies = collect._copies(result)
        place = tmp_path / "results" / result.name / result.folder.name
        place.mkdir(parents=True)
        for name, content in copies.items():
            (place / name).write_bytes(content)
    kept = {result.axes["data"]: result for result in load_results([tmp_path / "results"])}
    assert not {name for name in kept["mooc"].examples if "gap" in name or "mark" in name}
    assert "data/gap" in results["mooc"].examples and "gap" in kept["renewal"].examples
    for name in ("intensities", "calibration", "history"):
        path = catalogue.find("figures", f"events/{name}")(list(kept.values()), tmp_path)
        assert path.stat().st_size > 10_000
    with pytest.raises(UserError, match="events/history needs results"):
        catalogue.find("figures", "events/history")([], tmp_path)


@pytest.mark.parametrize(
    "change, error, message",
    [
        (lambda config: config.data.update(unit="fortnights"), ConfigError, "unknown config.data.unit 'fortnights'"),
        (lambda config: config.data.update(name="mook"), ConfigError, "did you mean 'mooc'"),
        (lambda config: config.data.update(least_gap=0.0), ConfigError, "config.data.least_gap: .* above 0"),
        (
            lambda config: setattr(config, "data", None),
            ConfigError,
            "config.task and config.data: expected one of them",
        ),
        (lambda config: config.data.update(name="stackoverflow"), DataError, "no file stackoverflow.npz"),
        (lambda config: config.evaluation.update(curve_points=0), ConfigError, "config.evaluation.curve_points"),
    ],
)
def test_what_does_not_fit_is_one_line(folder, change, error, message):
    config = config_file.get_config("model=gru,data=mooc,preset=tiny")
    change(config)
    with pytest.raises(error, match=message) as caught:
        events.build(config, split_evaluation(config.evaluation)[1], str(folder))
    assert "\n" not in str(caught.value)


def test_a_hawkes_process_that_explodes_is_refused():
    config = config_file.get_config("model=gru,data=hawkes,preset=tiny")
    config.task.branching = (((1.0,),), ((0.0,),))
    with pytest.raises(ConfigError, match="spectral radius"):
        events.build(config, split_evaluation(config.evaluation)[1], None)


def test_a_process_without_events_is_refused():
    config = config_file.get_config("model=gru,data=poisson,preset=tiny")
    config.task.rate = 1e-9
    with pytest.raises(ConfigError, match="config.task: no event in 256 sequences"):
        events.build(config, split_evaluation(config.evaluation)[1], None)


def test_every_model_has_a_look():
    assert set(LOOKS) == set(EVENT_MODELS)
