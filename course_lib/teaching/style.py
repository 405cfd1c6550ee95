"""How a notebook shows a figure; the figures themselves are drawn with `course_lib.figures`."""

import base64

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import (
    BLACK,
    BLUE,
    GREEN,
    LINE_STYLES,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    STYLE,
    describe,
    new_figure,
    png_bytes,
    save_svg,
    styled,
    text_alternative,
)

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "LINE_STYLES",
    "ORANGE",
    "PURPLE",
    "RED",
    "SKY",
    "STYLE",
    "Picture",
    "compact",
    "describe",
    "new_figure",
    "png_bytes",
    "save_svg",
    "show",
    "small_legend",
    "styled",
    "text_alternative",
]


class Picture:
    """A drawn figure in a notebook: the picture, with its text alternative as the plain text."""

    def __init__(self, png: bytes, text: str, width: int):
        self.png, self.text, self.width = png, text, width

    def __repr__(self) -> str:
        return f"Figure: {self.text}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        data = {"image/png": base64.b64encode(self.png).decode(), "text/plain": repr(self)}
        return data, {"image/png": {"width": self.width, "alt": self.text}}


def show(figure: Figure) -> None:
    """Display a figure at more than the resolution of the page, and its text alternative as the caption below."""
    from IPython.display import Markdown, display

    display(
        Picture(
            png_bytes(figure, dpi=160), text_alternative(figure), width=round(figure.get_figwidth() * 96)
        ),
        Markdown(f"*{_escaped(text_alternative(figure))}*"),
    )


def compact(*axes: Axes, title: float = 9.5, ticks: float = 8, labels: float = 9, grid: bool = False) -> None:
    """Make all text of these axes smaller (in points), for a figure that is shown at the size that it is drawn."""
    for one in axes:
        one.title.set_fontsize(title)
        if not grid:
            one.grid(visible=False)
        one.tick_params(labelsize=ticks)
        for label in (one.xaxis.label, one.yaxis.label):
            label.set_fontsize(labels)


def small_legend(place: str, *, fontsize: float = 8, **more) -> dict:
    """Return a legend's place and size as figures and panels take them."""
    return {"loc": place, "fontsize": fontsize, **more}


def _escaped(text: str) -> str:
    """Take the meaning from the characters that Markdown would read as markup."""
    return "".join(f"\\{c}" if c in "\\`*_<>|$[]" else c for c in text)
