"""How a notebook shows a figure, and proof that the drawing helpers of the tests see what is wrong."""

import base64

import pytest
from matplotlib.figure import Figure

from course_lib.figures import describe, new_figure
from course_lib.teaching.style import Picture, show
from tests.drawing import (
    assert_clear_layout,
    assert_labels,
    assert_legend,
    assert_limits,
    assert_line,
    layout_faults,
    line_labelled,
    painted_texts,
)


def a_figure():
    figure = new_figure(5, 3)
    axes = figure.add_subplot()
    axes.plot([0, 1, 2], [0.0, 1.0, 4.0], label="square")
    axes.plot([0, 1, 2], [0.0, 1.0, 8.0], label="cube")
    axes.set(xlim=(0, 2), ylim=(0, 10), xlabel="number", ylabel="power", title="Powers")
    axes.legend(loc="upper left")
    return describe(figure, "Two powers.")


def test_show_gives_picture_text_and_caption(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *things: shown.extend(things))
    show(a_figure())
    picture, caption = shown
    assert isinstance(picture, Picture)
    data, metadata = picture._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == "Figure: Two powers."
    assert metadata["image/png"] == {"width": 480, "alt": "Two powers."}
    assert caption.data == "*Two powers.*"


def test_an_undescribed_figure_is_not_shown():
    with pytest.raises(ValueError, match="no text alternative"):
        show(new_figure())


# The helpers that assert on artist data


def test_helpers_accept_what_is_drawn():
    axes = a_figure().axes[0]
    assert_line(line_labelled(axes, "square"), [0, 1, 2], [0, 1, 4])
    assert_limits(axes, x=(0, 2), y=(0, 10))
    assert_labels(axes, x="number", y="power", title="Powers")
    assert_legend(axes, ["square", "cube"])
    assert_clear_layout(axes.figure)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda a: line_labelled(a, "root"), "one line labelled 'root' expected, found 0"),
        (lambda a: assert_line(a.lines[0], [0, 1, 2], [0, 1, 5]), "y of"),
        (lambda a: assert_line(a.lines[0], [0, 1, 3], [0, 1, 4]), "x of"),
        (lambda a: assert_line(a.lines[0], [0, 1], [0, 1]), r"x has shape \(3,\), expected \(2,\)"),
        (lambda a: assert_limits(a, x=(0, 2), y=(0, 11)), "limits are"),
        (lambda a: assert_limits(a, x=(0, 3), y=(0, 10)), "limits are"),
        (lambda a: assert_labels(a, x="number", y="", title="Powers"), "labels are"),
        (lambda a: assert_labels(a, x="number", y="power", title="Power"), "labels are"),
        (lambda a: assert_labels(a, x="n", y="power", title="Powers"), "labels are"),
        (lambda a: assert_legend(a, ["cube", "square"]), "the legend lists"),
        (lambda a: assert_legend(a, []), "the legend lists"),
    ],
)
def test_helpers_refuse_anything_else(check, message):
    with pytest.raises(AssertionError, match=message):
        check(a_figure().axes[0])


def test_two_lines_of_one_label_are_ambiguous():
    axes = a_figure().axes[0]
    axes.plot([0], [0], label="cube")
    with pytest.raises(AssertionError, match="found 2"):
        line_labelled(axes, "cube")


# The layout check, on figures made wrong on purpose


def crowded_ticks(figure):
    figure.axes[0].set_xticks([1, 1.01], ["a long tick label", "another long label"])


def text_on_text(figure):
    for y in (5.0, 5.1):
        figure.axes[0].text(1, y, f"at {y}")


def text_off_the_canvas(figure):
    figure.axes[0].text(0.99, 0.5, "a text that starts at the right end", transform=figure.transFigure)


def title_over_another_axes(figure):
    figure.text(0.5, figure.axes[0].get_position().y1 + 0.12, "over the title", ha="center")


def legend_over_a_label(figure):
    figure.axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, -0.25)).set_in_layout(False)


def legend_off_the_canvas(figure):
    figure.axes[0].legend(loc="center left", bbox_to_anchor=(0.9, 0.5)).set_in_layout(False)


def suptitle_over_the_title(figure):
    figure.suptitle("A suptitle", y=0.93)


def moving_text_on_text(figure):
    figure.axes[0].text(1, 5, "still")
    figure.axes[0].text(1, 5, "moving", animated=True)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (crowded_ticks, "'a long tick label' overlaps 'another long label'"),
        (text_on_text, "'at 5.0' overlaps 'at 5.1'"),
        (text_off_the_canvas, "'a text that starts at the right end' leaves the canvas"),
        (title_over_another_axes, "'over the title'"),
        (legend_over_a_label, "the legend ['square', 'cube'] covers 'number'"),
        (legend_off_the_canvas, "the legend ['square', 'cube'] leaves the canvas"),
        (suptitle_over_the_title, "overlaps"),
        (moving_text_on_text, "'still' overlaps 'moving'"),
    ],
)
def test_the_layout_check_sees_what_is_wrong(spoil, fault):
    figure = a_figure()
    figure.canvas.draw()
    figure.set_layout_engine("none")  # or the layout would mend some of it
    spoil(figure)
    assert any(fault in found for found in layout_faults(figure, painted_texts(figure))), layout_faults(
        figure, painted_texts(figure)
    )
    with pytest.raises(AssertionError):
        assert_clear_layout(figure)


def test_the_layout_check_looks_into_subfigures():
    figure = Figure(figsize=(6, 3))
    for part in figure.subfigures(1, 2):
        part.add_subplot().set(xlabel="x", ylabel="y")
        part.suptitle("a suptitle as wide as both of the two parts together")
    assert any("overlaps" in fault for fault in layout_faults(figure, painted_texts(figure)))


def test_what_is_not_painted_does_not_count():
    figure = a_figure()
    axes = figure.axes[0]
    axes.text(1, 5, "seen")
    axes.text(1, 5, "hidden", visible=False)
    axes.text(1, 5, "")
    axes.set_xticks([0, 1, 2, 2.001, 50], ["0", "1", "2", " ", "a label outside of the limits"])
    axes.set_xlim(0, 2)
    assert_clear_layout(figure)


def test_a_figure_without_any_text_is_refused():
    with pytest.raises(AssertionError, match="no text at all"):
        assert_clear_layout(new_figure())
