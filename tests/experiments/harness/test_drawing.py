"""Pictures: their kinds, their colours to eyes that lack a kind of cone, and the numbers at their axes."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from experiments.harness import drawing
from experiments.harness.errors import ConfigError

SERIES = ("RED", "BLUE", "GREEN", "AMBER", "VIOLET", "INK", "GREY")
# Linear RGB as it is seen without red or green cones (Machado, Oliveira and Fernandes 2009, severity 1).
VISION = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # of sRGB


def lab(colour: str, vision: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour; equal steps in it look about equally large."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(TO_XYZ @ np.clip(vision @ linear, 0.001, 1) / TO_XYZ.sum(1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
def test_every_pair_of_colours_is_told_apart(vision):
    """A difference of 2 is just seen; the colours before had one of 2 between blue and violet without red."""
    seen = {name: lab(getattr(drawing, name), VISION[vision]) for name in SERIES}
    apart = {
        pair: np.linalg.norm(np.subtract(*(seen[name] for name in pair))) for pair in itertools.combinations(SERIES, 2)
    }
    assert min(apart.values()) > 20, min(apart, key=apart.get)
    assert np.linalg.norm(lab("#2f6db5", VISION["no red"]) - lab("#8a5fb0", VISION["no red"])) < 3


def picture():
    figure, ((axis,),) = drawing.new_figure(1, 1)
    axis.plot([1, 64], [0.3, 40])
    axis.set(xscale="log", yscale="log")
    drawing.plain_ticks(axis.xaxis, [1, 8, 64])
    drawing.plain_ticks(axis.yaxis)
    return figure, axis


@pytest.mark.parametrize("form, start", [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_pictures_of_every_kind_have_their_numbers_beside_them(tmp_path, form, start):
    with drawing.saved_as(form):
        path = drawing.save(picture()[0], tmp_path / "deep" / "figure1.png", ["a"], [(1.5,)])
        again = drawing.save(picture()[0], tmp_path / "again.png")
    assert path == tmp_path / "deep" / f"figure1.{form}" and path.read_bytes().startswith(start)
    assert (tmp_path / "deep" / "figure1.csv").read_text() == "a\n1.5\n"
    assert path.read_bytes() == again.read_bytes()
    assert drawing.save(picture()[0], tmp_path / "figure2.png").suffix == ".png"
    with drawing.saved_as(form, "_paper"):
        assert drawing.save(picture()[0], tmp_path / "figure3.png", ["a"]).name == f"figure3_paper.{form}"
    assert (tmp_path / "figure3_paper.csv").exists()


def test_an_unknown_kind_of_picture():
    with pytest.raises(ConfigError, match="unknown --format 'gif'.*known: png, pdf, svg"), drawing.saved_as("gif"):
        pass


def test_numbers_at_the_axes_are_plain():
    figure, axis = picture()
    figure.canvas.draw()
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "8", "64"]
    shown = [tick.get_text() for tick in axis.get_yticklabels()]
    assert {"0.5", "1", "2", "5", "10", "20"} <= set(shown) and not any("$" in text for text in shown)
    assert not axis.get_xticklabels(minor=True) and not axis.get_yticklabels(minor=True)


@pytest.mark.parametrize("panels, lines", [(1, 2), (2, 1)])
def test_a_legend_has_as_many_lines_as_the_figure_is_narrow(panels, lines):
    figure, _ = drawing.new_figure(1, panels, width=4.4)
    names = [f"the model number {number}" for number in range(4)]
    drawing.legend_below(figure, [dict(color=drawing.RED, label=name) for name in names])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    places = [text.get_window_extent() for text in legend.get_texts()]
    assert [text.get_text() for text in legend.get_texts()] == names
    assert len({round(place.y0) for place in places}) == lines
    assert min(place.x0 for place in places) > 0 and max(place.x1 for place in places) < figure.bbox.width
