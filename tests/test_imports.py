"""The directions of imports that the layout promises."""

import ast
import configparser
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_PAPER = {"experiments.regression", "experiments.tasks", "experiments.data", "experiments.harness", "kvq_jax"}
# package -> the project's packages that it may import beside itself; a longer name wins.
ALLOWED = {
    "kvq_jax.names": set(),
    "kvq_jax.fields": set(),
    "kvq_jax.ops": {"kvq_jax.names"},
    "kvq_jax.domains": set(),
    "kvq_jax.nn": {"kvq_jax.ops", "kvq_jax.names", "kvq_jax.fields", "kvq_jax.domains"},
    "kvq_jax.models": {"kvq_jax.nn", "kvq_jax.ops", "kvq_jax.names", "kvq_jax.fields", "kvq_jax.domains"},
    "kvq_jax": set(),
    "experiments.harness": {"kvq_jax"},
    "experiments.data": {"experiments.harness", "kvq_jax"},
    "experiments.tasks": {
        "experiments.data",
        "experiments.harness.errors",
        "experiments.harness.size_classes",
        "kvq_jax",
    },
    "experiments.regression": _PAPER,
    "experiments.intention": _PAPER,
    "experiments.kvq": _PAPER,
    "experiments.neural_processes": _PAPER,
    "experiments.point_processes": _PAPER,
    "experiments.set_transformer": _PAPER,
    "experiments.catalogue": {"experiments.harness"},
    "experiments.run": {"experiments.catalogue", "experiments.harness"},
    "configs": {"configs.common", "kvq_jax"},
    "configs.neural_processes": {"configs.common", "kvq_jax"},
    "configs.point_processes": {"configs.common", "kvq_jax"},
    "configs.kvq": {"configs.common", "configs.intention", "configs.neural_processes", "kvq_jax"},  # other models, ops
    "scripts": {"experiments", "kvq_jax", "configs"},
}
OURS = ("kvq_jax", "experiments", "configs", "scripts", "tests")
FILES = sorted(
    path for package in ("kvq_jax", "experiments", "configs", "scripts") for path in (ROOT / package).rglob("*.py")
)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in FILES}
EXPERIMENTS = [name for name in MODULES if name.endswith(".experiment") and not name.startswith("experiments.harness")]
SHOWING = [name for name in MODULES if name.endswith((".tables", ".figures"))]


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """All modules that a file imports, 'a.b.c' for both `import a.b.c` and `from a.b import c`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def reached(module: str) -> set[str]:
    """Every module of the project that `module` imports, directly or not, at the top of a file or in a function."""
    found, pending = set(), [module]
    while pending:
        for name in imported(MODULES[pending.pop()]):
            new = {own for own in (name, name.rpartition(".")[0]) if own in MODULES} - found
            found |= new
            pending += new
    return found - {module}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    package = next(package for package in sorted(ALLOWED, key=len, reverse=True) if within(module, package))
    names = {name for name in imported(MODULES[module]) if name.split(".")[0] in OURS}
    wrong = {name for name in names if not any(within(name, own) for own in ALLOWED[package] | {package})}
    assert not wrong, f"{module} imports {wrong}"


@pytest.mark.parametrize("module", EXPERIMENTS)
def test_training_reaches_no_table_and_no_figure(module):
    wrong = reached(module) & {"experiments.catalogue", "experiments.harness.drawing", *SHOWING}
    assert wrong <= {"experiments.harness.tables"}, f"{module} reaches {wrong}"  # the class of a table


@pytest.mark.parametrize("module", SHOWING)
def test_tables_and_figures_reach_no_training(module):
    training = {"experiments.harness.launch", "experiments.harness.loop", "experiments.harness.step", *EXPERIMENTS}
    assert not reached(module) & training, f"{module} reaches {reached(module) & training}"


# Declared, but imported by others: by tensorflow_datasets, which does not declare the first; and tools of the tests.
NOT_IMPORTED = {"importlib_resources", "tensorflow-cpu", "pytest-xdist", "ruff"}
MODULE_OF = {
    "absl-py": "absl",
    "tensorflow-datasets": "tensorflow_datasets",
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "orbax-checkpoint": "orbax",
}
# The packages of this project and the extras that what they import is declared in.
EXTRAS = {
    "kvq_jax": (),
    "configs": ("experiments",),
    "experiments": ("experiments", "hdf5", "tensorboard"),
    "scripts": ("experiments", "sweep", "released"),
    "tests": ("experiments", "test"),
}


def declared() -> dict[str, set[str]]:
    """Extra ('': none) -> names of the distributions that setup.cfg declares in it, without those of other extras."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    texts = dict(settings["options.extras_require"]) | {"": settings["options"]["install_requires"]}
    names = {extra: set(re.findall(r"^[\w-]+(?!\[)\b", text.strip(), re.MULTILINE)) for extra, text in texts.items()}
    return {extra: found - {"kvq_jax"} for extra, found in names.items()}


def third_party(package: str) -> set[str]:
    """What the files of a package of the project import that is neither ours nor Python's."""
    found = {name.split(".")[0] for path in (ROOT / package).rglob("*.py") for name in imported(path)}
    return found - set(OURS) - sys.stdlib_module_names


@pytest.mark.parametrize("package", EXTRAS)
def test_what_is_imported_is_declared(package):
    names = set().union(*(declared()[extra] for extra in ("", *EXTRAS[package])))
    assert third_party(package) <= {MODULE_OF.get(name, name) for name in names}


def test_what_is_declared_is_imported():
    used, names = set().union(*map(third_party, EXTRAS)), set().union(*declared().values())
    assert len(declared()[""]) == 4 and names >= NOT_IMPORTED
    assert {MODULE_OF.get(name, name) for name in names - NOT_IMPORTED} <= used
    assert declared()[""] <= third_party("kvq_jax")


def test_an_experiment_loads_no_matplotlib_and_no_table():
    """In a process of its own: what importing every experiment really loads."""
    lines = [f"import {module}" for module in EXPERIMENTS]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, "import sys", "print(*sys.modules)"])],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert not loaded & {"matplotlib", "experiments.catalogue", *SHOWING} - {"experiments.harness.tables"}
    assert loaded.issuperset(EXPERIMENTS) and len(EXPERIMENTS) > 10


def test_tables_load_no_matplotlib():
    code = "from experiments import catalogue; import sys; catalogue.names('tables'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "matplotlib" not in done.stdout.split()


def test_configs_import_only_what_a_config_needs():
    standard = {"collections", "dataclasses", "itertools", "typing"}
    for path in (ROOT / "configs").rglob("*.py"):
        packages = {name.split(".")[0] for name in imported(path)}
        assert packages <= {"ml_collections", "configs", "kvq_jax"} | standard, path
