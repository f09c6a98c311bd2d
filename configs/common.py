"""What configs share: parsing of their axes and the shapes of common sections. Helpers, never a published number."""

import difflib
from collections.abc import Mapping, Sequence

# The operators of kvq_jax.ops.OPS that may stand where attention stood: all but those of discriminant analysis, whose values are
# labels.
OPS = (
    "softmax",
    "linear",
    "laplace",
    "uniform",
    "erf",
    "intention",
    "sigma_intention",
    "informer",
    "sigma_informer",
    "kernel_intention",
    "nystroem_intention",
    "constrained_intention",
    "ridge",
    "ls_svm",
)


def ridge(op: str, alpha: float) -> dict:
    """The learnt ridge of an attention model with any op: `alpha` at first, but for the Informers, defined for (0, 1) only."""
    if op in ("informer", "sigma_informer"):
        return dict(alpha_kind="sigmoid", alpha=0.5)
    return dict(alpha_kind="softplus", alpha=alpha)


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


def take_form(axes: dict[str, str]) -> str:
    """The form of a model, 'paper' or 'regression', by the axis `form`, which stays in `axes` only where it changes the cell.

    'base' is the paper's form in `paper`, and a few-shot regressor in the other presets and for MAML. Raises ValueError for
    MAML in the paper's form: the paper has none.
    """
    own = "paper" if axes["preset"] == "paper" and axes["model"] != "maml" else "regression"
    form = axes.pop("form")
    if form == "paper" and axes["model"] == "maml":
        raise ValueError("form=paper is for the models that the paper has here, not for model=maml")
    if form in ("base", own):
        return own
    axes["form"] = form
    return form


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


def few_shot_regressor(
    name: str, *, width: int, head_features: int, weight_features: tuple, inner_rate: float, fourier_levels: int
) -> dict:
    """The model section of a few-shot regressor of the Intention paper, its layers `width` wide (Appendix 4.1's shapes).

    Args:
      name: intention, attention, neural_process, mlp or maml.
      width: of every hidden layer.
      head_features: width of one of attention's five heads.
      weight_features: hidden widths of Intention's e_w; () is the identity.
      inner_rate: of MAML's three inner steps.
      fourier_levels: position features of x; 0 for none.
    """
    shared = dict(name=name, kernel_init="lecun_normal", bias_init="fan_in_uniform", fourier_levels=fourier_levels)
    ridge = dict(alpha=0.1, alpha_kind="softplus")
    own = {
        "intention": dict(
            key_features=(width,) * 4,
            activate_final=False,
            value="identity",
            weight_features=weight_features,
            op="intention",
            **ridge,
        ),
        "attention": dict(
            key_features=(width,) * 3,
            value_features=(width,) * 3,
            decoder_features=(width,) * 2,
            activate_final=False,
            op="softmax",
            num_heads=5,
            head_features=head_features,
            scaling="head",
            **(ridge | dict(alpha=1e-3)),
        ),
        "neural_process": dict(
            encoder_features=(width, width, 16), decoder_features=(width,) * 3, activate_final=False
        ),
        "mlp": dict(features=(width,) * 3),
        # A wider first draw of the weights sends the inner steps to infinity before anything is learnt.
        "maml": dict(
            kernel_init="fan_in_uniform", features=(width,) * 4, inner_steps=3, inner_rate=inner_rate, first_order=False
        ),
    }
    return shared | own[name]


# Model -> the parts whose fields are its own: see neural_process.
_NEURAL_PROCESSES = {
    "cnp": ("pooling",),
    "canp": ("pooling", "attention"),
    "np": ("pooling", "latent"),
    "anp": ("pooling", "attention", "latent"),
    "intention_anp": ("pooling", "attention", "latent", "intention_anp"),
    "bnp": ("pooling", "bootstrap"),
    "banp": ("pooling", "attention", "bootstrap"),
    "tnp_d": ("transformer", "tnp", "predictor"),
    "tnp_a": ("transformer", "tnp", "predictor", "rollout"),
    "tnp_nd": ("transformer", "tnp", "covariance", "tnp_covariance"),
    "eqtnp": ("transformer", "levels"),
    "lbanp": ("transformer", "levels", "latents"),
    "lbanp_nd": ("transformer", "levels", "latents", "covariance", "levels_covariance"),
    "cmanp": ("transformer", "levels", "latents", "blocks"),
    "intention_cmanp": ("transformer", "levels", "latents", "blocks", "intention_cmanp"),
    "cmanp_and": ("transformer", "levels", "latents", "blocks", "covariance", "levels_covariance", "autoregression"),
}


# What Intention changes in ANP and CMANP: the last parts of our models.
_INTENTION = {
    "intention_anp": dict(op="intention", self_attention=False, alpha_kind="softplus", alpha=0.1),
    "intention_cmanp": dict(cross_op="intention", alpha_kind="softplus", alpha=0.1),
}


def neural_process(name: str, dim_y: int, parts: Mapping[str, dict]) -> dict:
    """The model section of a neural process with `dim_y` outputs.

    Args:
      name: of the model.
      dim_y: the number of outputs.
      parts: part -> its fields, of all models of a config: models share parts, so that each number is written once.
    """
    section = dict(name=name, dim_y=dim_y)
    for part in _NEURAL_PROCESSES[name]:
        section |= (_INTENTION | parts)[part]
    return section


def _require(word: str, known: Sequence[str], what: str) -> None:
    if word not in known:
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown {what} {word!r}{hint} (known: {', '.join(known)})")
