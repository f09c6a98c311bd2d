"""Set anomalies: the law of its sets, areas by hand, CelebA's attributes, a run at preset tiny and its table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from configs.set_transformer import anomaly as config_file
from experiments import catalogue
from experiments.data import celeba
from experiments.data.errors import DataError
from experiments.harness.errors import ConfigError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.set_transformer.anomaly import experiment as anomaly
from experiments.set_transformer.anomaly import host
from experiments.set_transformer.anomaly.tables import TABLES
from experiments.set_transformer.operators.tables import operators
from experiments.tasks.odd_one_out import AttributedImages, OddOneOut
from kvq_jax.models import ImageSetDetector, ImageSetNetwork
from tests.experiments.data.image_archives import PARTITION_OF, write_faces
from tests.kvq_jax.nn.drawing import draw, start

TASK = OddOneOut(set_size=4, shared=2, sets=0)
ATTRIBUTE = np.random.default_rng(0).random((40, 5)) < [0.8, 0.7, 0.5, 0.5, 0.02]


def test_what_may_be_common_is_what_enough_images_have_and_one_has_not():
    found = {tuple(pair) for pair in TASK.common(ATTRIBUTE).tolist()}
    expected = {
        (one, other)
        for one in range(5)
        for other in range(one + 1, 5)
        if (ATTRIBUTE[:, one] & ATTRIBUTE[:, other]).sum() >= 3 and not (ATTRIBUTE[:, one] | ATTRIBUTE[:, other]).all()
    }
    assert found == expected and 0 < len(expected) < 10
    assert TASK.common(np.ones((40, 3), bool)).shape == TASK.common(ATTRIBUTE[:, :1]).shape == (0, 2)


def test_all_but_one_share_two_attributes_of_which_it_has_none():
    image = jnp.arange(40, dtype=jnp.uint8).reshape(40, 1, 1, 1)
    data = AttributedImages(image, jnp.asarray(ATTRIBUTE), jnp.asarray(TASK.common(ATTRIBUTE)), False)
    sets = jax.device_get(jax.jit(jax.vmap(TASK.sample, (0, None)))(jax.random.split(jax.random.key(0), 6000), data))
    number, place = sets.x[..., 0, 0, 0], sets.truth
    for own, odd in zip(number[:1000], place):
        normal, alone = ATTRIBUTE[np.delete(own, odd)], ATTRIBUTE[own[odd]]
        assert len(set(own.tolist())) == 4 and (normal.all(0) & ~alone).sum() >= 2
    assert np.bincount(place, minlength=4) / 6000 == pytest.approx(np.full(4, 0.25), abs=0.03)
    assert len(np.unique(number)) > 30


def test_training_sees_as_many_sets_as_there_are():
    image = jnp.arange(40, dtype=jnp.uint8).reshape(40, 1, 1, 1)
    keys = jax.random.split(jax.random.key(0), 300)

    def different(sets, training):
        task = OddOneOut(set_size=4, shared=2, sets=sets)
        data = AttributedImages(image, jnp.asarray(ATTRIBUTE), jnp.asarray(task.common(ATTRIBUTE)), training)
        drawn = jax.jit(jax.vmap(task.sample, (0, None)))(keys, data).x[..., 0, 0, 0]
        return {tuple(own) for own in drawn.tolist()}

    assert len(different(5, training=True)) == 5 and different(5, training=True) < different(9, training=True)
    assert different(5, training=False) == different(0, training=True) and len(different(0, training=True)) > 250


def test_areas_are_those_of_all_images_of_some_sets():
    """One anomaly in two sets of three: above how many of the others it is, and with what precision it is found."""
    probability, place = np.array([[[0.9, 0.0, 0.1], [0.2, 0.3, 0.5]]]), np.array([[0, 1]])
    found = host.curves(probability, place, together=2)
    assert found["auroc"].tolist() == [[(4 + 3) / 8]] and found["aupr"][0, 0] == pytest.approx((1 + 2 / 3) / 2)
    assert found["accuracy"].tolist() == [[1, 0]]
    alone = host.curves(probability, place, together=1)
    assert alone["auroc"].tolist() == [[1.0, 0.5]] and alone["aupr"].tolist() == [[1.0, 0.5]]
    ties = host.curves(np.full((1, 50, 8), 0.125), np.zeros((1, 50), int), together=50)
    assert ties["auroc"] == 0.5 and ties["aupr"] == 0.125  # what the paper has for chance


def test_areas_of_a_set_are_those_of_its_own_curve():
    """With few different probabilities, so that many are equal."""
    rng = np.random.default_rng(0)
    probability, place = rng.integers(0, 5, (2, 60, 8)) / 8, rng.integers(0, 8, (2, 60))
    found, alone = (host.curves(probability, place, together) for together in (60, 1))
    np.testing.assert_allclose(found["auroc_of_set"], alone["auroc"])  # by scikit-learn
    np.testing.assert_allclose(found["aupr_of_set"], alone["aupr"])
    assert found["auroc_of_set"].shape == (2, 60) and len(np.unique(found["auroc_of_set"])) > 10
    assert found["aupr"].shape == (2, 1) and not np.allclose(
        found["aupr"][:, 0], found["aupr_of_set"].mean(1), atol=0.1
    )


def test_logits_of_a_permuted_set_are_permuted_and_an_absent_image_has_the_least():
    net = ImageSetDetector(8, num_heads=2, encoder_layers=1, features=(4,), pool_heads=4, head=(8,))
    x = draw(5, 6, 6, 1)
    variables = start(net, x)
    variables["batch_stats"] = jax.tree.map(np.abs, variables["batch_stats"])
    order, there = np.array([2, 0, 3, 4, 1]), np.array([True, True, False, True, True])
    apply = jax.jit(lambda x, mask: net.apply(variables, x, mask=mask))
    logits = apply(x, None)
    assert logits.shape == (5,) and np.ptp(logits) > 1e-3
    np.testing.assert_allclose(apply(x[order], None), logits[order], rtol=1e-4, atol=1e-5)
    masked = apply(x, there)
    np.testing.assert_allclose(masked[there], apply(x[there], None), rtol=1e-4, atol=1e-5)
    assert masked[2] == np.finfo(np.float32).min
    shared = jax.eval_shape(ImageSetNetwork(8, num_heads=2, features=(4,)).init, jax.random.key(0), x)["params"]
    assert {name for name in shared if name != "encoder_1"} == set(variables["params"])


@pytest.fixture
def faces(tmp_path):
    """DATA with nine images of CelebA, and three attributes of each: the bits of its number."""
    write_faces(tmp_path / "celeba")
    rows = [
        f"{name}  " + " ".join("1" if int(name[:6]) >> bit & 1 else "-1" for bit in range(3)) for name in PARTITION_OF
    ]
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_text("\n".join(["9", "One Two Four ", *rows]) + "\n")
    return tmp_path


def test_attributes_are_in_the_order_of_the_faces(faces):
    names, found = celeba.attributes(str(faces))
    order = sorted(PARTITION_OF, key=PARTITION_OF.get)
    assert names == ("One", "Two", "Four")
    np.testing.assert_array_equal(found @ [1, 2, 4], [int(name[:6]) % 8 for name in order])
    config = config_file.get_config("preset=tiny,source=celeba")
    config.task.update(set_size=3, shared=1)
    name, parts = anomaly._faces(anomaly.DataSettings("celeba", 8), str(faces))
    assert name.startswith("CelebA (9") and [len(image) for image, _ in parts.values()] == [4, 2, 3]
    with pytest.raises(ConfigError, match="config.task: no 1 attribute.s. of the train images"):
        build(config, str(faces))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda text: text.replace("000003.jpg  1", "000003.jpg  0"), "line 5: expected an image and 3 times 1 or -1"),
        (lambda text: text.replace("000003.jpg  1 ", "000003.jpg  "), "line 5: expected an image and 3 times"),
        (lambda text: "\n".join(text.splitlines()[:-1]), "lacks 1 of 9 images: 000009.jpg is the first"),
        (lambda text: "", "lacks 9 of 9"),
    ],
)
def test_a_damaged_list_of_attributes_is_refused(faces, change, message):
    path = faces / "celeba" / "list_attr_celeba.txt"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=message):
        celeba.attributes(str(faces))


def build(config, data_dir=None):
    return anomaly.build(config, split_evaluation(config.evaluation)[1], data_dir)


def test_settings_are_checked(tmp_path):
    write_faces(tmp_path / "celeba")
    with pytest.raises(DataError, match="list_attr_celeba.txt"):
        build(config_file.get_config("preset=paper"), str(tmp_path))
    config = config_file.get_config("preset=tiny")
    config.evaluation.together = 7
    with pytest.raises(ConfigError, match="together=7 does not divide tasks=20"):
        build(config)
    assert config_file.get_config("preset=paper").task.shared == 2


def test_a_tiny_run_and_its_table(tmp_path):
    config = config_file.get_config("model=rff_mean,preset=tiny")
    result = launch(config, tmp_path / "run", Options(), Console(quiet=True), catalogue.show)
    found = {name: result.metrics[f"trained/{name}"] for name in ("auroc", "aupr", "accuracy", "aupr_of_set")}
    assert [summary["n"] for summary in found.values()] == [2, 2, 20, 20]
    older = {name: summary for name, summary in result.content["metrics"].items() if "of_set" not in name}
    axes = result.axes | {"model": "sab_pma"}
    other = Result(result.folder, result.content | {"axes": axes, "metrics": older})
    table = TABLES["set_transformer/anomaly"]([result, other])
    rows = dict(table.rows)
    assert "and 20 sets, for areas over several sets over their 2 curves; in bold" in table.caption
    assert rows["rFF + Pooling (mean)"][0].mean == found["auroc"]["mean"]
    assert rows["rFF + Pooling (mean)"][4].mean == found["aupr_of_set"]["mean"]
    assert rows["rFF + Pooling (mean)"][2].text() == "0.5643 ± 0.0139"
    assert rows["SAB + PMA"][2].text() == "0.5941 ± 0.0170" and rows["SAB + PMA"][5].text() == "0.4386 ± 0.0089"
    assert [cell.known for cell in rows["SAB + PMA"]] == [True, False, True, True, False, True, True]
    assert not rows["SAB + Pooling"][0].known
    assert [cell.text() for cell in rows["chance"]] == [
        *("0.5000", "0.5000", "0.5", "0.1250"),
        *("0.3397", "0.125", "12.5"),
    ]
    assert (result.folder / "figure.png").stat().st_size > 10_000
    assert TABLES["set_transformer/anomaly"]([]) is None and operators([result]) is None
