"""The digest of code: what changes it and what does not."""

import pytest

from experiments.harness import provenance
from experiments.harness.provenance import code_digest, source_digest

SOURCE = '''"""A module."""

def double(x, by=2):
    """Twice x."""
    return by * x  # a comment
'''


def test_comments_docstrings_and_layout_do_not_count():
    bare = "def double(\n    x, by=2,\n):\n    return (by * x)"
    assert source_digest(SOURCE) == source_digest(bare)


@pytest.mark.parametrize("old, new", [("by=2", "by=3"), ("by * x", "x * by"), ("double", "twice"), ("by=2", "by=2.0")])
def test_code_counts(old, new):
    assert source_digest(SOURCE) != source_digest(SOURCE.replace(old, new))


def test_an_experiment_is_what_it_shares_and_its_own_folder(tmp_path, monkeypatch):
    def digest(experiment):
        code_digest.cache_clear()
        provenance._file_digest.cache_clear()
        return code_digest(experiment)

    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    files = ("kvq_jax/ops/a.py", "experiments/harness/step.py", "experiments/paper/one/experiment.py")
    drawn = ("experiments/paper/one/tables.py", "experiments/paper/one/figures.py", "experiments/harness/drawing.py")
    other = ("experiments/paper/two/experiment.py", "scripts/sweep.py")
    for name in files + drawn + other:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    before = digest("paper.one")
    assert len(before) == 16 and before != digest("paper.two")
    for name in drawn + other:
        (tmp_path / name).write_text("a = 2\n")
        assert digest("paper.one") == before, name
    for name in files:
        (tmp_path / name).write_text("a = 2\n")
        assert digest("paper.one") != before, name
        (tmp_path / name).write_text("a = 1\n")
    code_digest.cache_clear()
    provenance._file_digest.cache_clear()
