"""Marked event sequences: CMANP paper, Section 4.2.1 "Extending CMAB" and Appendix C.1, Tables 5 and 6.

    python -m experiments.run --config configs/point_processes/events.py:model=cmhp,data=hawkes,preset=quick
    python -m experiments.run --config configs/point_processes/events.py:data=mooc,preset=quick --data_dir DATA
    python -m scripts.sweep --config configs/point_processes/events.py:preset=quick                 # two processes
    python -m scripts.sweep --config configs/point_processes/events.py:preset=quick --cells recorded --data_dir DATA

The models are the Transformer Hawkes Process with the intensity of Zuo et al. 2020 (thp) and with a mixture of
log-normals (thp_mixture, the paper's THP), its transformer replaced by constant-memory attention (cmhp), the same with
Intention that forgets (intention_hawkes, ours), and the recurrent baseline of Shchur et al. 2020 (gru).

data=poisson, renewal, self_correcting, hawkes, hawkes2 are the processes of Shchur et al. 2020 with their numbers, in
sequences of up to 64 events where theirs have 1024, and
multivariate is a Hawkes process of five kinds of events, ours. They need no files: every training step draws new
sequences, and the likelihood of the process itself is the best that any model can reach. All other data are recorded:
for mooc, reddit and wikipedia the CSV files of JODIE (Kumar et al. 2019), or for all .npz files of `times`, `offsets`
and `marks`, as the sequences of Shchur et al. and Bae et al. can be written, in DATA or DATA/tpp
(experiments/data/event_sources.py has their names, event_formats.py the layout). Times are in config.data.unit, and
sequences are split at random, 60 : 20 : 20: the paper names no unit and no split. The loss is minus the log-likelihood
of an event, in which every event counts alike, in sequences of any length. Of longer sequences the first 256 events
are kept, which is ours and which captions tell: all of yelp and book_order are longer. --config.data.max_events keeps
more.

The CMANP paper prints no sizes, steps or rates for these tables. `paper` has those of the nearest released protocol
(Bae et al. 2023): width 64, two layers, 8 components, Adam at 1e-4 and batches of 16; 128 latents are those of CMANP,
thp has the sizes of its own released code, and gru those of Shchur et al. (64 units), whose mixture of log-normals all
models but thp have (that of Bae et al. is an MLP without standard log times). thp trains on the likelihood alone, at a
constant rate; on wikipedia and reddit it has one intensity and a softmax of the marks, of which there are 984 and more.
intention_hawkes, ours, is small: width 32, one layer, 8 latents. Ours are 100,000 steps, the weights of the best
validation loss (they keep those of the best error of the next time), no penalty on weights, and an epsilon of Adam of
1e-8 (theirs 1e-5). `quick` has fewer steps at a higher rate, sequences of 128
events at most, and constant memory of half the width with 4 latents.
"""

from ml_collections import ConfigDict

from configs import common
from kvq_jax.models import EVENT_MODELS

MODELS = tuple(EVENT_MODELS)
PROCESSES = {
    "hawkes": dict(name="hawkes", base=(0.2,), branching=(((0.8,),), ((0.0,),)), decay=(1.0, 20.0)),
    "hawkes2": dict(name="hawkes", base=(0.2,), branching=(((0.4,),), ((0.4,),)), decay=(1.0, 20.0)),
    "poisson": dict(name="poisson", rate=1.0),
    "renewal": dict(name="renewal", mean=1.0, std=6.0),
    "self_correcting": dict(name="self_correcting", mu=1.0, alpha=1.0),
    # Each kind is followed by the next, and seldom by another.
    "multivariate": dict(
        name="hawkes",
        base=(0.04,) * 5,
        branching=(tuple(tuple(0.6 if (j - i) % 5 == 1 else 0.05 for j in range(5)) for i in range(5)),),
        decay=(2.0,),
    ),
}
# Unit of time, the least gap in it (a second, or as times are written), and the longest sequence.
RECORDED = {
    "stackoverflow": ("days", 1 / 86_400, 256),
    "mooc": ("hours", 1 / 3600, 256),
    "wikipedia": ("hours", 1 / 3600, 256),
    "reddit": ("hours", 1 / 3600, 256),
    "book_order": ("seconds", 1e-3, 256),
    "yelp": ("days", 1 / 86_400, 256),
}
_GIVEN = ("num_marks", "time_scale", "log_mean", "log_std")  # of the model, by the data


def get_config(arg: str | None = None) -> ConfigDict:
    """The config of one cell; axes: model, data, preset."""
    axes = common.parse_axes(arg, model=MODELS, data=(*PROCESSES, *RECORDED), preset=common.PRESETS)
    data = axes["data"]
    config = dict(
        name="point_processes/events",
        experiment="point_processes.events",
        axes=axes,
        task=PROCESSES[data] | dict(max_events=64, horizon=50.0) if data in PROCESSES else None,
        data=_recorded(data) if data in RECORDED else None,
        model=common.model(axes["model"], *_GIVEN, table=EVENT_MODELS),
        optimizer=common.optimizer("adam", 1e-4),
        train=common.train(
            100_000, 16, seeds=5, log_every=500, validate_every=1000, checkpoint_every=5000, select="best"
        ),
        evaluation=common.evaluation(tasks=10_000, batch_size=16, example_tasks=64, curve_points=400),
    )
    return common.edited(config, AXES, EDITS)


def _recorded(data: str) -> dict:
    unit, least_gap, max_events = RECORDED[data]
    return dict(name=data, unit=unit, least_gap=least_gap, max_events=max_events, split_seed=0)


_ALL_RECORDED = "|".join(RECORDED)
AXES = {
    "model=thp_mixture|cmhp|intention_hawkes|gru": {"model": dict(components=8)},
    "model=thp_mixture|cmhp": {"model": dict(num_layers=2)},
    "model=thp_mixture": {"model": dict(num_heads=1, head_features=64, hidden=64)},
    "model=thp,data=wikipedia|reddit": {"model": dict(by_mark=False)},
    f"data={_ALL_RECORDED}": {"train": dict(size_classes=6)},
}
EDITS = {
    "preset=quick": {
        "optimizer": dict(learning_rate=1e-3, schedule="cosine"),
        "train": dict(steps=1500, seeds=1, log_every=100, validate_every=500, checkpoint_every=500),
        "evaluation": dict(validation_batches=8, tasks=1000),
    },
    # Every event in training is followed by a read of all latents.
    "preset=quick,model=cmhp|intention_hawkes": {
        "model": dict(features=32, head_features=8, hidden=64, num_latents=4, num_block_latents=4)
    },
    f"preset=quick,data={_ALL_RECORDED}": {"data": dict(max_events=128), "train": dict(size_classes=3)},
    "preset=tiny": {
        "model?": dict(
            features=16, hidden=16, num_layers=1, head_features=8, num_latents=4, num_block_latents=4, components=4
        ),
        "train": dict(steps=20, batch_size=4, seeds=2, log_every=10, validate_every=20, checkpoint_every=10),
        "evaluation": dict(validation_batches=1, tasks=8, batch_size=4, example_tasks=4, curve_points=20),
    },
    f"preset=tiny,data={'|'.join(PROCESSES)}": {"task": dict(max_events=12)},
    f"preset=tiny,data={_ALL_RECORDED}": {"data": dict(max_events=16), "train": dict(size_classes=2)},
}


def sweep() -> list[dict[str, str]]:
    """Every model on two processes, of which one has memory and marks."""
    return [{"model": model, "data": data} for data in ("hawkes", "multivariate") for model in MODELS]


def processes() -> list[dict[str, str]]:
    """Every model on every process."""
    return [{"model": model, "data": data} for data in PROCESSES for model in MODELS]


def recorded() -> list[dict[str, str]]:
    """Every model on Mooc, of Table 6, and two other sets; Reddit, of both tables, is data=reddit where its file is."""
    return [{"model": model, "data": data} for data in ("mooc", "stackoverflow", "wikipedia") for model in MODELS]
