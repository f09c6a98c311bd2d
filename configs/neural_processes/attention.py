"""What the attention of a neural process does: the kinds of the ANP slides, and KVQ space on images. Ours.

    python -m experiments.run --config configs/neural_processes/attention.py:attention=laplace,data=gp,preset=quick
    python -m scripts.sweep --config configs/neural_processes/attention.py:data=emnist,preset=quick --data_dir DATA
    python -m scripts.sweep --config configs/neural_processes/attention.py:data=gp,protocol=slides --cells kinds
    python -m scripts.tables --table kvq/images

Everything else is that of gp.py (data=gp) and of images.py, with their protocols. Of data=gp,protocol=slides the loss
and the rate, too, are those of the slides' notebook: the ELBO with one latent sample, and 1e-4 to the end. Nearest to
its ANP is attention=multihead. attention= is what ANP reads the context with, at a target:

uniform             the mean of the values, for every target: the deterministic path of NP
laplace             softmax of -|x - x'|_1, on the coordinates themselves
dot_product         softmax of k(x)'k(x') / sqrt(d), one head
multihead           eight heads of it, each with projections of its own: the block of the released code, but that
                    scores are divided by sqrt(d) of a head
stacked_multihead   the same, after two layers of self-attention in both encoders
own                 what the model has: for ANP eight heads, scaled by sqrt(hidden), after one such layer

The first three have no projections and no layer after them; all but the last two have no self-attention. Sources: Kim
et al. 2019 (arXiv 1901.05761), Section 3 and Figure 2; the slides do not say how many layers are stacked.

op= puts another operator in the place of that of ANP's cross-attention, or of the one by which CMANP's blocks read the
context. Operators with an alpha learn it for each head, from 0.1, the Informers from 0.5. constrained_intention, a
quadratic program for every column of every head, is no cell of the sweep: it takes longest by far.
"""

from ml_collections import ConfigDict

from configs import common
from configs.neural_processes import gp, images

KINDS = ("own", "uniform", "laplace", "dot_product", "multihead", "stacked_multihead")
IMAGES = ("digits", "mnist", "emnist", "celeba32")


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, data, attention, op, preset, protocol, and for data=gp std.

    Raises ValueError where they do not fit.
    """
    axes = common.parse_axes(
        arg,
        model=("anp", "cmanp"),
        data=(*IMAGES, "gp"),
        attention=KINDS,
        op=("own", *common.operators()),
        preset=common.PRESETS,
        protocol=gp.PROTOCOLS,
        std=gp.STDS,
    )
    if axes["model"] != "anp" and axes["attention"] != "own":
        raise ValueError(f"attention={axes['attention']} is for model=anp")
    if axes["data"] == "gp":
        file, shared = gp, ("model", "preset", "protocol", "std")
    else:
        file, shared = images, ("model", "preset", "protocol", "data")
        for axis, values in dict(protocol=images.PROTOCOLS, std=gp.STDS[:1]).items():
            if axes[axis] not in values:
                raise ValueError(f"{axis}={axes[axis]} is for data=gp")
        del axes["std"]
    config = file.get_config(",".join(f"{axis}={axes[axis]}" for axis in shared)).to_dict()
    config |= dict(name="neural_processes/attention", axes=axes)
    swap = {} if axes["op"] == "own" else {common.first(_OPS, axes): common.op(axes["op"])}
    return common.edited(config, AXES, {"": {"model": swap}})


# The field of a model whose operator the axis names.
_OPS = {"model=anp": "op", "model=cmanp": "cross_op"}
_DATA = "|".join(IMAGES)
AXES = {
    f"data={_DATA},model=anp": {"evaluation": dict(example_shown=("attention",))},
    f"data={_DATA},attention={'|'.join(KINDS[1:])}": {
        "evaluation": dict(example_shown=("half", "resolution", "attention"))
    },
    # It is not linear in its values, and has no map.
    f"data={_DATA},op=constrained_intention": {"evaluation": dict(example_shown=())},
    "attention=uniform": {"model": dict(op="uniform", num_heads=0, key_depth=0, self_attention=False)},
    "attention=laplace": {"model": dict(op="laplace", num_heads=0, key_depth=0, scaling="none", self_attention=False)},
    "attention=dot_product": {"model": dict(num_heads=0, scaling="head", self_attention=False)},
    "attention=multihead": {"model": dict(scaling="head", self_attention=False)},
    "attention=stacked_multihead": {"model": dict(scaling="head", self_attention=2)},
    "data=gp,protocol=slides": {
        "model?": dict(objective="elbo", train_samples=1),
        "optimizer": dict(schedule="constant"),
    },
    # Five times the steps of the other protocols, at a fifth of their rate.
    "preset=quick,data=gp,protocol=slides": {"train": dict(steps=10_000)},
}


def sweep() -> list[dict[str, str]]:
    """ANP with each kind of attention, and ANP and CMANP with each operator."""
    ops = [op for op in common.operators() if op != "constrained_intention"]
    return kinds() + [{"model": model, "op": op} for model in ("anp", "cmanp") for op in ops]


def kinds() -> list[dict[str, str]]:
    """ANP with each kind of attention."""
    return [{"model": "anp", "attention": kind} for kind in KINDS[1:]]
