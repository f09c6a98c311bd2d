"""KVQ space in one picture: what every operator predicts, untrained, from one small context. Ours.

    python -m experiments.run --config configs/kvq/space.py:preset=quick

All operators see the same keys and queries, random features of x in one dimension. Nothing is trained. `quick` is
`paper`.
"""

from ml_collections import ConfigDict

from configs import common


def get_config(arg: str | None = None) -> ConfigDict:
    """The config; axes: preset."""
    config = dict(
        name="kvq/space",
        experiment="kvq.space",
        axes=common.parse_axes(arg, preset=common.PRESETS),
        measure=dict(
            points=8,
            context=0.9,
            jitter=0.08,
            grid=261,
            span=1.3,
            features=48,
            bandwidth=0.3,
            seed=3,
            feature_seed=7,
            labels=("ls_svm",),  # operators that get labels although they take any values: ls_svm fits 2 y - 1
        ),
    )
    return common.edited(config, {"preset=tiny": {"measure": dict(grid=11)}})


def sweep() -> list[dict[str, str]]:
    """The one picture."""
    return [{}]
