"""The table of the encoder of CIFAR-100, its accuracy beside the paper's, from results."""

from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, facts, seeds_of, several
from experiments.harness.tables import Table, measured
from experiments.set_transformer.labels import images
from experiments.set_transformer.paper_numbers import ENCODER
from kvq_jax.models import IMAGE_CLASSIFIERS

CONFIG = "set_transformer/encoder"
CONFIGS = (CONFIG,)


def encoder(results: Sequence[Result]) -> Table | None:
    """Every encoder: one preset, one data set. None without results."""
    found = comparable(results, CONFIG, lambda result: result.axes["model"], images)
    return _table(found) if found else None


def run_table(result: Result) -> Table:
    """One run: its accuracy beside the paper's."""
    return _table({result.axes["model"]: result})


def _table(found: Mapping[str, Result]) -> Table:
    own = list(found.values())
    told, known = facts(own, "trained/accuracy"), own[0].content["facts"]
    rows = [
        (IMAGE_CLASSIFIERS[model].label, [measured(result.metrics["trained/accuracy"], 100), ENCODER])
        for model, result in found.items()
    ]
    steps, batch = several(result.steps for result in own), several(run.config["train"]["batch_size"] for run in own)
    caption = (
        f"Preset {told['preset']}; {known['data']}, {known['images']['train']} images of {known['classes']} classes to "
        f"train on; {steps} steps of {batch} images. Percent of the {told['n']} test images whose class is right ± "
        f"standard error over them, mean over {seeds_of(told)}. The paper's is of the whole of CIFAR-100."
    )
    return Table("The encoder of images", ["encoder", "accuracy", "the paper's"], rows, caption, facts=told)


TABLES = {"set_transformer/encoder": encoder}
