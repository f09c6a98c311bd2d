"""Memory of conditioning, querying and updating, as the compiler counts it for narrow models."""

import pytest

from experiments.neural_processes import complexity
from experiments.neural_processes.complexity import build, conditioning, growth, querying, updating

SIZES = (128, 256, 384)  # two chunks and more, below the sizes at which XLA fuses attention


def small(name):
    return build(name, **complexity._small(name))


@pytest.mark.parametrize(
    "name, mark",
    [
        ("cnp", "constant"),
        ("cmanp", "constant"),
        ("intention_anp", "constant"),
        ("lbanp", "linear"),
        ("eqtnp", "quadratic"),
        ("tnp_d", "none"),
    ],
)
def test_what_conditioning_needs(name, mark):
    model = small(name)
    assert growth(lambda n: conditioning(model, n), SIZES) == mark


@pytest.mark.parametrize(
    "name, mark", [("cmanp", "constant"), ("cmanp_and", "constant"), ("lbanp", "constant"), ("tnp_d", "quadratic")]
)
def test_what_a_query_needs_of_the_context(name, mark):
    model = small(name)
    assert growth(lambda n: querying(model, n, 8), SIZES) == mark


@pytest.mark.parametrize("name, mark", [("tnp_nd", "quadratic"), ("cmanp_and", "constant"), ("cmanp", "linear")])
def test_what_a_query_needs_of_its_targets(name, mark):
    model = small(name)
    assert growth(lambda m: querying(model, 8, m), SIZES) == mark


def test_an_update_forgets_how_much_it_has_seen():
    model = small("cmanp")
    assert growth(lambda n: updating(model, n, 8), SIZES) == "constant"
    assert growth(lambda u: updating(model, 8, u), SIZES) == "constant"


def test_without_a_state_an_update_is_conditioning_anew():
    model = small("banp")
    assert (
        growth(lambda n: updating(model, n, 64), SIZES)
        == growth(lambda n: conditioning(model, n), SIZES)
        == "quadratic"
    )


@pytest.mark.parametrize(
    "measured, found",
    [
        (lambda n: 1000.0, "constant"),
        (lambda n: 1000 + 0.1 * n, "constant"),
        (lambda n: 100 + 7 * n, "linear"),
        (lambda n: 50 * n + 0.01 * n**2, "linear"),
        (lambda n: 1e4 + 50 * n + n**2, "quadratic"),
    ],
)
def test_marks(measured, found):
    assert complexity.mark([measured(n) for n in SIZES], SIZES) == found


def test_tables_and_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(complexity, "_TURNS", 1)
    monkeypatch.setattr(complexity, "_BUDGET_S", 0.0)
    table = complexity.table8([], models=("cnp", "tnp_d"), sizes=(32, 64, 128), fixed=8)
    assert [name for name, _ in table.rows] == ["CNP", "TNP-D"] and table.rows[1][1][0] == "none"
    fields = dict(features=8, num_layers=1, num_heads=2)
    times = complexity.times([], models=("tnp_d", "lbanp"), few=4, many=8, **fields)
    assert [[cell == "none" for cell in cells] for _, cells in times.rows] == [
        [True, True] + [False] * 3 + [True] * 2,
        [False] * 7,
    ]
    assert complexity.figure3([], tmp_path, sizes=(8, 16), fixed=4, **fields).exists()
    assert complexity.figure8([], tmp_path, sizes=(8, 16), fixed=4, **fields).exists()
    assert (tmp_path / "figure8.csv").read_text().startswith("panel,model,what,points")
