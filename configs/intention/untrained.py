"""What the operators do before anything is learnt: Intention paper, Sections 2, 3; Appendices 3, 9; Figures 4, 5, 15.

    python -m scripts.sweep --config configs/intention/untrained.py:preset=quick     # all three
    python -m experiments.run --config configs/intention/untrained.py:figure=4,preset=quick

figure=4   linear regression in the plane: predictions and Pearson's r, inside and far outside the range of the keys
figure=5   time of Intention over that of attention, with the paper's explicit inverse and with our route by cost. The
           paper's figure holds 1809 repetitions on a grid it does not give; 7 x 7 sizes and 37 repeats make 1813
figure=15  variance of the Intention map under three scalings, beside the closed form. The paper's explosion at few
           dimensions is that of an inverse of what has none; ours is the pseudo-inverse, see ops.scaling.map_variance

Nothing is trained. `quick` is `paper`.
"""

from ml_collections import ConfigDict

from configs import common

MEASURES = {
    "4": dict(
        name="regression",
        ops=("softmax", "linear", "intention", "sigma_intention"),
        alpha=0.0,
        points=100,  # the paper does not give it
        queries=400,
        interpolation=1.0,  # half the side of the square of queries
        extrapolation=25.0,
        weight_variance=10.0,
        # The printed covariance [[0.7, 0.9], [0.9, 1.0]] is not positive semi-definite. NumPy's sampler, which takes
        # the singular values for the eigenvalues, draws from this one instead.
        key_covariance=((0.773, 0.838), (0.838, 1.052)),
        draws=300,
        seed=0,
        draws_seed=1,
    ),
    "5": dict(name="slowdown", sizes=(16, 32, 64, 128, 256, 512, 1024), repeats=37, alpha=1e-3),
    "15": dict(name="map_variance", points=(16, 32, 64), most=512, dimensions=25, draws=6, seed=0),
}


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one figure; axes: figure, preset."""
    axes = common.parse_axes(arg, figure=MEASURES, preset=common.PRESETS)
    config = dict(
        name="intention/untrained", experiment="intention.untrained", axes=axes, measure=MEASURES[axes["figure"]]
    )
    return common.edited(config, EDITS)


EDITS = {
    "preset=tiny,figure=4": {"measure": dict(draws=3)},
    "preset=tiny,figure=5": {"measure": dict(sizes=(4, 8), repeats=2)},
    "preset=tiny,figure=15": {"measure": dict(points=(2, 4), most=8, dimensions=3)},
}


def sweep() -> list[dict[str, str]]:
    """The three figures."""
    return [{"figure": figure} for figure in MEASURES]
