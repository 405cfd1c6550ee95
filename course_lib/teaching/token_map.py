"""A map of numbers with a name at each row and column, for explorers: cells, names and a box that all move."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course_lib.teaching.explorer import set_data
from course_lib.teaching.style import RED


def shortened(text: str, length: int) -> str:
    """Return the text, cut to `length` characters of which the last is then an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def token_map(axes: Axes, *, rows: int, columns: int, **image: Any) -> dict[str, Any]:
    """Draw an empty map with room for as many names; return its artists: map, box, rows, columns, message.

    `image` goes to `Axes.imshow` (`cmap`, `norm`). Rows are written downwards.
    """
    axes.grid(visible=False)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    small = {"fontsize": 8, "parse_math": False}
    return {
        "map": axes.imshow(np.zeros((1, 1)), extent=(0, 1, 0, 1), aspect="auto", **image),
        "box": axes.add_patch(Rectangle((0, 0), 0, 0, fill=False, edgecolor=RED, linewidth=2)),
        "rows": [axes.text(-0.01, 0, "", ha="right", va="center", **small) for _ in range(rows)],
        "columns": [
            axes.text(0, -0.015, "", ha="center", va="top", rotation=90, **small) for _ in range(columns)
        ],
        "message": axes.text(0.5, 0.5, "", ha="center", va="center", fontsize=11),
    }


def fill_map(
    artists: Mapping[str, Any],
    values: np.ndarray | None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    *,
    box: tuple[int, int | None] | None = None,
    message: str = "",
) -> None:
    """Set the artists of a `token_map`: values (rows, columns) or None, names, and a message in its middle.

    `box` frames the cell (row, column), or the whole row where the column is None.
    """
    values = np.ma.masked_all((1, 1)) if values is None else values
    height, width = (1 / n for n in values.shape)
    set_data(artists["map"], values)
    for place, text in enumerate(artists["rows"]):
        text.set(text=rows[place] if place < len(rows) else "", y=1 - (place + 0.5) * height)
    for place, text in enumerate(artists["columns"]):
        text.set(text=columns[place] if place < len(columns) else "", x=(place + 0.5) * width)
    bounds = (0, 0, 0, 0)
    if box is not None:
        row, column = box
        across = (0, 1) if column is None else (column * width, width)
        bounds = (across[0], 1 - (row + 1) * height, across[1], height)
    set_data(artists["box"], bounds)
    set_data(artists["message"], message)
