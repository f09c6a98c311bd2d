"""Temporal point processes: models of when the next event happens and of what kind it is."""
