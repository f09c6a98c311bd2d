"""Memory and time of neural processes by the number of points: CMANP paper, Table 8, Figures 3, 4, 8.

    python -m scripts.sweep --config configs/neural_processes/complexity.py:preset=quick     # all of it
    python -m experiments.run --config configs/neural_processes/complexity.py:what=memory,preset=quick

what=memory   bytes of conditioning, querying and updating, for every model (Table 8, and the orders of Tables 1 and 2)
what=times    seconds of the same
what=context  memory and time by the size of the context, of the models that Figure 3 compares
what=update   seconds of an update by new points, beside conditioning anew (Figure 8)
what=blocks   seconds of CMANP-AND's likelihood by the size of its blocks (the times of Figure 4)
what=images   bytes of the gradient of a published batch of images at 64x64 and 128x128, of every model (Table 3: which
              fit). A batch has 50 and 25 images of 800 and 1600 points, of which 400 are targets.

Nothing is trained. `paper` has the published sizes of all models. `quick` has fewer samples, in what=memory narrow
models, as their programs are compiled by the hundred, and in what=blocks 8 latents of either kind.
"""

from ml_collections import ConfigDict

from configs import common
from configs.neural_processes import images
from kvq_jax.models import family

JOINT, MARGINAL = ("tnp_nd", "lbanp_nd", "cmanp_and"), ("tnp_d", "eqtnp", "lbanp", "cmanp")
FIELDS = ("quantity", "phase", "vary", "sizes", "fixed", "models")
SIZES = (64, 256, 1024, 4096)
# What is measured together: series -> its FIELDS. No models: every neural process.
SERIES = {
    "memory": {
        "conditioning_context": ("memory", "conditioning", "context", (128, 256, 384), 64, None),
        "querying_context": ("memory", "querying", "context", (128, 256, 384), 64, None),
        "querying_points": ("memory", "querying", "points", (128, 256, 384), 64, None),
        "updating_context": ("memory", "updating", "context", (128, 256, 384), 64, None),
        "updating_points": ("memory", "updating", "points", (128, 256, 384), 64, None),
    },
    "times": {
        "conditioning": ("time", "conditioning", "context", (128, 1024), 128, None),
        "querying": ("time", "querying", "context", (128, 1024), 128, None),
        "querying_points": ("time", "querying", "points", (1024,), 128, None),
        "updating": ("time", "updating", "context", (128, 1024), 128, None),
    },
    "context": {
        # A joint covariance of more targets would not fit a small machine.
        "joint": ("memory", "querying", "points", (64, 256, 1024), 64, JOINT),
        "conditioning": ("memory", "conditioning", "context", SIZES, 64, MARGINAL),
        "querying": ("memory", "querying", "context", SIZES, 64, MARGINAL),
        "time": ("time", "querying", "context", SIZES, 64, MARGINAL),
    },
    "update": {
        "update": ("time", "updating", "context", SIZES, 64, ("eqtnp", "lbanp", "cmanp")),
        "anew": ("time", "anew", "context", SIZES, 64, ("cmanp",)),
        "query": ("time", "querying", "context", SIZES, 64, MARGINAL),
    },
    "blocks": {"blocks": ("time", "judging", "block_size", (1, 5, 10, 25, 46), 46, ("cmanp_and",))},
    "images": {
        "celeba64": ("memory", "training", "context", (400,), 400, None),
        "celeba128": ("memory", "training", "context", (1200,), 400, None),
    },
}
# Series of images -> images in a batch. All others are of one function.
BATCHES = {"celeba64": 50, "celeba128": 25}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of what is measured together; axes: what, preset."""
    axes = common.parse_axes(arg, what=SERIES, preset=common.PRESETS)
    every = common.first(FEW, axes) or tuple(family("neural_process"))
    series = {name: dict(zip(FIELDS, row, strict=True)) for name, row in SERIES[axes["what"]].items()}
    series = {name: row | dict(models=row["models"] or every) for name, row in series.items()}
    config = dict(
        name="neural_processes/complexity",
        experiment="neural_processes.complexity",
        axes=axes,
        models={name: _model(axes["what"], name) for row in series.values() for name in row["models"]},
        series={name: row | dict(batch=BATCHES.get(name, 0)) for name, row in series.items()},
        measurement=dict(chunk=64, turns=5, budget_s=0.3, dim_x=2 if axes["what"] == "images" else 1),
    )
    return common.edited(config, EDITS)


def _model(what: str, name: str) -> dict:
    """The published model of functions of one input, or of faces, which has the same sizes at every resolution."""
    if what != "images":
        return common.model(name)
    return images.get_config(f"model={name},data=celeba64,preset=paper").model.to_dict()


FEW = {
    "preset=tiny,what=memory": ("cnp", "tnp_d", "cmanp"),
    "preset=tiny,what=times|images": ("tnp_d", "lbanp"),
    "": None,
}


def _models(**fields: int) -> common.Edits:
    """An edit of all models that a config has, in the fields that they have."""
    return {"models?": {f"{name}?": fields for name in family("neural_process")}}


def _series(what: str, **fields: object) -> common.Edits:
    return {"series": dict.fromkeys(SERIES[what], fields)}


def _narrow(**fields: int) -> common.Edits:
    narrow = _models(features=16, latent=16, num_latents=8, num_block_latents=8, **fields)
    encoders = {f"{name}?": dict(hidden=16, num_heads=2, latent=16) for name in common.floored()}
    return {"models?": narrow["models?"] | encoders}


EDITS = {
    "preset=quick,what=memory": _narrow(num_layers=2),
    "preset=quick|tiny,what=memory|times": _models(eval_samples=4, samples=4),
    "preset=quick,what=blocks": _models(num_latents=8, num_block_latents=8),
    "preset=tiny": _narrow(num_layers=1, std_layers=1) | {"measurement": dict(turns=1, budget_s=0.0)},
    "preset=tiny,what=memory": _series("memory", sizes=(32, 64, 128), fixed=8),
    "preset=tiny,what=times": {
        "series": _series("times", sizes=(4, 8), fixed=4)["series"] | {"querying_points": dict(sizes=(8,), fixed=4)}
    },
    "preset=tiny,what=context": _series("context", sizes=(8, 16), fixed=4),
    "preset=tiny,what=update": _series("update", sizes=(8, 16), fixed=4),
    "preset=tiny,what=blocks": _series("blocks", sizes=(1, 46)),
    "preset=tiny,what=images": _series("images", sizes=(8,), fixed=4, batch=2),
}


def sweep() -> list[dict[str, str]]:
    """All that is measured."""
    return [{"what": what} for what in SERIES]
