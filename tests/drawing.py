"""What tests say about a drawn figure: its data, limits, labels and legend, and that its text can be read.

Nothing here looks at pixels. The layout check asks every text that a draw really paints for its bounding box,
so that tick labels outside the limits, empty strings and hidden artists do not count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.0  # pixels that two boxes may share: a box is rounded outwards


def line_labelled(axes: Axes, label: str) -> Line2D:
    """Return the only line of that label."""
    found = [line for line in axes.lines if line.get_label() == label]
    labels = [line.get_label() for line in axes.lines]
    assert len(found) == 1, f"one line labelled {label!r} expected, found {len(found)} among {labels}"
    return found[0]


def assert_line(line: Line2D, x, y, *, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    """Assert on the data of a line."""
    for name, found, expected in (("x", line.get_xdata(), x), ("y", line.get_ydata(), y)):
        found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
        assert found.shape == expected.shape, f"{name} has shape {found.shape}, expected {expected.shape}"
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=f"{name} of {line}")


def assert_limits(axes: Axes, *, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Assert on the limits of both axes."""
    found = (*axes.get_xlim(), *axes.get_ylim())
    assert np.allclose(found, (*x, *y)), f"limits are {found}, expected {(*x, *y)}"


def assert_labels(axes: Axes, *, x: str, y: str, title: str) -> None:
    """Assert on the labels of both axes and the title."""
    found = (axes.get_xlabel(), axes.get_ylabel(), axes.get_title())
    assert found == (x, y, title), f"labels are {found}, expected {(x, y, title)}"


def legend_entries(axes: Axes) -> list[str]:
    """Return what the legend lists; an axes without a legend lists nothing."""
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def assert_legend(axes: Axes, entries: list[str]) -> None:
    """Assert on the entries of the legend, in order."""
    found = legend_entries(axes)
    assert found == entries, f"the legend lists {found}, expected {entries}"


@contextmanager
def painting() -> Iterator[dict[Text, Bbox]]:
    """Record each text that is painted meanwhile, with its box in pixels: the last one, if it is painted again."""
    boxes: dict[Text, Bbox] = {}
    draw_text = Text.draw

    def record(text, renderer, *args, **kwargs):
        if text.get_visible() and text.get_text().strip():
            boxes[text] = Text.get_window_extent(text, renderer)
        return draw_text(text, renderer, *args, **kwargs)

    with mock.patch.object(Text, "draw", record):
        yield boxes


def painted_texts(figure: Figure) -> dict[Text, Bbox]:
    """Draw the figure; return each text that was painted, with its box in pixels."""
    canvas = figure.canvas if isinstance(figure.canvas, FigureCanvasAgg) else FigureCanvasAgg(figure)
    with painting() as boxes:
        canvas.draw()
        for artist in figure.findobj(lambda a: a.get_animated()):  # a draw of the figure leaves them out
            artist.draw(canvas.get_renderer())
    return boxes


def _overlaps(boxes: list[Bbox], others: list[Bbox]) -> np.ndarray:
    """Say of each box and each of the others (rows, columns) whether they overlap."""
    ours = np.array([box.extents for box in boxes]).reshape(-1, 1, 4)
    theirs = np.array([box.extents for box in others]).reshape(1, -1, 4)
    shared = np.minimum(ours[..., 2:], theirs[..., 2:]) - np.maximum(ours[..., :2], theirs[..., :2])
    return (shared > SLACK).all(-1)


def _inside(box: Bbox, canvas: Bbox) -> bool:
    return (
        box.x0 >= canvas.x0 - SLACK
        and box.y0 >= canvas.y0 - SLACK
        and box.x1 <= canvas.x1 + SLACK
        and box.y1 <= canvas.y1 + SLACK
    )


def layout_faults(figure: Figure, painted: dict[Text, Bbox]) -> list[str]:
    """Say where text overlaps text, leaves the canvas, or lies under a legend that it does not belong to."""
    faults = [
        f"{text.get_text()!r} leaves the canvas"
        for text, box in painted.items()
        if not _inside(box, figure.bbox)
    ]
    texts, boxes = list(painted), list(painted.values())
    faults += [
        f"{texts[a].get_text()!r} overlaps {texts[b].get_text()!r}"
        for a, b in zip(*np.nonzero(np.triu(_overlaps(boxes, boxes), 1)), strict=True)
    ]
    for legend in figure.findobj(lambda a: isinstance(a, Legend) and a.get_visible()):
        box, own = legend.get_window_extent(), set(legend.findobj(Text))
        name = f"the legend {[text.get_text() for text in legend.get_texts()]}"
        if not _inside(box, figure.bbox):
            faults.append(f"{name} leaves the canvas")
        covered = _overlaps([box], boxes)[0]
        faults += [
            f"{name} covers {text.get_text()!r}"
            for text, under in zip(texts, covered, strict=True)
            if under and text not in own
        ]
    return faults


def assert_clear_layout(figure: Figure, painted: dict[Text, Bbox] | None = None) -> None:
    """Assert that every text can be read: apart from the others, on the canvas, uncovered.

    `painted`, where given, is what was painted and where; without it the figure is drawn.
    """
    painted = painted_texts(figure) if painted is None else painted
    assert painted, "the figure has no text at all: axes need labels"
    faults = layout_faults(figure, painted)
    assert not faults, "; ".join(faults)
