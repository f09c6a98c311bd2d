"""What the results of policy distillation say (Intention paper, Figure 9)."""

import functools

from experiments.intention.closed_form import at_full_length, only_intention
from experiments.intention.policy_distillation.tables import TABLES

_ABOUT = ("policy distillation (where to look, from five distances)", TABLES["intention/figure9"])
FINDINGS = {
    "intention/figure9": functools.partial(only_intention, *_ABOUT),
    "intention/figure9_paper": functools.partial(at_full_length, *_ABOUT),
}
