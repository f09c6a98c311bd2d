"""Memory of conditioning, querying and updating, as the compiler counts it for narrow models."""
import pytest

from experiments.neural_processes import complexity
from experiments.neural_processes.complexity import build, conditioning, growth, querying, updating

SIZES = (128, 512)  # below the sizes at which XLA fuses attention


def small(name):
    return build(name, **complexity._small(name))


@pytest.mark.parametrize("name, mark", [("cnp", "constant"), ("cmanp", "constant"), ("intention_anp", "constant"), ("lbanp", "linear"),
                                        ("eqtnp", "quadratic"), ("tnp_d", "none")])
def test_what_conditioning_needs(name, mark):
    model = small(name)
    assert growth(lambda n: conditioning(model, n), SIZES) == mark


@pytest.mark.parametrize("name, mark", [("cmanp", "constant"), ("cmanp_and", "constant"), ("lbanp", "constant"), ("tnp_d", "quadratic")])
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


def test_table_and_figures(tmp_path):
    table = complexity.table8([], models=("cnp", "tnp_d"), sizes=(64, 128), fixed=8)
    assert [name for name, _ in table.rows] == ["CNP", "TNP-D"] and table.rows[1][1][0] == "none"
    fields = dict(features=8, num_layers=1, num_heads=2)
    assert complexity.figure8([], tmp_path, sizes=(8, 16), fixed=4, **fields).exists()
    assert (tmp_path / "figure8.csv").read_text().startswith("panel,model,what,points")
