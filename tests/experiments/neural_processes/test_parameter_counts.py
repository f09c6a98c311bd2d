"""Numbers of parameters of the paper presets, counted from the tensors of the released code, with 128 latents."""

import math

import jax
import jax.numpy as jnp
import pytest

from configs.neural_processes import gp, images, wheel
from kvq_jax.models import MODELS, Points

# The wheel's LBANP is released with 8 latents of width 16 and 55,258 parameters; the paper's 128 are 120 rows more.
WHEEL_LBANP = 55_258 + 120 * 16
# Model -> GP functions, EMNIST, CelebA, wheel; ours are not published.
PARAMETERS = {
    "cnp": (215_682, 298_626, 349_190, 218_122),
    "canp": (331_906, 414_978, 465_542, 334_474),
    "np": (232_194, 315_138, 365_702, 234_634),
    "anp": (348_418, 431_490, 482_054, 350_986),
    "bnp": (248_450, 331_394, 381_958, 250_890),
    "banp": (364_674, 447_746, 498_310, 367_242),
    "tnp_d": (222_082, 222_146, 222_790, 15_530),
    "tnp_a": (222_082, 222_146, 222_790, None),
    "tnp_nd": (332_821, 332_885, 338_431, None),
    "eqtnp": (492_354, 492_482, 493_126, 33_402),
    "lbanp": (792_514, 792_642, 793_286, WHEEL_LBANP),
    "lbanp_nd": (911_831, 911_959, 918_021, None),
    "cmanp": (1_341_634, 1_341_762, 1_342_406, None),
    "cmanp_and": (1_460_951, 1_461_079, 1_467_141, None),
}
PLACES = [(gp, "", 1), (images, ",data=emnist", 2), (images, ",data=celeba32", 2), (wheel, "", 2)]


def count(cls: type, fields: dict, dim_x: int) -> int:
    """The number of parameters, all float32."""
    model = cls(**fields)
    points = Points(jnp.zeros((3, dim_x)), jnp.zeros((3, model.dim_y)))
    init = lambda key: model.init(key, points, points, key=key, method="loss")
    leaves = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)
    return sum(math.prod(leaf.shape) for leaf in leaves)


@pytest.mark.parametrize("model", PARAMETERS)
def test_the_paper_preset_has_the_published_number_of_parameters(model):
    for (file, data, dim_x), expected in zip(PLACES, PARAMETERS[model], strict=True):
        if expected is not None:
            section = file.get_config(f"model={model},preset=paper{data}").model.to_dict()
            cls = MODELS[section.pop("name")].cls
            assert count(cls, section, dim_x) == expected, (file.__name__, data)
