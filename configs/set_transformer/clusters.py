"""Amortised clustering with a number of clusters that varies from set to set. Ours, after Table 3 of Lee et al. 2019.

    python -m experiments.run --config configs/set_transformer/clusters.py:model=isab16_pma,preset=quick
    python -m scripts.sweep --config configs/set_transformer/clusters.py:preset=quick

Two to six clusters, and 100 to 500 points; the network is told how many. Everything else, op and form too, is as in
clustering.py.
"""

from ml_collections import ConfigDict

from configs import common
from configs.set_transformer import clustering

MODELS = ("rff_mean", "rff_pma", "sab_pma", "isab16_pma")
_MOST = 6


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, preset, size, form, op."""
    axes = common.parse_axes(
        arg,
        model=MODELS,
        preset=common.PRESETS,
        size=("varying",),
        form=("code", "paper"),
        op=("own", *common.operators()),
    )
    own = {axis: axes[axis] for axis in ("model", "preset", "form", "op")}
    config = clustering.get_config(",".join(f"{axis}={value}" for axis, value in own.items())).to_dict()
    named = dict(name="set_transformer/clusters", experiment="set_transformer.clusters", axes=axes)
    config["task"]["min_clusters"] = 2
    return common.edited(config | named, EDITS)


EDITS = {
    "": {"task": dict(clusters=_MOST), "model": dict(num_seeds=_MOST, num_outputs=_MOST)},
    "preset=quick": {"train": dict(seeds=3)},
    "preset=tiny": {"model": dict(encoder_layers=1), "train": dict(size_classes=1), "evaluation": dict(batch_size=6)},
}


def sweep() -> list[dict[str, str]]:
    """The cells of the table."""
    return [{"model": model} for model in MODELS]
