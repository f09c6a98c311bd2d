"""Scripts run as a user runs them."""

from tests import processes


def run(script: str, *arguments, code: int = 0) -> str:
    """Runs a script: see processes.told."""
    return processes.told(f"scripts.{script}", *arguments, code=code)
