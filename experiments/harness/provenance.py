"""What a number depends on beside its config: code, packages, Python."""

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "kvq_jax")


def provenance(experiment: str) -> dict[str, Any]:
    """The code version, code digest and package versions of a run of `experiment`."""
    versions = {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES}
    return {"code_version": _code_version(), "code": code_digest(experiment), "versions": versions}


@functools.cache
def code_digest(experiment: str) -> str:
    """Sixteen hex digits of the code that trains and evaluates `experiment`, as config.experiment names it.

    That is every module of this project that the experiment and the harness import, directly or not.
    """
    digests, pending = {}, [f"experiments.{experiment}.experiment", "experiments.harness.launch"]
    while pending:
        module = pending.pop()
        if module not in digests:
            digests[module], imported = _module(_ROOT, module)
            pending += imported
    return hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()[:16]


@functools.cache
def _module(root: Path, name: str) -> tuple[str, list[str]]:
    """The digest of a module and what it imports of the project. A name that is no module counts as an empty one."""
    path = root / name.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_bytes() if path.exists() else b"")
    names = {name.rpartition(".")[0]}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return _digest(tree), [name for name in names if name.split(".")[0] in ("kvq_jax", "experiments")]


def _digest(tree: ast.Module) -> str:
    """Sixteen hex digits of a module, the same for any comments, docstrings, layout and version of Python."""
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list):
            node.body = [entry for entry in node.body if not _is_string(entry)]
    text = ast.dump(tree).replace(", type_params=[]", "")  # Python 3.11 has no such field
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_string(node: ast.AST) -> bool:
    """Whether a statement is a string alone: a docstring, or a remark that does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _code_version() -> str | None:
    """The commit of the checkout, with '-dirty' where files differ from it; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    unlocked = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # a run that is killed here must not leave the checkout locked
    try:
        done = subprocess.run(command, cwd=_ROOT, env=unlocked, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
