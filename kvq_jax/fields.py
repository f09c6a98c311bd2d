"""The fields of a class that its user sets."""

import dataclasses

from flax import linen as nn

_OF_FLAX = ("parent", "name")  # what flax.linen adds to every module


def fields_of(cls: type) -> dict[str, dataclasses.Field]:
    """The fields of a dataclass or linen module that its constructor takes, by name, without those of Flax itself."""
    skipped = _OF_FLAX if issubclass(cls, nn.Module) else ()
    return {field.name: field for field in dataclasses.fields(cls) if field.init and field.name not in skipped}
