"""What configs share: their axes, complete sections, and edits by axes. Helpers, never a published number."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict, FieldReference

from kvq_jax import models
from kvq_jax.fields import knobs_of
from kvq_jax.names import choose, unknown
from kvq_jax.ops import OPERATORS

Edits = Mapping[str, Mapping[str, Any]]  # row -> section -> changes: see `edited`
PRESETS = ("quick", "tiny", "paper")
# Domain of an operator's alpha -> how it is learnt, and the value it starts at.
_LEARNT = {"positive": dict(alpha=0.1, alpha_kind="softplus"), "unit": dict(alpha=0.5, alpha_kind="sigmoid")}
# The form of a model where the axis says 'base': the first row that holds.
_FORMS = {"model=maml": "regression", "preset=paper": "paper", "": "regression"}
# Fields of models whose values have one of several types: a flag may give any of them.
OF_SEVERAL_TYPES = {"chunk", "cross_op", "gamma", "op", "self_attention"}
_STEADY = dict(schedule="constant", warmup_steps=0, decay_begin=0, decay_steps=1, decay_rate=1.0)
_STEADY |= dict(momentum=0.0, weight_decay=0.0, clip_norm=0.0)


def parse_axes(arg: str | None, **axes: Sequence[str]) -> dict[str, str]:
    """The axes of a config string 'model=maml,preset=quick', which follows the colon of --config.

    The first of an axis's values is its default. Raises ValueError for an unknown axis or value, with the nearest,
    and for an axis that is given twice.
    """
    chosen = {}
    for part in filter(None, (arg or "").split(",")):
        name, _, value = part.partition("=")
        if value not in choose(axes, name, "axis"):
            raise ValueError(unknown(name, value, axes[name]))
        if name in chosen:
            raise ValueError(f"axis {name!r} is given twice")
        chosen[name] = value
    return {name: chosen.get(name, next(iter(values))) for name, values in axes.items()}


def first(table: Mapping[str, Any], axes: Mapping[str, str]) -> Any:
    """The entry of the first row of `table`, named as in `edited`, that holds for the axes."""
    return next(entry for row, entry in table.items() if _holds(row, axes))


def resolved(axes: dict[str, str], table: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """`axes` with a value in place of each 'base': of the first row of `table`, named as in `edited`, that holds."""
    for row, values in table.items():
        if _holds(row, axes):
            axes = axes | {axis: value for axis, value in values.items() if axes[axis] == "base"}
    return axes


def take_form(axes: dict[str, str]) -> str:
    """The form of a model: 'paper' or 'regression'. The axis `form` stays in `axes` only where it changes the cell.

    'base' is the paper's form in `paper`, and a few-shot regressor in the other presets and for MAML. Raises ValueError
    for MAML in the paper's form: the paper has none.
    """
    form = axes.pop("form")
    own = first(_FORMS, axes)
    if form == "paper" and axes["model"] == "maml":
        raise ValueError("form=paper is for the models that the paper has here, not for model=maml")
    if form in ("base", own):
        return own
    axes["form"] = form
    return form


def section(cls: type, *given: str, **changes: Any) -> dict[str, Any]:
    """A complete section: every field of a dataclass or linen module, at its default or as `changes` say.

    The fields `given` are no part of the config, since the experiment sets them; nor are those that are set from Python
    only (kvq_jax.fields.LIBRARY). Raises ValueError for a change of an unknown field, with the nearest, and for a field
    without a default that is not changed.
    """
    fields = knobs_of(cls)
    for name in changes:
        choose(fields, name, f"field of {cls.__name__}")
    defaults = {name: _default(cls, field) for name, field in fields.items() if name not in (*changes, *given)}
    return {name: (defaults | changes)[name] for name in fields if name not in given}


def model(name: str, *given: str, table: Mapping[str, Any] = models.MODELS, **changes: Any) -> dict[str, Any]:
    """The complete section of a model: its name, a row of `table`, and the fields of its class. See `section`."""
    return dict(name=name) | section(choose(table, name, "model").cls, *given, **changes)


def operators() -> tuple[str, ...]:
    """The operators that may stand where attention stands: all whose values are not labels of classes."""
    return tuple(name for name, operator in OPERATORS.items() if not operator.labels)


def op(name: str, **positive: Any) -> str | dict[str, Any]:
    """The section of an operator, a row of OPERATORS, that learns its alpha, if it has one; otherwise its name.

    `positive` are changes for the operators that take any positive alpha, such as alpha=1.0. The Informers, defined for
    alpha in (0, 1), always start at 0.5.
    """
    domain = choose(OPERATORS, name, "op").alpha
    if domain is None:
        return name
    return dict(name=name) | _LEARNT[domain] | (positive if domain == "positive" else {})


def swap(axes: Mapping[str, str]) -> Edits:
    """Edits: the operator of the axis `op` in a model with a field of this name; 'own' leaves the model its own."""
    return {} if axes["op"] == "own" else {"": {"model": dict(op=op(axes["op"]))}}


def optimizer(name: str, learning_rate: float, **changes: Any) -> dict[str, Any]:
    """An optimizer section: `changes` of a constant rate without warm-up, momentum, weight decay or clipping."""
    for key in changes:
        choose(_STEADY, key, "optimizer field")
    return dict(name=name, learning_rate=learning_rate) | _STEADY | changes


def train(
    steps: int,
    batch_size: int,
    *,
    log_every: int,
    validate_every: int,
    checkpoint_every: int,
    seed: int = 0,
    seeds: int = 1,
    placement: str = "single",
    micro_batches: int = 1,
    size_classes: int = 0,
    select: str = "last",
) -> dict[str, Any]:
    """A train section. For the fields see experiments/harness/loop.py."""
    return dict(locals())


def evaluation(*, validation_batches: int = 32, untrained: bool = False, **own: Any) -> dict[str, Any]:
    """An evaluation section: what all experiments share, and the fields of its experiment's Evaluation."""
    return dict(seed=1000, validation_batches=validation_batches, untrained=untrained) | own


def edited(config: Mapping[str, Any], *tables: Edits) -> ConfigDict:
    """`config` after those of the edits that hold for its axes: one table after the other, row by row.

    Args:
      config: has a section `axes`.
      *tables: row -> section -> the values that it changes. A row is named as axes are on the command line, with
        alternatives: "preset=quick,model=cnp|np"; "" holds always. In a section whose name ends in '?', such as
        "model?", fields that this config does not have are passed over.

    Raises:
      ValueError: an unknown key, with the nearest.
    """
    for row, changes in itertools.chain.from_iterable(table.items() for table in tables):
        if _holds(row, config["axes"]):
            config = _changed(config, changes, "config")
    return _loosened(ConfigDict(config))


def _loosened(section: ConfigDict) -> ConfigDict:
    """`section`, whose fields OF_SEVERAL_TYPES take a value of any type, but where they are sections themselves."""
    for name, value in list(section.items()):
        if isinstance(value, ConfigDict):
            _loosened(value)
        elif name in OF_SEVERAL_TYPES:
            section[name] = FieldReference(value, field_type=object)
    return section


def attention_layers(width: int, head: int) -> dict[str, Any]:
    """The layers of a narrower few-shot attention."""
    wide = (width,) * 3
    return dict(key_features=wide, value_features=wide, decoder_features=wide[:2], head_features=head)


def process_layers(width: int) -> dict[str, Any]:
    """The layers of a narrower few-shot neural process."""
    return dict(encoder_features=(width, width, 16), decoder_features=(width,) * 3)


def _regressors(preset: str, width: int, head: int, maml: int) -> Edits:
    layers = {
        "intention": dict(key_features=(width, width)),
        "attention": attention_layers(width, head),
        "neural_process": process_layers(width),
        "mlp": dict(features=(width,) * 3),
        "maml": dict(features=(maml,) * 4),
    }
    return {f"preset={preset},model={name}": {"model": changes} for name, changes in layers.items()}


# Few-shot regressors where no source says how narrow they may be.
NARROW_REGRESSORS = _regressors("quick", 128, head=32, maml=64) | _regressors("tiny", 16, head=8, maml=16)
# The sine curves and the pixels in `tiny`.
TINY_REGRESSION = {
    "preset=tiny": {
        "train": dict(steps=40, seeds=2, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=20),
    },
    "preset=tiny,model=intention": {"model": dict(key_features=(32,) * 4, weight_features=(32,))},
    "preset=tiny,model=attention": {"model": attention_layers(16, head=8)},
    "preset=tiny,model=neural_process": {"model": process_layers(32)},
    "preset=tiny,model=maml": {"model": dict(features=(16,) * 4)},
}


def narrow_neural_processes() -> Edits:
    """Edits: neural processes with few latents and samples in `quick`, and narrow in `tiny`."""
    names = "|".join(models.family("neural_process"))
    few = dict(eval_samples=8, samples=8)
    narrow = dict(features=16, hidden=32, num_layers=2, latent=16, num_latents=4, num_block_latents=4)
    return {
        f"preset=quick,model={names}": {"model?": few | dict(num_latents=8, num_block_latents=8)},
        f"preset=tiny,model={names}": {"model?": few | narrow},
        f"preset=tiny,model={'|'.join(floored())}": {"model": dict(hidden=16)},
    }


def floored() -> tuple[str, ...]:
    """The neural processes whose standard deviation has a floor."""
    rows = models.family("neural_process").items()
    return tuple(name for name, row in rows if getattr(row.cls, "std_floor", 0) > 0)


def _holds(row: str, axes: Mapping[str, str]) -> bool:
    conditions = (part.partition("=") for part in filter(None, row.split(",")))
    return all(axes[axis] in values.split("|") for axis, _, values in conditions)


def _changed(section: Mapping[str, Any], changes: Mapping[str, Any], where: str, optional: bool = False) -> dict:
    result = dict(section)
    for name, value in changes.items():
        key = name.removesuffix("?")
        if key not in result:
            if optional:
                continue
            raise ValueError(unknown(f"key of {where}", key, result))
        if isinstance(value, Mapping) and isinstance(result[key], Mapping):
            value = _changed(result[key], value, f"{where}.{key}", optional=name.endswith("?"))
        result[key] = value
    return result


def _default(cls: type, field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise ValueError(f"{cls.__name__}.{field.name} has no default: the config gives it")
    return dict(field.default) if isinstance(field.default, Mapping) else field.default
