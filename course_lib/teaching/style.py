"""How a notebook shows a figure; the figures themselves are drawn with `course_lib.figures`."""

import base64

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
    "describe",
    "new_figure",
    "png_bytes",
    "save_svg",
    "show",
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


def _escaped(text: str) -> str:
    """Take the meaning from the characters that Markdown would read as markup."""
    return "".join(f"\\{c}" if c in "\\`*_<>|$[]" else c for c in text)
