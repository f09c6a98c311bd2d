"""What the tables of the Set Transformer print (Lee et al. 2019, arXiv 1810.00825)."""

from experiments.harness.tables import Cell


def _cell(mean: float, spread: float | None = None) -> Cell:
    return Cell(mean, spread, decimals=4)


# Table 1: model -> mean absolute error of the maximum, and its spread over five runs.
MAX = {
    "rff_mean": Cell(2.133, 0.190, decimals=3),
    "rff_sum": Cell(1.902, 0.137, decimals=3),
    "rff_max": Cell(0.1355, 0.0074, decimals=4),
    "sab_pma": Cell(0.2085, 0.0127, decimals=4),
}

# Table 2 and its supplement: model -> accuracy of counting unique characters, and its standard error over sets.
COUNTING = {
    "rff_mean": _cell(0.4382, 0.0072),
    "rffp_mean": _cell(0.4617, 0.0076),
    "rffp_max": _cell(0.4359, 0.0077),
    "rff_dotprod": _cell(0.4471, 0.0076),
    "rff_pma": _cell(0.4572, 0.0076),
    "sab_mean": _cell(0.5659, 0.0077),
    "sab_dotprod": _cell(0.5888, 0.0075),
    "sab_pma": _cell(0.6037, 0.0075),
    "sab_pma2": _cell(0.5806, 0.0075),
    "sab_pma4": _cell(0.5945, 0.0075),
    "sab_pma8": _cell(0.6001, 0.0075),
}

# Set anomalies (Section 5.5): model -> metric -> area under the curve; and what chance gives.
ANOMALY = {"sab_pma": dict(auroc=_cell(0.5941), aupr=_cell(0.4386))}
CHANCE = dict(auroc=Cell(0.5, decimals=1), aupr=Cell(0.125, decimals=3))

ORACLE = "oracle"
# Table 3: model -> log-likelihood of a point, and after one step of EM; and the spreads of five runs.
CLUSTERING = {
    ORACLE: (_cell(-1.4726), None),
    "rff_mean": (_cell(-2.0006, 0.0123), _cell(-1.6186, 0.0042)),
    "rffp_mean": (_cell(-1.7606, 0.0213), _cell(-1.5191, 0.0026)),
    "rffp_max": (_cell(-1.7692, 0.0130), _cell(-1.5103, 0.0035)),
    "rff_dotprod": (_cell(-1.8549, 0.0128), _cell(-1.5621, 0.0046)),
    "sab_mean": (_cell(-1.6772, 0.0066), _cell(-1.5070, 0.0115)),
    "isab16_mean": (_cell(-1.6955, 0.0730), _cell(-1.4742, 0.0158)),
    "rff_pma": (_cell(-1.6680, 0.0040), _cell(-1.5409, 0.0037)),
    "sab_pma": (_cell(-1.5145, 0.0046), _cell(-1.4619, 0.0048)),
    "isab16_pma": (_cell(-1.5009, 0.0068), _cell(-1.4530, 0.0037)),
    "isab32_pma": (_cell(-1.4963), _cell(-1.4524)),
    "isab64_pma": (_cell(-1.5042), _cell(-1.4535)),
}
# The table of large sets, as above.
LARGE = {
    ORACLE: (_cell(-1.8202), None),
    "rff_mean": (_cell(-2.5195), _cell(-2.0709)),
    "rffp_mean": (_cell(-2.3126), _cell(-1.9749)),
    "rff_pma": (_cell(-2.0515), _cell(-1.9424)),
    "isab32_pma": (_cell(-1.8928, 0.0076), _cell(-1.8549, 0.0024)),
}

# The network whose features of CIFAR-100 are clustered: percent of the test images whose class it finds.
ENCODER = Cell(68.54, decimals=2)

# Features of CIFAR-100: model -> adjusted Rand index, and after one step of EM; the oracle's is of EM.
FEATURES = {
    ORACLE: (_cell(0.9150), None),
    "rff_mean": (_cell(0.5593), _cell(0.5693)),
    "rffp_mean": (_cell(0.5673), _cell(0.5798)),
    "rffp_max": (_cell(0.5369), _cell(0.5536)),
    "rff_dotprod": (_cell(0.5666), _cell(0.5763)),
    "sab_mean": (_cell(0.5831), _cell(0.5943)),
    "isab16_mean": (_cell(0.5672), _cell(0.5805)),
    "rff_pma": (_cell(0.7612), _cell(0.7670)),
    "sab_pma": (_cell(0.9015), _cell(0.9024)),
    "isab16_pma": (_cell(0.9210, 0.0055), _cell(0.9223)),
    "isab32_pma": (_cell(0.9103), None),
    "isab64_pma": (_cell(0.9141), None),
}

# Table 4, ModelNet40: model -> number of points -> accuracy.
CLOUDS = {
    "rff_mean": {100: _cell(0.7951), 1000: _cell(0.8551), 5000: _cell(0.8933)},
    "isab16_pma": {100: _cell(0.8454), 1000: _cell(0.8662), 5000: _cell(0.8779)},
}


def printed(cell: Cell | None) -> Cell | str:
    """A number of a table, '(none)' where there is none."""
    return "(none)" if cell is None else cell
