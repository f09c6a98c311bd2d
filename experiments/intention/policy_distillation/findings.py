"""What the results of policy distillation say (Intention paper, Figure 9)."""

import functools

from experiments.intention.closed_form import only_intention
from experiments.intention.policy_distillation.tables import TABLES

FINDINGS = {
    "intention/figure9": functools.partial(
        only_intention, "policy distillation (where to look, from five distances)", TABLES["intention/figure9"]
    )
}
