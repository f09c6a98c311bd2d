"""The digest of code: what changes it and what does not."""

import ast

import pytest

from experiments.harness import provenance
from experiments.harness.provenance import code_digest

SOURCE = '''"""A module."""

def double(x, by=2):
    """Twice x."""
    return by * x  # a comment
'''


def source_digest(source):
    return provenance._digest(ast.parse(source))


def test_comments_docstrings_and_layout_do_not_count():
    bare = "def double(\n    x, by=2,\n):\n    return (by * x)"
    assert source_digest(SOURCE) == source_digest(bare)


@pytest.mark.parametrize("old, new", [("by=2", "by=3"), ("by * x", "x * by"), ("double", "twice"), ("by=2", "by=2.0")])
def test_code_counts(old, new):
    assert source_digest(SOURCE) != source_digest(SOURCE.replace(old, new))


def test_an_experiment_is_what_it_and_the_harness_import(tmp_path, monkeypatch):
    def digest(experiment):
        code_digest.cache_clear()
        provenance._module.cache_clear()
        return code_digest(experiment)

    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    files = {
        "kvq_jax/__init__.py": "",
        "kvq_jax/ops/a.py": "",
        "experiments/harness/step.py": "",
        "experiments/harness/launch.py": "from experiments.harness import step",
        "experiments/paper/one/experiment.py": "import jax\n\ndef build():\n    from kvq_jax.ops.a import b",
    }
    others = {
        "kvq_jax/ops/c.py": "",
        "experiments/paper/one/tables.py": "import experiments.paper.one.experiment",
        "experiments/paper/two/experiment.py": "from kvq_jax.ops.c import d",
    }
    for name, text in (files | others).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = digest("paper.one")
    assert len(before) == 16 and before not in (digest("paper.two"), digest("paper.none"))
    for name, text in (files | others).items():
        (tmp_path / name).write_text(f"{text}\na = 2")
        assert (digest("paper.one") == before) == (name in others), name
        (tmp_path / name).write_text(f"# a comment\n{text}")
        assert digest("paper.one") == before, name
    code_digest.cache_clear()
    provenance._module.cache_clear()
