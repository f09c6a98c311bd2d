"""Every number of tests/golden, and of the published fixtures at full width, is what our models compute in float64."""

import jax
import numpy as np
import pytest

from kvq_jax.models import join
from tests.kvq_jax.models.neural_processes import golden
from tests.kvq_jax.models.neural_processes.golden_outputs import OUTPUTS, of_levels, sides, train_loss

CASES = list(golden.read()["cases"])
FULL_WIDTH = ["anp", "tnpnd", "cmanp_8_16"]


def compare(found, expected, tolerance=1e-9):
    """Relative to the largest entry of each output."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (np.shape(value), np.float64), name
        error = np.abs(found[name] - value).max()
        assert error <= tolerance * np.abs(value).max(), f"{name}: {error}"


def check(case):
    (loss,) = case.outputs.keys() & {"train_loss", "train_loss_iwae_K3", "train_loss_iwae_K4"}

    def program(apply, params):
        value, gradient = jax.value_and_grad(lambda params: apply(params, train_loss))(params)
        return apply(params, OUTPUTS[case.kind]) | {loss: value}, gradient

    found, gradient = golden.run(case, program)
    compare(found, case.outputs)
    compare(golden.norms_by_tensor(case, gradient), case.norms)


def test_nothing_is_left_out():
    cases = golden.read()["cases"].values()
    assert (len(cases), sum(len(case["outputs"]) for case in cases)) == (21, 216)
    assert sum(len(case["gradnorms"]) for case in cases) == 2197
    assert {case["model"] for case in cases} == OUTPUTS.keys()


def test_the_formula_fills_by_rows():
    """What the checksums do not see."""
    weight = golden.golden("cnp").tensors["enc1.net_pre.0.weight"]
    assert weight.shape == (16, 2)
    np.testing.assert_allclose(weight[:2], [[-1.017092824, -0.296364903], [0.445654452, 0.584876299]], atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_published_model(x64, name):
    """Outputs and gradient norms of one."""
    check(golden.golden(name))


def test_an_update_is_the_whole_context_at_once(x64):
    """The numbers after CMANP's update, without one."""
    case = golden.golden("cmanp")

    def at_once(model, inputs):
        context, target = sides(inputs)
        return of_levels(model, model.levels(join(context, target)), target)[0]

    updated = {name.removeprefix("after_update_"): x for name, x in case.outputs.items() if name.startswith("after")}
    compare(golden.run(case, lambda apply, params: apply(params, at_once)), updated)


@pytest.mark.parametrize("name", FULL_WIDTH)
def test_published_model_at_full_width(parity_dir, x64, name):
    check(golden.full_width(parity_dir, name))
