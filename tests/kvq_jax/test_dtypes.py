"""The dtypes of modules: what init makes, what is computed in them, what a prediction has, and who inherits them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax import models, nn, saved
from kvq_jax.models.event_processes.base import absent
from kvq_jax.nn.perceiver import PerceiverBlock
from kvq_jax.nn.transformer import TransformerEncoder
from tests.kvq_jax.models.event_processes import drawing as event_models
from tests.kvq_jax.models.test_laws import KEY, M, N, narrow, points
from tests.kvq_jax.nn.drawing import draw

HALF = dict(dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
CONTEXT, TARGET = points(N), points(M, seed=2)
ROWS = draw(N, 8)
SETS = (models.SetNetwork(8, pooling="pma"), models.SetAnomalyDetector(features=8, options=dict(hidden=4)))
BLOCKS = {
    "multi_head": (nn.MultiHead(2, 4, "intention"), (ROWS, ROWS, ROWS)),
    "grid": (nn.GridAttention(2, 4, query_sizes=(2, 2)), (draw(3, 3, 8),)),
    "isab": (nn.ISAB(8, num_inducing=3, **nn.SET_FORMS["paper"]), (ROWS,)),
    "pma": (nn.PMA(8, use_rff=True), (ROWS,)),
    "cmab": (nn.CMAB(4, 8, 2, 4, 8), (draw(4, 8), ROWS)),
    "perceiver": (PerceiverBlock(8, 2, 4, 8), (ROWS,)),
    "encoder": (TransformerEncoder(2, 2, 8), (ROWS,)),
    "np_former": (nn.NPFormerLayer(8, num_heads=2, head_features=4, context_features=8), (ROWS,)),
    "of_set": (nn.Mixer(dict(name="intention", alpha_kind="set")), (ROWS, ROWS, ROWS)),
    "conv": (nn.ConvEncoder(features=(4,)), (draw(2, 6, 6, 3),)),
    "resnet12": (nn.ResNet12(features=(4,)), (draw(2, 6, 6, 3),)),
    **{type(model).__name__: (model, (ROWS,)) for model in SETS},
}


def dtypes(tree):
    return {leaf.dtype.name for leaf in jax.tree.leaves(tree)}


def traced(model, *arguments, **options):
    """The dtypes of the parameters and of the prediction, and those of the factors of its products of two matrices."""
    variables = jax.eval_shape(lambda: model.init(jax.random.key(0), *arguments, **options))

    def predict(variables):
        prediction = model.apply(variables, *arguments, **options)
        return prediction if isinstance(prediction, jax.Array) else (prediction.mean, prediction.stddev)

    program, prediction = jax.make_jaxpr(predict, return_shape=True)(variables)
    return dtypes(variables), dtypes(prediction), products(program.jaxpr)


def products(program):
    """The dtypes of the matrices that a program multiplies, but for the operators': they promise float32 inside."""
    found = set()
    for equation in program.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda part: hasattr(part, "jaxpr")):
            found |= products(inner.jaxpr) if hasattr(inner, "jaxpr") else set()
        if equation.primitive.name == "dot_general" and equation.params["precision"] is None:
            found |= {variable.aval.dtype.name for variable in equation.invars}
    return found


@pytest.mark.parametrize("name", models.MODELS)
def test_a_model_computes_in_its_dtype_and_predicts_in_float32(name):
    """A regressor's prediction has the dtype of its last layer, densities have float32."""
    half = narrow(models.MODELS[name]).clone(**HALF)
    made, predicted, multiplied = traced(half, CONTEXT, TARGET.x, TARGET.mask, key=KEY)
    assert made == {"bfloat16"}
    assert multiplied == {"bfloat16"}
    assert predicted == {"bfloat16" if isinstance(half, models.Regressor) else "float32"}


@pytest.mark.parametrize("name", models.EVENT_MODELS)
def test_an_event_process_computes_in_its_dtype_however_it_is_asked(name):
    """In training with dropout, in evaluation, and served event by event; its state keeps its dtypes."""
    half, seen = event_models.narrow(name).clone(**HALF), event_models.events()
    variables = jax.eval_shape(lambda: half.init(KEY, seen))
    assert dtypes(variables) == {"bfloat16"}

    def encodings(variables):
        encode = lambda model, events, key: model.encode(absent(events), key).hidden
        state = half.apply(variables, (2,), method="init_state")
        after = half.apply(variables, state, seen, method="update_many")
        return [half.apply(variables, seen, key, method=encode) for key in (None, KEY)], (state, after)

    whole, (state, after) = jax.eval_shape(encodings, variables)
    assert dtypes(whole) == {"bfloat16"}
    assert jax.tree.map(lambda leaf: leaf.dtype, state) == jax.tree.map(lambda leaf: leaf.dtype, after)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_computes_in_its_dtype(name):
    module, arguments = BLOCKS[name]
    made, predicted, multiplied = traced(module.clone(**HALF), *arguments)
    assert made == predicted == {"bfloat16"} and multiplied <= {"bfloat16"}
    assert traced(module, *arguments)[:2] == ({"float32"}, {"float32"})


def test_every_module_has_dtypes():
    assert all(issubclass(cls, nn.Block) for cls in saved._classes().values())


@pytest.mark.parametrize("name", ["intention", "cmanp"])
def test_a_dtype_is_another_rounding_of_the_same_function(name):
    """Of float32 parameters: as of those rounded, and close to what float32 computes."""
    whole = narrow(models.MODELS[name])
    half = whole.clone(dtype="bfloat16")

    @jax.jit
    def means():
        variables = whole.init(jax.random.key(0), CONTEXT, TARGET.x)
        rounded = saved.Trained(whole, variables).astype(jnp.bfloat16)
        exact, own, of_rounded = (
            made.apply(held, CONTEXT, TARGET.x)
            for made, held in ((whole, variables), (half, variables), (rounded.model, rounded.variables))
        )
        mean = lambda prediction: prediction if name == "intention" else prediction.mean
        return mean(exact), mean(own).astype(jnp.float32), mean(of_rounded).astype(jnp.float32)

    exact, own, of_rounded = map(np.asarray, means())
    assert 0 < np.abs(own - exact).max() < 0.05 * np.abs(exact).max()
    np.testing.assert_allclose(own, of_rounded, atol=0.01 * np.abs(exact).max())


def test_the_nearest_dtype_holds():
    """A module has its own dtype before that of the module around it; what is not of numbers is refused."""
    outer = models.PrototypeClassifier(encoder=nn.ConvEncoder(features=(4,), dtype="float32"), dtype="bfloat16")
    images = draw(2, 6, 6, 3)
    assert traced(outer, images, np.eye(2, dtype=np.float32), images)[2] == {"float32"}
    assert nn.Linear(3, dtype=jnp.bfloat16) == nn.Linear(3, dtype="bfloat16")
    for wrong in ("blfoat16", int, "int8", 3):
        with pytest.raises(ValueError, match=f"^param_dtype={wrong!r} is no floating-point dtype"):
            models.CMANP(param_dtype=wrong)
