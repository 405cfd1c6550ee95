"""How the figures of lessons and reports look, and how they are saved.

Curves differ by colour and by line style, so that they can be told apart in grey and by readers
who do not see all colours (palette of Okabe and Ito, "Color Universal Design", 2008). Every figure
carries its text alternative (`describe`).
"""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import BinaryIO

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure
from PIL import Image

BLUE, ORANGE, GREEN, RED, PURPLE, BLACK, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#000000",
    "#56B4E9",
)
LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))

STYLE = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=[BLUE, RED, GREEN, PURPLE, ORANGE, BLACK])
    + cycler(linestyle=LINE_STYLES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.fontsize": 9,
    "legend.framealpha": 0.9,
    "lines.linewidth": 1.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "course",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


# Explorers and predictions may draw in another thread than the cells. Matplotlib has one style for all threads, and one
# parser of formulas: whoever renders holds RENDERING, and takes the style before it.
RENDERING, _STYLING = threading.RLock(), threading.RLock()


@contextmanager
def course_style() -> Iterator[None]:
    """Draw under the course's figure style, one thread at a time."""
    with _STYLING, matplotlib.rc_context(STYLE):
        yield


def styled(draw: Callable) -> Callable:
    """Make `draw` run under the course's figure style."""

    @wraps(draw)
    def wrapper(*args, **kwargs):
        with course_style():
            return draw(*args, **kwargs)

    return wrapper


def new_figure(width: float | int = 6.4, height: float | int = 4.0) -> Figure:
    """Return an empty figure of `width` x `height` inches, free of pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")


def describe(figure: Figure, text: str) -> Figure:
    """Attach the text alternative: what a reader who cannot see the figure should know."""
    if not text.strip():
        raise ValueError("text must say what the figure shows, got an empty string")
    figure.set_label(text)
    return figure


def text_alternative(figure: Figure) -> str:
    """Return the text that `describe` attached.

    Raises:
        ValueError: the figure has none.
    """
    text = figure.get_label()
    if not text:
        raise ValueError("this figure has no text alternative: call describe(figure, text) where it is drawn")
    return text


def png_bytes(figure: Figure, *, dpi: float | int) -> bytes:
    """Render a figure to PNG, with a palette of 128 colours: a third of the size, which notebooks keep."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with course_style(), RENDERING:
        figure.savefig(drawn, format="png", dpi=dpi)
    # Without dithering, which would scatter dots over plain areas.
    picture = Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    return small.getvalue()


def save_svg(figure: Figure, file: Path | BinaryIO) -> None:
    """Write a figure as SVG whose title is its text alternative; the same figure gives the same bytes."""
    with course_style(), RENDERING:
        figure.savefig(file, format="svg", metadata={"Date": None, "Title": text_alternative(figure)})
