"""The released operations in PyTorch are the released ones: their losses and gradients are the golden ones."""

import inspect

import jax
import numpy as np
import pytest

from kvq_jax.models import MODELS, Points
from tests.kvq_jax.models.neural_processes.golden import golden

torch = pytest.importorskip("torch", reason="no PyTorch: pip install '.[released]'")
released, points, encoder_decoder = (
    pytest.importorskip(f"scripts.benchmarks.released{part}") for part in ("", ".points", ".encoder_decoder")
)


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", released.MODELS)
def test_loss_and_gradient(float64, monkeypatch, name):
    """The loss to 1e-12, and the norm of the gradient by every tensor to 1e-11."""
    case = golden(name.replace("_", ""))
    model = constructed(name, case.config)
    model.load_state_dict({key: torch.tensor(value) for key, value in case.tensors.items()})
    context, target = (tuple(torch.tensor(case.inputs[a + b]) for a in "xy") for b in "ct")
    fix_draws(monkeypatch, case.inputs)
    loss = model.loss(context, target)
    loss.backward()
    expected = case.outputs["train_loss_iwae_K3" if name in ("np", "anp") else "train_loss"]
    np.testing.assert_allclose(loss.item(), expected, rtol=1e-12)
    norms = {key: 0.0 if x.grad is None else x.grad.norm().item() for key, x in model.named_parameters()}
    for key, norm in case.norms.items():
        np.testing.assert_allclose(norms[key], norm, rtol=1e-11, atol=1e-11, err_msg=key)


def constructed(name, config):
    """The released class with those arguments of the case that it has here; for the others it has one value."""
    known = {key for cls in released.MODELS[name].__mro__ for key in inspect.signature(cls.__init__).parameters}
    return released.MODELS[name](**{key: value for key, value in config.items() if key in known})


def fix_draws(monkeypatch, inputs):
    """Draws of the golden file, three of each."""
    monkeypatch.setattr(encoder_decoder, "_SAMPLES", 3)
    if "boot_idx" in inputs:
        draws = [torch.tensor(inputs[key].reshape(inputs["boot_idx"].shape)) for key in ("boot_idx", "res_idx")]
        monkeypatch.setattr(torch, "randint", lambda *args: draws.pop(0))
    if "eps_train" in inputs:
        noise = torch.tensor(inputs["eps_train"])
        monkeypatch.setattr(torch.distributions.Normal, "rsample", lambda self, shape: self.mean + self.stddev * noise)


@pytest.mark.parametrize("name", released.MODELS)
def test_parameters_are_as_many_as_ours(name):
    theirs = sum(x.numel() for x in released.MODELS[name]().parameters())
    model = MODELS[name].cls(**({"num_latents": 128} if "num_latents" in MODELS[name].cls.__dataclass_fields__ else {}))
    x = np.zeros((3, 1), np.float32)
    ours = jax.eval_shape(lambda: model.init(jax.random.key(0), Points(x, x), x, key=jax.random.key(0)))
    assert theirs == sum(leaf.size for leaf in jax.tree.leaves(ours))


def test_sizes_and_functions():
    """N of 3 to 46, N + M of at most 49; values of variance s^2 + 0.02^2, whose mean is 0.37."""
    torch.manual_seed(0)
    drawn = [points.sample(64) for _ in range(300)]
    shown, asked = (np.array([task[side][0].shape[1] for task in drawn]) for side in (0, 1))
    assert shown.min() == 3 and shown.max() == 46 and asked.min() == 3 and (shown + asked).max() <= 49
    values = np.array([task[0][1][:, 0].square().mean().item() for task in drawn])
    assert abs(values.mean() - 0.3704) < 4 * values.std() / len(values) ** 0.5


def test_a_step_learns():
    step = released.trainer("cnp", 1)
    losses = [step() for _ in range(60)]
    assert np.mean(losses[-20:]) < np.mean(losses[:20])
