"""Published tensors become our models: their sizes, their numbers, the command, and what it refuses."""

import collections
import functools
import io
import json
import pickle
import sys
import time
import types
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kvq_jax
from experiments.harness.errors import UserError
from experiments.harness.tensor_files import read_tensors
from experiments.neural_processes.import_weights import TORCH_NAMES, import_weights, parse_changes
from kvq_jax.models import family
from tests import processes
from tests.kvq_jax.models.neural_processes import golden
from tests.kvq_jax.models.neural_processes.golden_outputs import OUTPUTS

NAMES = {name.replace("_", ""): name for name in TORCH_NAMES}  # the published name of a model -> ours
# A CNP of one number in each layer, dim_x = 2, dim_y = 3, pre_depth 2, post_depth 1, decoder_depth 2.
SMALL = {
    f"{encoder}.{layer}": shape
    for encoder in ("enc1", "enc2")
    for layer, shape in {"net_pre.0": (1, 5), "net_pre.2": (1, 1), "net_post.0": (1, 1)}.items()
} | {"dec.fc": (1, 4), "dec.mlp.1": (6, 1)}


def small(**changes) -> dict[str, np.ndarray]:
    """The tensors of `SMALL`, all different, with `changes` by name (None: not there)."""
    tensors = {}
    for number, (layer, shape) in enumerate(SMALL.items()):
        tensors[f"{layer}.weight"] = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 100 * number
        tensors[f"{layer}.bias"] = np.full(shape[0], number, np.float32)
    return {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}


command = functools.partial(processes.told, "scripts.import_weights")


@pytest.mark.parametrize("name", golden.read()["cases"])
def test_sizes_follow_from_the_tensors(name):
    case = golden.golden(name)
    made = import_weights(NAMES[case.kind], case.tensors, {})
    sizes = {golden.FIELDS[theirs]: value for theirs, value in case.config.items() if theirs in golden.FIELDS}
    guessed = {"num_heads", "permute", "block_size"}  # no tensor tells them
    if made.model.get("covariance") != "lowrank":
        guessed.add("diagonal_depth")
    assert {field: made.model[field] for field in sizes.keys() - guessed} == {
        field: value for field, value in sizes.items() if field not in guessed
    }
    assert made.assumed.keys() & sizes.keys() <= guessed  # the rest was not left to a default that happens to be right
    leaves = jax.tree.leaves(made.params)
    assert sum(leaf.size for leaf in leaves) == sum(tensor.size for tensor in case.tensors.values())
    assert all(leaf.dtype == np.float32 for leaf in leaves)


def test_every_published_model_has_its_renamings():
    assert set(TORCH_NAMES) == set(family("neural_process")) - {"intention_anp", "intention_cmanp"}


def test_sizes_that_are_no_defaults():
    made = import_weights("cnp", small(), {"std_floor": 0.01})
    told = dict(name="cnp", dim_y=3, hidden=1, pre_depth=2, post_depth=1, decoder_depth=2, std_floor=0.01)
    assert made.model == told | made.assumed and made.assumed["std_map"] == "softplus"
    np.testing.assert_array_equal(made.params["decoder"]["first"]["kernel"], [[600], [601], [602], [603]])


@pytest.mark.parametrize("name", ["anp", "tnpnd", "cmanp"])
def test_they_compute_what_the_published_ones_do(tmp_path, name):
    """From a file to a folder of weights to a model, in float32."""
    case = golden.golden(name)
    np.savez(tmp_path / "published.npz", **case.tensors)
    heads = {"num_heads": case.config["nhead"]} if "nhead" in case.config else {}
    made = import_weights(NAMES[case.kind], read_tensors(tmp_path / "published.npz"), heads)
    kvq_jax.save(tmp_path / "ours", made.module, {"params": made.params})
    model, variables = kvq_jax.load(tmp_path / "ours")
    outputs = jax.jit(functools.partial(model.apply, method=OUTPUTS[case.kind]))
    found = outputs(variables, jax.tree.map(jnp.asarray, case.inputs))
    for key in found.keys() & {"mean", "std", "scale_tril", "eval_tar_ll", "eval_all_mean", "eval_all_std"}:
        scale = np.abs(case.outputs[key]).max()
        np.testing.assert_allclose(found[key], case.outputs[key], rtol=0, atol=1e-5 * scale, err_msg=key)


def test_from_the_published_file_to_a_result(tmp_path):
    file, folder, run = tmp_path / "cmanp.npz", tmp_path / "weights", tmp_path / "run"
    np.savez(file, **golden.golden("cmanp").tensors)
    told = command("--model", "cmanp", "--weights", file, "--out", folder).splitlines()
    assert told[0] == f"{folder}: 11,610 parameters" and "num_latents=3, num_block_latents=5" in told[1]
    assert told[3].startswith("warning: no tensor tells num_heads: 4 is assumed (")
    assert told[4] == "if its deviations were bounded in training (EMNIST): --set std_map=softplus --set std_floor=0.05"
    assert "assumed" in told[2] and "num_heads=4" in told[2] and "num_latents" not in told[2]
    config = (
        "--config=configs/neural_processes/gp.py:model=cmanp,preset=tiny",
        "--config.evaluation.kernels=('rbf',)",
        "--config.evaluation.example_counts=(4,)",
        "--config.train.seeds=1",
        "--config.train.size_classes=1",
    )
    processes.told("experiments.run", *config, "--weights", folder, "--workdir", run)
    result = json.loads((run / "result.json").read_text())
    assert result["parameter_count"] == 11610 and result["steps"] == 0
    assert result["config"]["model"]["num_block_latents"] == 5 and result["config"]["weights"]
    assert all(np.isfinite(metric["mean"]) for metric in result["metrics"].values())


@pytest.mark.parametrize(
    "model, tensors, changes, message",
    [
        ("cnp", small(extra=np.zeros(2)), {}, "extra: unknown name"),
        ("cnp", small(**{"dec.mlp.9.bias": np.zeros(6)}), {}, "dec.mlp.9.bias: the model has no"),
        ("cnp", small(**{"enc1.net_pre.0.bias": None}), {}, "encoder/pre/layer_0/bias: no tensor"),
        ("cnp", small(**{"dec.fc.weight": None}), {}, "no tensor is named dec.fc.weight"),
        (
            "cnp",
            small(**{"enc1.net_pre.2.weight": np.zeros((2, 1))}),
            {},
            r"enc1.net_pre.2.weight: shape \(2, 1\) where encoder/pre/layer_1/kernel takes \(1, 1\)",
        ),
        ("cnp", small(), {"std_flor": 0.1}, "unknown field of cnp 'std_flor': did you mean 'std_floor'"),
        ("cnp", small(), {"std_floor": "low"}, "model.std_floor: expected float"),
        ("cnp", small(), {"decoder_depth": 3}, "decoder/rest/layer_1/bias: no tensor; and 1 more"),
        ("cnp", small(**{"dec.fc.bias": np.array([np.nan], np.float32)}), {}, "dec.fc.bias holds numbers that are not"),
        ("cmanp_and", small(), {"std_map": "softplus"}, "cmanp_and does not read std_map: .* by bound=True"),
        ("cnpp", small(), {}, "unknown model 'cnpp': did you mean 'cnp'"),
        ("cmanp", small(), {}, "do not fit cmanp: no tensor is named"),
    ],
)
def test_refusals(model, tensors, changes, message):
    with pytest.raises(UserError, match=message):
        import_weights(model, tensors, changes)


def test_names_may_have_the_prefix_of_data_parallel():
    prefixed = {f"module.{name}": tensor for name, tensor in small().items()}
    jax.tree.map(
        np.testing.assert_array_equal,
        import_weights("cnp", prefixed, {}).params,
        import_weights("cnp", small(), {}).params,
    )


def test_changes():
    given = parse_changes(
        ["num_heads=1", "std_map=exp", "op='mean'", "bound=True", "alpha_kind=None", "std_floor=5e-2"]
    )
    assert given == dict(num_heads=1, std_map="exp", op="mean", bound=True, alpha_kind=None, std_floor=0.05)
    for text in ("num_heads", "num_heads=", "num_heads=4 +", "=1 2"):
        with pytest.raises(UserError, match="expected field=value"):
            parse_changes([text])


def test_what_the_command_refuses_is_one_line_and_nothing_is_written(tmp_path):
    np.savez(tmp_path / "bad.npz", **small(extra=np.zeros(2)))
    file = ("--model=cnp", "--weights", tmp_path / "bad.npz", "--out")
    assert "extra: unknown name" in command(*file, tmp_path / "out", code=2) and not (tmp_path / "out").exists()
    assert "is not empty: --out takes a new folder" in command(*file, tmp_path, code=2)


# Files


def test_unreadable_files(tmp_path):
    np.savez(tmp_path / "whole.npz", **small())
    for name in ("cut.npz", "cut.pt"):
        (tmp_path / name).write_bytes((tmp_path / "whole.npz").read_bytes()[:-200])
    (tmp_path / "other.pt").write_bytes((tmp_path / "whole.npz").read_bytes())
    np.save(tmp_path / "array.npy", np.zeros(2))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    np.savez(tmp_path / "none.npz")
    for name, message in [
        ("absent.npz", "No such file"),
        ("absent.pth", "No such file"),
        ("cut.npz", "cannot read"),
        ("cut.pt", "cannot read"),
        ("other.pt", "PyTorch did not write this"),
        ("array.npz", "cannot read"),
        ("none.npz", "holds no tensors"),
        ("weights.bin", "unknown kind of file '.bin'"),
    ]:
        with pytest.raises(UserError, match=message):
            read_tensors(tmp_path / name)


def test_only_the_parameters_of_a_file_with_more(tmp_path):
    np.savez(
        tmp_path / "more.npz", **{f"param/{name}": tensor for name, tensor in small().items()}, **{"in/x": np.zeros(3)}
    )
    assert read_tensors(tmp_path / "more.npz").keys() == small().keys()


class AttrDict(dict):
    """As in the package attrdict, whose objects the published checkpoints are."""

    def __getstate__(self):
        return dict(self), tuple, False

    def __setstate__(self, state):
        raise AssertionError("no code that a file names is run")


def saved_as_torch_does(content, path):
    """The same format by hand: a pickle in which tensors are parts of storages, and the storages beside it."""
    storages = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if not isinstance(thing, memoryview):
                return None
            storages.append(thing.tobytes())
            return "storage", sys.modules["torch"].FloatStorage, str(len(storages) - 1), "cpu", thing.nbytes // 4

        def reducer_override(self, thing):
            if not isinstance(thing, np.ndarray):
                return NotImplemented
            strides = tuple(stride // 4 for stride in thing.strides)
            base = thing if thing.base is None else thing.base
            return sys.modules["torch._utils"]._rebuild_tensor_v2, (
                memoryview(base),
                0,
                thing.shape,
                strides,
                False,
                {},
            )

    with zipfile.ZipFile(path, "w") as file, io.BytesIO() as pickled:
        Pickler(pickled, 2).dump(content)
        file.writestr("archive/data.pkl", pickled.getvalue())
        for number, storage in enumerate(storages):
            file.writestr(f"archive/data/{number}", storage)


@pytest.fixture
def imitated(monkeypatch):
    """Modules with what a pickle of PyTorch names."""

    def stand_in(module, name):
        thing = type(name, (), dict(__module__=module))
        monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**{name: thing}))

    stand_in("torch", "FloatStorage")
    stand_in("torch._utils", "_rebuild_tensor_v2")


@pytest.fixture
def attrdict(monkeypatch):
    """The class above by its place in the package, which recent Pythons cannot import."""
    monkeypatch.setattr(AttrDict, "__module__", "attrdict.dictionary")
    monkeypatch.setitem(sys.modules, "attrdict", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "attrdict.dictionary", types.SimpleNamespace(AttrDict=AttrDict))


def encrypted(path):
    """Sets the bit of each entry of a zip that says so."""
    raw = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = raw.find(mark)
        while place >= 0:
            raw[place + flags] |= 1
            place = raw.find(mark, place + 4)
    path.write_bytes(raw)


def pickled(path, *operations):
    """A file of PyTorch with a pickle of these operations."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + b"".join(operations) + b".")
        file.writestr("archive/data/0", bytes(4))


def test_pickles_that_would_never_end(tmp_path):
    """Of some bytes each: a key of 2^60 objects, a list of places of 16 GiB, a million dictionaries for each KiB."""
    level = lambda number: b"h" + bytes([number]) + b"h" + bytes([number]) + b"\x86q" + bytes([number + 1]) + b"0"
    tree = b"".join([b")q\x000", *map(level, range(60))])
    name = b"ctorch\nFloatStorage\n"
    storage = b"(X\x01\x00\x00\x00s" + name + b"X\x01\x00\x00\x000t"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n"
    bombs = {
        "holds more than 1000 others": [
            (b"}", tree, b"h\x3cK\x01s"),
            (tree, b"ctorch._utils\n_rebuild_parameter\nh\x3c\x85R"),
            (b"(", tree, b"h\x3c\x91"),
            (b"(X\x01\x00\x00\x00s", name, tree, b"h\x3ctQ"),
            (b"}\x8b\x00\x00\x20\x00", b"\x7f" * 2**21, b"K\x01s"),
        ],
        "remembered at 2147483647": [(b"Nr\xff\xff\xff\x7f",)],
        "described in": [(b"}" * 2**23,)],
        "no type or no name": [(b"(X\x01\x00\x00\x00s]X\x01\x00\x00\x000tQ",)],
        "of a shape that is no integers": [(tensor, b"(", storage, b"QK\x00(X\x01\x00\x00\x00aM\xff\xfft)tR")],
        "pop from empty list": [(b"0",)],
    }
    for message, files in bombs.items():
        for operations in files:
            pickled(tmp_path / "bomb.pt", *operations)
            begun = time.monotonic()
            with pytest.raises(UserError, match=f"cannot read tensors from .*{message}"):
                read_tensors(tmp_path / "bomb.pt")
            assert time.monotonic() - begun < 5


def test_hostile_files(tmp_path, imitated, monkeypatch):
    """Each is refused in little time and memory, and nobody is told to run what is in it."""
    itself = {"step": 7}
    itself["model"] = itself
    number = np.ones(1, np.float32)
    np.savez(tmp_path / "nan.npz", **small(extra=np.array([1.0, np.nan])))
    np.savez(tmp_path / "infinite.npz", extra=np.array([1.0, -np.inf], np.float16))
    np.savez(tmp_path / "objects.npz", extra=np.array([{}], object))
    (tmp_path / "pickled.npz").write_bytes(pickle.dumps({}))
    np.savez_compressed(tmp_path / "bomb.npz", extra=np.zeros(10**6))
    np.savez(tmp_path / "secret.npz", **small())
    encrypted(tmp_path / "secret.npz")
    saved_as_torch_does(itself, tmp_path / "itself.pt")
    saved_as_torch_does({"extra": np.broadcast_to(number, (10**6, 10**6))}, tmp_path / "broadcast.pt")
    saved_as_torch_does({1: number}, tmp_path / "number.pt")
    header = {name: dict(dtype="F32", shape=[64], data_offsets=[0, 256]) for name in "abc"}
    for name, text in {"overlap": json.dumps(header), "list": "[1]", "deep": "[" * 10**5}.items():
        raw = text.encode()
        (tmp_path / f"{name}.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(256))
    monkeypatch.setattr("experiments.harness.tensor_files._UNPACKED_BYTES", 10**6)
    for name, message in {
        "nan.npz": "the tensor extra has numbers that are not finite",
        "infinite.npz": "the tensor extra has numbers that are not finite",
        "objects.npz": "it holds Python objects",
        "pickled.npz": "not a zip",
        "bomb.npz": "would unpack to",
        "secret.npz": "encrypted",
        "itself.pt": "expected tensors by name",
        "broadcast.pt": "in a storage of 1 numbers",
        "number.pt": "expected tensors by name",
        "overlap.safetensors": "its tensors overlap",
        "list.safetensors": "cannot read tensors",
        "deep.safetensors": "cannot read tensors",
    }.items():
        with pytest.raises(UserError, match=message) as caught:
            read_tensors(tmp_path / name)
        assert "allow_pickle" not in str(caught.value) and len(str(caught.value).splitlines()) == 1


def check_reading(save, tensor_of, folder):
    state = collections.OrderedDict((name, tensor_of(tensor)) for name, tensor in small().items())
    rest = dict(optimizer=dict(state={}, param_groups=[dict(lr=1e-3, betas=(0.9, 0.999))]), step=7)
    checkpoints = [state, dict(model=state, **rest), dict(model=dict(state_dict=state)), AttrDict(model=state, **rest)]
    for content in checkpoints:
        save(content, folder / "checkpoint.tar")
        read = read_tensors(folder / "checkpoint.tar")
        assert read.keys() == state.keys()
        for name, tensor in small().items():
            np.testing.assert_array_equal(read[name], tensor)
    save(dict(matrix=tensor_of(np.arange(6, dtype=np.float32).reshape(2, 3)).T), folder / "strided.pt")
    np.testing.assert_array_equal(read_tensors(folder / "strided.pt")["matrix"], [[0, 3], [1, 4], [2, 5]])
    save(dict(step=7), folder / "none.pth")
    with pytest.raises(UserError, match="expected tensors by name"):
        read_tensors(folder / "none.pth")


def test_files_of_the_format_of_pytorch(tmp_path, imitated, attrdict):
    check_reading(saved_as_torch_does, lambda tensor: tensor, tmp_path)


def test_files_of_pytorch(tmp_path, attrdict):
    torch = pytest.importorskip("torch")
    check_reading(torch.save, lambda tensor: torch.nn.Parameter(torch.tensor(tensor)), tmp_path)
    check_reading(torch.save, lambda tensor: torch.tensor(tensor, dtype=torch.float16), tmp_path)
