"""How the models of events look in every picture."""

from experiments.harness.drawing import AMBER, BLUE, GREEN, INK, RED, VIOLET

LOOKS = {
    "thp": dict(color=AMBER),
    "thp_mixture": dict(color=BLUE),
    "cmhp": dict(color=RED),
    "intention_hawkes": dict(color=GREEN),
    "gru": dict(color=VIOLET, linestyle="--"),
}
TRUTH = dict(color=INK, linestyle=":", linewidth=1.2)  # the process that events are drawn from
