"""What the CMANP paper (Feng et al. 2023, arXiv 2305.14567) prints of temporal point processes."""

# Tables 5 (Reddit alone) and 6: (model, data) -> metric -> mean and standard deviation. The unit of time is not said.
TABLE6 = {
    ("thp_mixture", "mooc"): {"rmse": (0.202, 0.017), "nll": (0.267, 0.164), "accuracy": (0.336, 0.007)},
    ("cmhp", "mooc"): {"rmse": (0.168, 0.011), "nll": (-0.040, 0.620), "accuracy": (0.237, 0.024)},
    ("thp_mixture", "reddit"): {"rmse": (0.238, 0.028), "nll": (0.268, 0.098), "accuracy": (0.610, 0.002)},
    ("cmhp", "reddit"): {"rmse": (0.262, 0.037), "nll": (0.528, 0.209), "accuracy": (0.609, 0.003)},
}
