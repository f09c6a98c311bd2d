"""Image completion: CMANP paper, Section 4.1, Table 3; Intention beside the published models.

    python -m experiments.run --config configs/neural_processes/images.py:model=cmanp,preset=quick     # digits
    python -m scripts.sweep --config configs/neural_processes/images.py:data=emnist,preset=quick --data_dir DATA

`paper` is the published protocol: as many steps as 200 epochs have, all test images, 5 seeds, 128 latents. Images of a
batch are drawn independently, with replacement, and not in passes over all. `quick` has the published widths and
depths, fewer steps, smaller batches, fewer latents and samples. data=digits, scikit-learn's 8x8 digits, needs no
data; the paper has neither digits nor MNIST, and both have the settings of EMNIST. Where the paper's text and its code
differ, the axis says which:

protocol=code    EMNIST at 28x28; in training fewer than 400 targets, which matters at 64x64 and 128x128 alone
protocol=text    EMNIST at 32x32; no cap

The batches are the paper's, 100, 50 and 25 at 32x32, 64x64 and 128x128; the code has 100 where no flag says otherwise.
Flags of the released code override its latents and its AND block size: 128 and 5 are the paper's. Both resize whole
images, which distorts faces; config.data.crop=True takes their central square. EMNIST is trained on the classes 0 to 9,
and judged on them and on the other 37. The last images to train on are held out for validation; the paper has none.

Losses, and the numbers of points that the images of a batch share, are those of the released code: see gp.py.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import family

MODELS = tuple(family("neural_process"))
DATA = ("digits", "mnist", "emnist", "celeba32", "celeba64", "celeba128")
PROTOCOLS = ("code", "text")
ATTENTIVE = "canp|anp|banp|intention_anp"
ENCODER_DECODER = f"cnp|np|bnp|{ATTENTIVE}"
MARGINAL, JOINT = "tnp_d|tnp_a|eqtnp|lbanp|cmanp|intention_cmanp", "tnp_nd|lbanp_nd|cmanp_and"
GREY, FACES = "digits|mnist|emnist", "celeba32|celeba64|celeba128"


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, data, preset, protocol."""
    axes = common.parse_axes(arg, model=MODELS, data=DATA, preset=common.PRESETS, protocol=PROTOCOLS)
    config = dict(
        name="neural_processes/images",
        experiment="neural_processes.images",
        axes=axes,
        task=dict(min_context=3, min_targets=3, max_points=200, target_cap=0, t_scale=(0.0, 0.0), t_freedom=2.1),
        data=dict(name="emnist", source="archive", size=28, crop=False, validation_images=250, seen=(0, 10)),
        model=common.model(axes["model"]),
        optimizer=common.optimizer("adam", 5e-4, schedule="cosine"),
        train=common.train(
            48_000, 100, seeds=5, size_classes=16, log_every=200, validate_every=2000, checkpoint_every=2000
        ),
        evaluation=common.evaluation(
            tasks=20_000,
            batch_size=16,
            subset=2000,
            counts=(10, 30, 100),
            least_std=0.05,
            fitted_images=500,
            fitted_pixels=300,
            example_images=4,
            example_counts=(10, 30, 100, 300),
            example_samples=4,
            example_shown=(),
        ),
    )
    return common.edited(config, AXES, EDITS, common.narrow_neural_processes())


AXES = {
    "data=digits": {
        "task": dict(max_points=40),
        "data": dict(name="digits", source="digits", size=8, validation_images=100),
        "evaluation": dict(counts=(3, 10, 30), example_counts=(3, 10, 30)),
    },
    "data=mnist": {"data": dict(name="mnist")},
    "protocol=text,data=mnist|emnist": {"data": dict(size=32)},
    # Epochs of 1827, 3653 and 7306 batches: the steps of 200 of each.
    "data=celeba32": {"data": dict(name="celeba", size=32), "train": dict(steps=365_400)},
    "data=celeba64": {
        "task": dict(max_points=800),
        "data": dict(name="celeba", size=64),
        "train": dict(steps=730_600, batch_size=50),
        "evaluation": dict(counts=(10, 30, 100, 300)),
    },
    "data=celeba128": {
        "task": dict(max_points=1600),
        "data": dict(name="celeba", size=128),
        "train": dict(steps=1_461_200, batch_size=25),
        "evaluation": dict(counts=(10, 30, 100, 300, 1000), example_counts=(10, 30, 100, 300, 1000, 3000)),
    },
    f"protocol=code,data={FACES}": {"task": dict(target_cap=400)},
    # Depths of the published models: pre, post, decoder; and of CANP, ANP, BANP, values and keys.
    f"data={GREY},model={ENCODER_DECODER}": {"model": dict(pre_depth=5, post_depth=3, decoder_depth=4)},
    f"data={GREY},model={ATTENTIVE}": {"model": dict(value_depth=5, key_depth=3)},
    f"data={FACES},model={ENCODER_DECODER}": {"model": dict(pre_depth=6, post_depth=3, decoder_depth=5)},
    f"data={FACES},model={ATTENTIVE}": {"model": dict(value_depth=6, key_depth=3)},
    f"data={FACES}": {"model": dict(dim_y=3)},
    # Bounded deviations on grey images: 0.05 + 0.95 softplus.
    f"data={GREY},model={MARGINAL}": {"model": dict(std_map="softplus", std_floor=0.05)},
    f"data={GREY},model={JOINT}": {"model": dict(bound=True)},
    f"data={GREY},model=tnp_a": {"model": dict(teacher_noise=0.05, permute=False)},
}
EDITS = {
    "preset=quick": {
        "train": dict(
            steps=2000, batch_size=8, seeds=1, size_classes=4, log_every=100, validate_every=500, checkpoint_every=500
        ),
        "evaluation": dict(validation_batches=8, tasks=500, batch_size=8, subset=100, example_images=2),
    },
    "preset=quick,model=cnp": {"train": dict(steps=4000, batch_size=16)},
    "preset=quick,model=np": {"train": dict(steps=2000, batch_size=16)},
    "preset=quick,model=anp": {"train": dict(steps=1500)},
    "preset=quick,model=banp": {"train": dict(steps=600)},
    "preset=tiny": {
        "task": dict(max_points=16),
        "train": dict(
            steps=20, batch_size=8, seeds=2, size_classes=1, log_every=10, validate_every=20, checkpoint_every=20
        ),
        "evaluation": dict(
            validation_batches=1,
            tasks=8,
            batch_size=4,
            subset=4,
            counts=(3, 8),
            fitted_images=4,
            fitted_pixels=10,
            example_images=2,
            example_counts=(3, 8),
            example_samples=2,
        ),
    },
}


def sweep() -> list[dict[str, str]]:
    """The cells of Table 3 and of `digits`, which needs no data: every model on all data but MNIST."""
    return [{"model": model, "data": data} for data in DATA if data != "mnist" for model in MODELS]
