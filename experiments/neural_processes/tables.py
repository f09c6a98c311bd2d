"""Tables of the CMANP paper from results."""

from experiments.neural_processes.complexity import table8, times
from experiments.neural_processes.gp_tables import table4
from experiments.neural_processes.wheel_tables import table7

TABLES = {"table4": table4, "table7": table7, "table8": table8, "times": times}
