"""What configs share: parsing of their axes and the shapes of common sections. Helpers, never a published number."""
import difflib
from collections.abc import Sequence


def parse_axes(arg: str | None, **axes: Sequence[str]) -> dict[str, str]:
    """The axes of a config string 'model=maml,preset=quick'.

    Args:
      arg: what follows the colon of --config.
      **axes: name of an axis -> its values, the first of which is the default.

    Raises:
      ValueError: an unknown axis or value; names the nearest known one.
    """
    chosen = {name: values[0] for name, values in axes.items()}
    for part in filter(None, (arg or "").split(",")):
        name, _, value = part.partition("=")
        _require(name, axes, "axis")
        _require(value, axes[name], name)
        chosen[name] = value
    return chosen


def optimizer(name: str, learning_rate: float, **changes) -> dict:
    """An optimizer section: `changes` over a constant rate without warm-up, decay, momentum, weight decay or clipping."""
    section = dict(
        name=name,
        learning_rate=learning_rate,
        schedule="constant",
        warmup_steps=0,
        decay_begin=0,
        decay_steps=1,
        decay_rate=1.0,
        momentum=0.0,
        weight_decay=0.0,
        clip_norm=0.0,
    )
    for key in changes:
        _require(key, section, "optimizer field")
    return section | changes


def _require(word: str, known: Sequence[str], what: str) -> None:
    if word not in known:
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown {what} {word!r}{hint} (known: {', '.join(known)})")
