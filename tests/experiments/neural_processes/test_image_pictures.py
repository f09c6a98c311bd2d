"""Images completed, what else is shown of them, and the pictures and the table drawn from made-up results."""

import csv
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.neural_processes import attention as attention_config
from configs.neural_processes import images as images_config
from experiments import catalogue
from experiments.harness import drawing
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.findings import said
from experiments.harness.launch import split_evaluation
from experiments.harness.results import Result
from experiments.neural_processes.images import experiment, montage, tables
from experiments.neural_processes.images.completion import DEMOS, check_shown, completed
from kvq_jax.models import CMANP, NeuralProcess
from kvq_jax.models.neural_processes.predictive import factorised

SHAPE = (8, 8, 1)
MEASURED = ("bits_per_dim", "reference_pixelwise", "reference_gp")


class Seen(NeuralProcess):
    """Predicts at every pixel its row plus the mean of the context; attends by the distance of rows, in two heads."""

    dim_y: int = 1

    def __call__(self, context, target_x, target_mask=None, *, key=None):
        keep = jnp.ones(len(context.x)) if context.mask is None else context.mask
        mean = (keep @ context.y) / keep.sum() + target_x[:, :1] / 8
        return factorised(mean, jnp.full(mean.shape, 0.1))

    def attention_weights(self, context, target_x):
        distance = jnp.abs(target_x[:, None] - context.x).sum(-1)
        return jnp.stack([distance, -distance])


@pytest.fixture(scope="module")
def shown() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    image = np.random.default_rng(0).integers(60, 190, SHAPE).astype(np.uint8)
    shown = jax.jit(lambda image: completed(Seen(), {}, image, jax.random.key(0), (3,), 2, 10, tuple(DEMOS)))
    return image, jax.device_get(shown(image))


def test_the_lower_half_is_predicted_from_the_upper(shown):
    image, arrays = shown
    ramp = np.linspace(-1, 1, 8)[:, None] / 8 * 255
    expected = image[:4].mean() + ramp
    assert np.abs(arrays["prediction_half_mean"][..., 0] - expected).max() <= 1
    assert np.all(arrays["prediction_half_std"] == 26) and "prediction_half_samples" not in arrays


def test_resolution_is_mapped_from_means_of_pixels_and_to_four_times_as_many(shown):
    image, arrays = shown
    pooled = image.reshape(2, 4, 2, 4).mean((1, 3))
    assert np.abs(arrays["coarse"][..., 0] - pooled).max() <= 0.51
    for name, side in (("coarse", 8), ("fine", 32)):
        expected = np.broadcast_to(image.mean() + np.linspace(-1, 1, side)[:, None] / 8 * 255, (side, side))
        assert np.abs(arrays[f"prediction_{name}_mean"][..., 0] - expected).max() <= 1


def test_attention_is_that_of_one_pixel_to_all(shown):
    _, arrays = shown
    rows, columns = np.meshgrid(np.linspace(-1, 1, 8), np.linspace(-1, 1, 8), indexing="ij")
    distance = np.abs(rows - rows[2, 2]) + np.abs(columns - columns[2, 2])
    np.testing.assert_allclose(arrays["prediction_attention"], [distance, -distance], atol=1e-6)


def test_anp_shows_all_of_them():
    """Traced, not computed."""
    config = attention_config.get_config("attention=stacked_multihead,data=digits,preset=tiny")
    made = experiment.build(config, split_evaluation(config.evaluation)[1], None)
    variables = jax.eval_shape(made.init, jax.random.key(0))
    arrays = jax.eval_shape(functools.partial(made.examples, key=jax.random.key(0)), variables, made.data["test"])
    assert arrays["prediction_attention"].shape == (1, 2, 8, 8, 8)
    assert arrays["prediction_half_samples"].shape == arrays["prediction_coarse_samples"].shape == (1, 2, 2, 8, 8, 1)
    assert arrays["prediction_fine_mean"].shape == (1, 2, 32, 32, 1)


@pytest.mark.parametrize(
    "model, shown, message",
    [
        (Seen(), ("halves",), "unknown config.evaluation.example_shown 'halves'.*did you mean 'half'"),
        (CMANP(), ("attention",), "example_shown: CMANP has no attention from targets to context"),
        (Seen(), ("half", "resolution"), "example_shown: resolution needs sides that 4 divides, not 9x9"),
    ],
)
def test_what_cannot_be_shown_is_refused(model, shown, message):
    with pytest.raises(ConfigError, match=message):
        check_shown(shown, model, (9, 9, 1))


def made_up(folder, config, images=True, value=1.0, seed=0) -> Result:
    """A result as a run would write it; the images are the same for all of a seed, the predictions are noise."""
    axes, truth = config.axes.to_dict(), np.random.default_rng(seed)
    number = lambda mean: {"mean": mean, "sem": 0.01, "median": mean, "n": 500, "seeds": [mean]}
    metrics = {"trained/test/target": number(value)}
    metrics |= {f"trained/test/target@{count}": number(value + count / 100) for count in config.evaluation.counts}
    content = dict(name=config.name, axes=axes, metrics=metrics, facts={"data": "scikit-learn's digits"}, seeds=[0])
    content |= dict(steps=20, best_step=None, config=json.loads(config.to_json()))
    shape, count = (1, 2), len(config.evaluation.example_counts) + 1
    arrays = {"counts": np.array([*config.evaluation.example_counts, 64])}
    arrays["pixels"] = np.stack([[truth.permutation(64) for _ in range(2)]])
    images_of = dict(truth=(), mean=(count,), std=(count,), samples=(count, 2))
    if config.name == "neural_processes/attention":
        demos = dict(mean=(), std=(), samples=(2,)).items()
        images_of |= {f"{demo}_{of}": more for demo in ("half", "coarse") for of, more in demos}
    for name, more in images_of.items():
        key = name if name == "truth" else f"trained/prediction_{name}"
        arrays[key] = truth.integers(0, 256, (*shape, *more, 8, 8, 1)).astype(np.uint8)
    arrays["coarse"] = truth.integers(0, 256, (*shape, 2, 2, 1)).astype(np.uint8)
    for of in ("mean", "std"):
        arrays[f"trained/prediction_fine_{of}"] = truth.integers(0, 256, (*shape, 32, 32, 1)).astype(np.uint8)
    arrays["trained/prediction_attention"] = truth.normal(size=(*shape, 3, 8, 8))
    folder.mkdir(parents=True)
    np.savez(folder / "examples.npz", **{name: of for name, of in arrays.items() if images or of.dtype != np.uint8})
    return Result(folder, content)


@pytest.fixture
def of_images(tmp_path):
    """CNP and NP on digits, and CMANP, whose images were left out."""
    get = lambda model: images_config.get_config(f"model={model},data=digits,preset=quick")
    return [made_up(tmp_path / model, get(model), images=model != "cmanp") for model in ("cnp", "np", "cmanp")]


@pytest.fixture
def of_attention(tmp_path):
    cells = ["attention=laplace", "attention=multihead", "op=intention", "op=linear", "model=cmanp,op=intention"]
    get = lambda cell: attention_config.get_config(f"{cell},data=digits,preset=quick")
    values = zip(cells, (1.0, 2.0, 1.5, 1.495, 0.5))
    return [made_up(tmp_path / cell, get(cell), value=value) for cell, value in values]


def test_completions_of_all_models_that_have_images(of_images, tmp_path, capsys):
    path = catalogue.find("figures", "cmanp/figure11_digits")(of_images, tmp_path)
    assert path.name == "figure11_digits.png" and path.read_bytes()[1:4] == b"PNG"
    note = capsys.readouterr().err
    assert note == f"note: CMANP is not drawn from {tmp_path / 'cmanp'}: it holds no images: run it here\n"
    with pytest.raises(
        UserError, match="figure11_digits needs results of .* with data=digits and their images"
    ) as error:
        catalogue.find("figures", "cmanp/figure11_digits")(of_images[2:], tmp_path)
    assert "\n" not in str(error.value)


def test_models_that_saw_other_images_are_not_put_beside_each_other(of_images, tmp_path, capsys):
    other = made_up(tmp_path / "other", images_config.get_config("model=anp,data=digits,preset=quick"), seed=1)
    catalogue.find("figures", "cmanp/figure11_digits")([*of_images[:2], other], tmp_path)
    assert "ANP is not drawn" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["images", "half", "resolution", "attention"])
def test_the_pictures_of_anp(name, of_attention, tmp_path):
    path = catalogue.find("figures", f"anp/{name}_digits")(of_attention, tmp_path)
    assert path.name == f"{name}_digits.png" and path.read_bytes()[1:4] == b"PNG"
    with pytest.raises(UserError, match=f"anp/{name}_emnist needs results of neural_processes/attention with"):
        catalogue.find("figures", f"anp/{name}_emnist")(of_attention, tmp_path)


def test_resolution_shows_the_samples_of_runs_that_have_them(of_attention, tmp_path, monkeypatch):
    """White where a run has none, and no column where none has."""
    panels, draw_panels = [], montage.panels

    def kept(given, *rest, **look):
        panels.append(given)
        return draw_panels(given, *rest, **look)

    monkeypatch.setattr(montage, "panels", kept)
    laplace, multihead, *_ = of_attention
    array, draw = "trained/prediction_coarse_samples", catalogue.find("figures", "anp/resolution_digits")
    expected = laplace.examples[array][0, 1]
    del multihead.examples[array]
    draw(of_attention, tmp_path)
    rows, columns = panels[-1][1]
    places = [place for place, column in enumerate(columns) if column == "sample"]
    assert len(places) == 2 and columns[places[-1] + 1] == "seen: 8x8"
    assert all(len(row) == len(columns) for row in rows.values())
    np.testing.assert_array_equal([rows["laplace"][place] for place in places], expected)
    assert all(rows["multihead"][place].min() == 255 for place in places)
    del laplace.examples[array]
    draw(of_attention, tmp_path)
    assert "sample" not in panels[-1][0][1] and len(panels[-1][0][0]["laplace"]) == 6


def test_the_likelihood_by_observed_pixels(tmp_path):
    get = lambda model: images_config.get_config(f"model={model},data=celeba32,preset=quick")
    results = [made_up(tmp_path / model, get(model), value=value) for model, value in (("cnp", 1.0), ("tnp_nd", 3.0))]
    path = catalogue.find("figures", "cmanp/figure7")(results, tmp_path)
    rows = list(csv.DictReader(path.with_suffix(".csv").open()))
    assert [(row["model"], row["pixels"], row["likelihood"]) for row in rows][2:4] == [
        ("cnp", "100.0", "2.0"),
        ("tnp_nd", "10.0", "3.1"),
    ]


def test_operators_on_images(of_attention):
    table = catalogue.find("tables", "kvq/images")(of_attention)
    rows = {name: [cell.text() for cell in cells] for name, cells in table.rows}
    assert table.columns == ["operator", "ANP, digits test", "CMANP, digits test"]
    assert rows == {"linear": ["1.495 ± 0.010", "missing"], "intention": ["1.500 ± 0.010", "0.500 ± 0.010"]}
    best = {name: [cell.best for cell in cells] for name, cells in table.rows}
    assert best == {"linear": [True, False], "intention": [True, True]}, "within the joint error of the best"
    assert catalogue.find("tables", "kvq/images")(of_attention[:2]) is None


def test_the_finding_on_operators_has_them_in_order(of_attention, tmp_path):
    softmax = made_up(tmp_path / "op", attention_config.get_config("op=softmax,data=digits,preset=quick"), value=1.2)
    found, missing = said(catalogue.find("findings", "kvq/images"), [*of_attention, softmax])
    assert [finding.text for finding in found] == [
        "ANP, digits test, log-likelihood per target pixel by the operator over the context: intention 1.5, linear 1.5 "
        "and softmax 1.2; softmax is number 3 of 3."
    ]
    assert missing is None and not said(catalogue.find("findings", "kvq/images"), of_attention)[0]


def test_the_paper_is_not_beside_another_attention(of_images, of_attention):
    for result, title, beside in ((of_images[0], "CNP on", True), (of_attention[0], "ANP on", False)):
        result.metrics.update({f"trained/test/{name}": result.metrics["trained/test/target"] for name in MEASURED})
        table = tables.run_table(result)
        assert table.title.startswith(title) and ("attention laplace" in table.title) != beside
        assert ("the paper" in dict(table.rows)) == beside


def test_a_montage_puts_images_where_their_names_are():
    _, ((axis,),) = drawing.new_figure(1, 1)
    white, black = (np.full((4, 4, 1), level, np.uint8) for level in (255, 0))
    small = np.arange(4, dtype=np.uint8).reshape(2, 2, 1)
    montage.draw(axis, {"one": [white, black], "two": [small]}, ["a", "b"])
    (canvas,) = (image.get_array() for image in axis.get_images())
    assert canvas[2, 7].max() == 0 and canvas[2, 2].min() == 255
    assert canvas[5:9, 0:4, 0].tolist() == [[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3]] * 2
    assert [label.get_text() for label in axis.get_yticklabels()] == ["one", "two"]
    np.testing.assert_allclose(axis.get_yticks(), [2, 7])


def test_colours_of_what_is_shown():
    assert montage.spread(np.array([[[51, 51, 51]], [[0, 0, 204]]], np.uint8), 102.0).ravel().tolist() == [128, 170]
    seen = montage.observed(np.arange(4, dtype=np.uint8).reshape(2, 2, 1), np.array([3]))
    assert seen.ravel().tolist() == [128, 128, 128, 3]
    positive, signed = (montage.heat(np.array(maps)) for maps in ([[0.0, 2.0]], [[-1.0, 1.0]]))
    assert positive[0, 0].max() < 10 and positive[0, 1].min() > 150
    assert signed[0, 0, 2] > signed[0, 0, 0] and signed[0, 1, 0] > signed[0, 1, 2]
    both = montage.heat(np.array([[[0.0, 2.0]], [[-1.0, 1.0]]]))
    assert both.shape == (2, 1, 2, 3) and both[0, 0, 0].min() > 240, "one key of colours for all heads: 0 is white"
