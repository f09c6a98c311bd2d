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

# Table 2, and for what it has not, that of the supplement: model -> accuracy of counting unique characters, and its
# spread. The supplement prints some of the same rows otherwise: rFF + Pooling 0.4366 ± 0.0071, rFF + PMA 0.4617 ±
# 0.0073, and the spreads of SAB + Pooling, 0.0067, and of SAB + PMA, 0.0072.
COUNTING = {
    "rff_mean": _cell(0.4382, 0.0072),
    "rffp_mean": _cell(0.4617, 0.0076),
    "rffp_max": _cell(0.4359, 0.0077),
    "rff_dotprod": _cell(0.4471, 0.0076),
    "rff_pma": _cell(0.4572, 0.0076),
    "sab_mean": _cell(0.5659, 0.0077),
    "sab_dotprod": _cell(0.5888, 0.0072),
    "sab_pma": _cell(0.6037, 0.0075),
    "sab_pma2": _cell(0.5806, 0.0075),
    "sab_pma4": _cell(0.5945, 0.0072),
    "sab_pma8": _cell(0.6001, 0.0078),
}

# Table 5: model -> metric -> area under the curve, and its spread over five runs; and what chance gives.
ANOMALY = {
    "rff_mean": dict(auroc=_cell(0.5643, 0.0139), aupr=_cell(0.4126, 0.0108)),
    "rffp_mean": dict(auroc=_cell(0.5687, 0.0061), aupr=_cell(0.4125, 0.0127)),
    "rffp_max": dict(auroc=_cell(0.5717, 0.0117), aupr=_cell(0.4135, 0.0162)),
    "rff_dotprod": dict(auroc=_cell(0.5671, 0.0139), aupr=_cell(0.4155, 0.0115)),
    "sab_mean": dict(auroc=_cell(0.5757, 0.0143), aupr=_cell(0.4189, 0.0167)),
    "rff_pma": dict(auroc=_cell(0.5756, 0.0130), aupr=_cell(0.4227, 0.0127)),
    "sab_pma": dict(auroc=_cell(0.5941, 0.0170), aupr=_cell(0.4386, 0.0089)),
}
CHANCE = dict(auroc=Cell(0.5, decimals=1), aupr=Cell(0.125, decimals=3))

ORACLE = "oracle"
# Table 3 and that of the supplement: model -> log-likelihood of a point, and after one step of EM; and the spreads of
# five runs.
CLUSTERING = {
    ORACLE: (_cell(-1.4726), None),
    "rff_mean": (_cell(-2.0006, 0.0123), _cell(-1.6186, 0.0042)),
    "rffp_mean": (_cell(-1.7606, 0.0213), _cell(-1.5191, 0.0026)),
    "rffp_max": (_cell(-1.7692, 0.0130), _cell(-1.5103, 0.0035)),
    "rff_dotprod": (_cell(-1.8549, 0.0128), _cell(-1.5621, 0.0046)),
    "sab_mean": (_cell(-1.6772, 0.0066), _cell(-1.5070, 0.0115)),
    "isab16_mean": (_cell(-1.6955, 0.0730), _cell(-1.4742, 0.0158)),
    "isab32_mean": (_cell(-1.6353, 0.0182), _cell(-1.4681, 0.0038)),
    "isab64_mean": (_cell(-1.6349, 0.0429), _cell(-1.4664, 0.0080)),
    "rff_pma": (_cell(-1.6680, 0.0040), _cell(-1.5409, 0.0037)),
    "sab_pma": (_cell(-1.5145, 0.0046), _cell(-1.4619, 0.0048)),
    "isab16_pma": (_cell(-1.5009, 0.0068), _cell(-1.4530, 0.0037)),
    "isab32_pma": (_cell(-1.4963, 0.0064), _cell(-1.4524, 0.0044)),
    "isab64_pma": (_cell(-1.5042, 0.0158), _cell(-1.4535, 0.0053)),
}
# The table of large sets, as above.
LARGE = {
    ORACLE: (_cell(-1.8202), None),
    "rff_mean": (_cell(-2.5195, 0.0105), _cell(-2.0709, 0.0062)),
    "rffp_mean": (_cell(-2.3126, 0.0154), _cell(-1.9749, 0.0062)),
    "rff_pma": (_cell(-2.0515, 0.0067), _cell(-1.9424, 0.0047)),
    "isab32_pma": (_cell(-1.8928, 0.0076), _cell(-1.8549, 0.0024)),
}

# The network whose features of CIFAR-100 are clustered: percent of the test images whose class it finds.
ENCODER = Cell(68.54, decimals=2)

# Features of CIFAR-100 (Table 3 and the supplement): model -> adjusted Rand index, and after one step of EM, and their
# spreads over five runs; the oracle's is of EM, and 0.9151 in the supplement.
FEATURES = {
    ORACLE: (_cell(0.9150), None),
    "rff_mean": (_cell(0.5593, 0.0149), _cell(0.5693, 0.0171)),
    "rffp_mean": (_cell(0.5673, 0.0053), _cell(0.5798, 0.0058)),
    "rffp_max": (_cell(0.5369, 0.0154), _cell(0.5536, 0.0186)),
    "rff_dotprod": (_cell(0.5666, 0.0221), _cell(0.5763, 0.0212)),
    "sab_mean": (_cell(0.5831, 0.0341), _cell(0.5943, 0.0337)),
    "isab16_mean": (_cell(0.5672, 0.0124), _cell(0.5805, 0.0122)),
    "isab32_mean": (_cell(0.5587, 0.0104), _cell(0.5700, 0.0134)),
    "isab64_mean": (_cell(0.5586, 0.0205), _cell(0.5708, 0.0183)),
    "rff_pma": (_cell(0.7612, 0.0237), _cell(0.7670, 0.0231)),
    "sab_pma": (_cell(0.9015, 0.0097), _cell(0.9024, 0.0097)),
    "isab16_pma": (_cell(0.9210, 0.0055), _cell(0.9223, 0.0056)),
    "isab32_pma": (_cell(0.9103, 0.0061), _cell(0.9119, 0.0052)),
    "isab64_pma": (_cell(0.9141, 0.0040), _cell(0.9153, 0.0041)),
}

QUOTED = "rFF + Pooling (Zaheer et al.)"  # a network with a training of its own, which we have not
# Table 4, ModelNet40: model -> number of points -> accuracy, and its spread over five runs. Its pooling is the maximum
# (supplement, Table 10). The first two rows are quoted there from Zaheer et al. 2017.
CLOUDS = {
    QUOTED: {1000: Cell(0.83, 0.01, decimals=2)},
    "rffp_max": {
        100: Cell(0.82, 0.02, decimals=2),
        1000: Cell(0.87, 0.01, decimals=2),
        5000: Cell(0.90, 0.003, decimals=3),
    },
    "rff_max": {100: _cell(0.7951, 0.0166), 1000: _cell(0.8551, 0.0142), 5000: _cell(0.8933, 0.0156)},
    "rff_pma": {100: _cell(0.8076, 0.0160), 1000: _cell(0.8534, 0.0152), 5000: _cell(0.8628, 0.0136)},
    "isab16_max": {100: _cell(0.8273, 0.0159), 1000: _cell(0.8915, 0.0144), 5000: _cell(0.9040, 0.0173)},
    "isab16_pma": {100: _cell(0.8454, 0.0144), 1000: _cell(0.8662, 0.0149), 5000: _cell(0.8779, 0.0122)},
}


def printed(cell: Cell | None) -> Cell | str:
    """A number of a table, '(none)' where there is none."""
    return "(none)" if cell is None else cell
