"""What made a number, beside its config: the code, the packages, Python."""

import ast
import functools
import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "kvq_jax")
_SHARED = ("kvq_jax", "experiments/harness", "experiments/data", "experiments/tasks", "experiments/regression")
_NOT_TRAINING = ("tables.py", "figures.py", "drawing.py")  # they show numbers and make none


def provenance(experiment: str) -> dict[str, Any]:
    """The code version, code digest and package versions of a run of `experiment`."""
    versions = {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES}
    return {"code_version": _code_version(), "code": code_digest(experiment), "versions": versions}


@functools.cache
def code_digest(experiment: str) -> str:
    """Sixteen hex digits of the code that trains and evaluates `experiment`, as config.experiment names it."""
    digest = hashlib.sha256()
    for folder in dict.fromkeys((*_SHARED, f"experiments/{experiment.replace('.', '/')}")):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            if path.name not in _NOT_TRAINING:
                digest.update(f"{path.relative_to(_ROOT).as_posix()}\n{_file_digest(path)}\n".encode())
    return digest.hexdigest()[:16]


@functools.cache
def _file_digest(path: Path) -> str:
    return source_digest(path.read_text())


def source_digest(source: str) -> str:
    """Sixteen hex digits of a Python source, the same for any comments, docstrings, layout and version of Python."""
    return hashlib.sha256("".join(_tokens(ast.parse(source))).encode()).hexdigest()[:16]


def _tokens(node: Any) -> Iterator[str]:
    """The syntax tree as text. Empty fields are left out, as versions of Python differ in them."""
    if isinstance(node, list):
        yield "["
        for entry in node:
            yield from _tokens(entry)
        yield "]"
    elif not isinstance(node, ast.AST):
        yield f"{node!r},"
    else:
        yield f"{type(node).__name__}("
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(value, list):
                value = [entry for entry in value if not _is_docstring(entry)]
            if value not in (None, []):
                yield f"{name}="
                yield from _tokens(value)
        yield ")"


def _is_docstring(node: ast.AST) -> bool:
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
    try:
        return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
