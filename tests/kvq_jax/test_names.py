"""What is said of an unknown name."""

import pytest

from kvq_jax.names import choose, unknown

FEW, MANY = ["softmax", "linear"], [f"config_{letter}" for letter in "abcdefghij"]


@pytest.mark.parametrize(
    "name, known, said",
    [
        ("linaer", FEW, "unknown op 'linaer': did you mean 'linear'? known: softmax, linear"),
        ("xyz", FEW, "unknown op 'xyz'; known: softmax, linear"),
        (
            "lr",
            ["steps", "learning_rate"],
            "unknown op 'lr': did you mean 'learning_rate'? known: steps, learning_rate",
        ),
        ("x", [], "unknown op 'x'; known: none"),
        ("confg_c", MANY, "unknown op 'confg_c': did you mean 'config_c'?"),  # no list beside one that is very near
        ("con", MANY, f"unknown op 'con': did you mean 'config_j'? known: {', '.join(MANY)}"),
        ("lr", [*MANY, "learning_rate"], "unknown op 'lr': did you mean 'learning_rate'?"),
    ],
)
def test_one_line_with_the_nearest(name, known, said):
    assert unknown("op", name, known) == said
    with pytest.raises(ValueError, match="^unknown op "):
        choose(dict.fromkeys(known), name, "op")
