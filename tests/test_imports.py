"""The directions of imports that the layout promises."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# package -> the project's packages that it may import; a longer name wins.
ALLOWED = {
    "kvq_jax.ops": {"kvq_jax.ops"},
    "kvq_jax.nn": {"kvq_jax.nn", "kvq_jax.ops"},
    "kvq_jax.models": {"kvq_jax.models", "kvq_jax.nn", "kvq_jax.ops"},
    "kvq_jax": {"kvq_jax"},
    "experiments": {"experiments", "kvq_jax"},
    "configs": {"configs.common"},
    "configs.kvq": {"configs.common", "configs.intention"},  # the experiments of another paper with other operators
    "scripts": {"scripts", "experiments", "kvq_jax", "configs"},
}
OURS = ("kvq_jax", "experiments", "configs", "scripts", "tests")
FILES = sorted(
    path for package in ("kvq_jax", "experiments", "configs", "scripts") for path in (ROOT / package).rglob("*.py")
)


def imported(path: Path) -> set[str]:
    """The project's modules that a file imports, 'a.b.c' for both `import a.b.c` and `from a.b import c`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] in OURS}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    allowed = next(ALLOWED[package] for package in sorted(ALLOWED, key=len, reverse=True) if within(module, package))
    wrong = {name for name in imported(path) if not any(within(name, package) for package in allowed)}
    assert not wrong, f"{module} imports {wrong}"


def test_configs_import_only_what_a_config_needs():
    for path in (ROOT / "configs").rglob("*.py"):
        modules = {
            node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }
        assert modules <= {"ml_collections", "configs", "configs.intention", "difflib", "collections.abc"}, path
