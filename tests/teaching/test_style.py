"""How a notebook shows a figure."""

import base64

import pytest

from course_lib.figures import describe, new_figure
from course_lib.teaching.style import Picture, show
from tests.drawing import layout_faults, painted_texts


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


def test_text_that_cannot_be_read_is_a_fault():
    """What every figure of a lesson is asked: each spoiled copy has the fault, and the figure as drawn has none."""
    figure = a_figure()
    assert layout_faults(figure, painted_texts(figure)) == []
    for spoil, fault in (
        (lambda axes: [axes.text(1, y, f"at {y}") for y in (5.0, 5.1)], "'at 5.0' overlaps 'at 5.1'"),
        (lambda axes: axes.text(1.9, 5, "beyond the right end", clip_on=False), "leaves the canvas"),
        (lambda axes: axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.25)), "covers 'number'"),
    ):
        figure = a_figure()
        figure.canvas.draw()
        figure.set_layout_engine("none")  # or the layout would repair some of it
        spoil(figure.axes[0])
        assert any(fault in found for found in layout_faults(figure, painted_texts(figure)))
