"""How figures look and how they are saved."""

import io
import re

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from course_lib.figures import (
    LINE_STYLES,
    STYLE,
    describe,
    new_figure,
    png_bytes,
    save_svg,
    styled,
    text_alternative,
)


def a_figure():
    figure = new_figure(5, 3)
    axes = figure.add_subplot()
    axes.plot([0, 1, 2], [0.0, 1.0, 4.0], label="square")
    axes.plot([0, 1, 2], [0.0, 1.0, 8.0], label="cube")
    axes.set(xlim=(0, 2), ylim=(0, 10), xlabel="number", ylabel="power", title="Powers")
    axes.legend(loc="upper left")
    return describe(figure, "Two powers.")


def test_six_curves_differ_in_colour_and_in_line_style():
    cycle = list(STYLE["axes.prop_cycle"])
    assert len({entry["color"] for entry in cycle}) == len(cycle) == len(LINE_STYLES) == 6
    assert len({str(entry["linestyle"]) for entry in cycle}) == 6

    @styled
    def draw():
        return [(line.get_color(), line.get_linestyle()) for line in a_figure().axes[0].lines]

    (first, second) = draw()
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_styled_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)

    @styled
    def draw(size, *, unit):
        """Draw nothing."""
        assert matplotlib.rcParams["lines.linewidth"] == STYLE["lines.linewidth"]
        return size, unit

    assert draw(3, unit="cm") == (3, "cm")
    assert draw.__doc__ == "Draw nothing."
    assert dict(matplotlib.rcParams) == before


def test_a_figure_carries_its_text_alternative():
    figure = new_figure()
    with pytest.raises(ValueError, match="no text alternative"):
        text_alternative(figure)
    for empty in ("", "  \n"):
        with pytest.raises(ValueError, match="text must say what the figure shows"):
            describe(figure, empty)
    assert describe(figure, "A line.") is figure
    assert text_alternative(figure) == "A line."


def test_png_scales_with_dpi():
    small, large = png_bytes(a_figure(), dpi=50), png_bytes(a_figure(), dpi=100.0)
    size = lambda png: tuple(int.from_bytes(png[i : i + 4], "big") for i in (16, 20))  # noqa: E731
    assert size(small) == (250, 150)
    assert size(large) == (500, 300)


def test_svg_holds_the_text_alternative_and_is_the_same_every_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        save_svg(a_figure(), tmp_path / name)
    content = (tmp_path / "a.svg").read_bytes()
    assert content == (tmp_path / "b.svg").read_bytes()
    assert "Two powers." in re.sub(r"<[^>]*>", "", content.decode())
    assert b"<dc:date>" not in content


def test_a_palette_keeps_the_colours_of_curves():
    figure = a_figure()
    picture = Image.open(io.BytesIO(png_bytes(figure, dpi=100)))
    assert picture.mode == "P"
    colours = {colour for _, colour in picture.convert("RGB").getcolors()}
    wanted = [tuple(round(255 * part) for part in to_rgb(line.get_color())) for line in figure.axes[0].lines]
    for colour in [*wanted, (255, 255, 255), (0, 0, 0)]:
        assert min(max(abs(a - b) for a, b in zip(colour, c, strict=True)) for c in colours) <= 8
