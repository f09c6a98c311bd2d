"""Trained models in folders: what is written is read again, by the library alone, and damage is one line."""

import dataclasses
import functools
import io
import json
import os
import re
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kvq_jax
from kvq_jax import files, models, nn, saved
from kvq_jax.fields import fields_of
from tests.processes import ROOT

CONTEXT = models.Points(jnp.linspace(-1, 1, 5)[:, None], jnp.ones((5, 1)))
X = jnp.linspace(-2, 2, 3)[:, None]
SMALL = models.CMANP(features=8, embed_depth=1, hidden=8, num_heads=2, num_layers=1, num_latents=2, num_block_latents=2)


@functools.cache
def variables():
    return jax.jit(SMALL.init)(jax.random.key(0), CONTEXT, X)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "cmanp"
    kvq_jax.save(place, SMALL, variables())
    return place


def test_the_library_alone_loads_and_predicts_in_the_readmes_lines(folder, tmp_path):
    """In a process that finds kvq_jax and neither experiments nor configs."""
    (tmp_path / "kvq_jax").symlink_to(ROOT / "kvq_jax")
    (lines,) = re.findall(r"```python\n(import kvq_jax\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(list(filter(None, lines.splitlines()))) == 3
    (named,) = re.findall(r'load\("(.*?)"\)', lines)
    assert (ROOT / named).is_dir()
    code = f"""
import importlib.util, jax.numpy as jnp, numpy as np
from kvq_jax.models import Points
assert not any(map(importlib.util.find_spec, ("experiments", "configs", "scripts")))
context = Points(jnp.linspace(-1, 1, 5)[:, None], jnp.ones((5, 1)))
target_x = jnp.linspace(-2, 2, 3)[:, None]
{lines.replace(named, str(folder))}
np.save("mean.npy", trained.predict(context, target_x).mean)
"""
    options = dict(cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    done = subprocess.run([sys.executable, "-c", code], **options)
    assert done.returncode == 0, done.stderr
    expected = jax.jit(SMALL.apply)(variables(), CONTEXT, X).mean
    np.testing.assert_allclose(np.load(tmp_path / "mean.npy"), expected, rtol=1e-5)


def test_a_model_in_half_the_precision_is_close(folder):
    whole = kvq_jax.load(folder)
    half = whole.astype(jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(half.variables)} == {jnp.dtype(jnp.bfloat16)}
    exact, found = (jax.jit(of.model.apply)(of.variables, CONTEXT, X) for of in (whole, half))
    error = np.abs(found.mean - exact.mean) / exact.stddev
    assert 0 < error.max() < 0.05


def test_dtypes_come_back(tmp_path):
    model = nn.Linear(2, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    held = model.init(jax.random.key(0), X)
    kvq_jax.save(tmp_path, model, held)
    loaded = kvq_jax.load(tmp_path)
    assert loaded.model == model and loaded.model.dtype == "bfloat16"
    chex.assert_trees_all_equal(loaded.variables, held)
    chex.assert_trees_all_equal_dtypes(loaded.variables, held)


def test_weights_of_an_earlier_state_of_the_library_are_read(folder, tmp_path):
    (tmp_path / "model.json").write_bytes((folder / "model.json").read_bytes())
    np.savez(tmp_path / "variables.npz", **files.read_tensors(folder / "variables.safetensors"))
    chex.assert_trees_all_equal(kvq_jax.load(tmp_path).variables, kvq_jax.load(folder).variables)


def test_modules_and_all_collections_come_back_equal(tmp_path):
    """Modules in fields, tuples, dicts of options, names and None; parameters and batch statistics."""
    encoder = nn.ConvEncoder(features=(4, 4))
    for index, model in enumerate(
        [
            models.PrototypeClassifier(encoder=encoder),
            models.SetAnomalyDetector(layer="np_former", options={"hidden": 3}),
            models.AtOnce(models.IntentionTarget(value_features=(3,))),
            models.IntentionCMANP(cross_op=dict(name="intention", alpha=0.5)),
            models.CMANP(),
            models.CNP(hidden=np.int64(8), std_floor=np.float64(0.1)),
        ]
    ):
        variables = {"params": {"a": {"b": np.arange(3.0)}}, "batch_stats": {"mean": np.float32(index)}}
        kvq_jax.save(tmp_path / str(index), model, variables)
        loaded = kvq_jax.load(tmp_path / str(index))
        assert loaded.model == model and hash(loaded.model) == hash(model)
        chex.assert_trees_all_equal(loaded.variables, variables)


@pytest.mark.parametrize("table", ["MODELS", "CLASSIFIERS", "WEIGHT_REGRESSORS", "TARGET_REGRESSORS"])
def test_every_model_can_be_saved(table):
    for row in getattr(models, table).values():
        needed = {"latent": 4} if table == "WEIGHT_REGRESSORS" else {}
        needed |= {"encoder": nn.ConvEncoder()} if table == "CLASSIFIERS" else {}
        described = json.loads(json.dumps(saved.describe(row.cls(**needed))))
        assert saved._build(described) == row.cls(**needed)


def test_every_module_of_defaults_can_be_saved():
    """Also one with a default that JSON cannot hold, such as an activation: it is left out, and is there again."""
    for cls in saved._classes().values():
        needed = {name: 4 for name, field in fields_of(cls).items() if field.default is dataclasses.MISSING}
        described = json.loads(json.dumps(saved.describe(cls(**needed))))
        assert saved._build(described) == cls(**needed), cls
    assert "activation" not in saved.describe(nn.MLP((4,)))


def test_a_run_has_a_folder_for_each_seed(folder, tmp_path):
    for seed, value in ((10, 1.0), (9, 2.0)):
        kvq_jax.save(tmp_path / "weights" / str(seed), SMALL, {"params": {"a": np.full(1, value)}})
    (tmp_path / "weights" / "0.old").mkdir()  # is no seed
    assert kvq_jax.load(tmp_path).variables["params"]["a"] == 2.0  # of the first seed
    assert kvq_jax.load(tmp_path, seed=10).variables["params"]["a"] == 1.0
    with pytest.raises(FileNotFoundError, match="no seed 3: expected one of 9, 10"):
        kvq_jax.load(tmp_path, seed=3)
    with pytest.raises(FileNotFoundError, match="leave out seed=3"):
        kvq_jax.load(folder, seed=3)


def test_damage_is_one_line_that_names_the_file(folder, tmp_path):
    model, arrays = (folder / "model.json").read_text(), (folder / "variables.safetensors").read_bytes()
    for text, data, error, told in (
        (None, arrays, FileNotFoundError, "holds no trained model: model.json is missing"),
        (model, None, FileNotFoundError, "holds no trained model: variables.safetensors is missing"),
        (model[:-5], arrays, ValueError, r"cannot read \S*model.json: "),
        ("[]", arrays, ValueError, "model.json: it names no class"),
        (model.replace("CMANP", "CMANPP"), arrays, ValueError, "unknown class 'CMANPP': did you mean 'CMANP'"),
        (model.replace("num_latents", "latents"), arrays, ValueError, "unknown field of CMANP 'latents'"),
        (model, arrays[:-50], ValueError, r"cannot read \S*variables.safetensors: "),
        (model, b"", ValueError, r"cannot read \S*variables.safetensors: "),
    ):
        for name, content in (("model.json", text and text.encode()), ("variables.safetensors", data)):
            (tmp_path / name).unlink(missing_ok=True)
            if content is not None:
                (tmp_path / name).write_bytes(content)
        with pytest.raises(error, match=told) as raised:
            kvq_jax.load(tmp_path)
        assert "\n" not in str(raised.value)
    with pytest.raises(FileNotFoundError, match="nowhere holds no trained model"):
        kvq_jax.load(tmp_path / "nowhere")


def test_what_no_one_could_load_is_not_written(tmp_path):
    class Own(models.CMANP):
        pass

    for model, variables, told in (
        (Own(), {}, "Own is no class of kvq_jax.models"),
        (models.CMANP(op=kvq_jax.softmax_attention), {}, "CMANP.op: JSON cannot hold"),
        (nn.MLP((4,), activation=jnp.tanh), {}, "MLP.activation: JSON cannot hold"),
        (SMALL, {"params": {"a": np.ones(1, complex)}}, "params/a: safetensors has no complex128"),
    ):
        with pytest.raises(ValueError, match=told):
            kvq_jax.save(tmp_path / "own", model, variables)
        assert not (tmp_path / "own").exists()


def test_the_bytes_of_safetensors():
    """As the format's documentation has them: a size, a header that ends at a multiple of eight bytes, the numbers."""
    file = io.BytesIO()
    files.write_tensors(file, {"a/b": np.array([[1.0, 2.0]], np.float32), "c": np.array(True)})
    header = b'{"a/b": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}, '
    header += b'"c": {"dtype": "BOOL", "shape": [], "data_offsets": [8, 9]}}'
    size = len(header) + -len(header) % 8
    numbers = b"\x00\x00\x80\x3f\x00\x00\x00\x40\x01"
    assert file.getvalue() == bytes([size]) + bytes(7) + header.ljust(size) + numbers
