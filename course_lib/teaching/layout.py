"""The axes of a figure, declared: grid, titles, labels, limits, scales and legends in one place.

A setting given as a list goes to the axes one by one; anything else goes to all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D

from course_lib.teaching.style import STYLE

# Colour and line style belong together: the n-th curve looks alike in every figure.
LOOKS: tuple[dict[str, Any], ...] = tuple(dict(look) for look in STYLE["axes.prop_cycle"])


@dataclass(frozen=True, kw_only=True)
class Panels:
    """How the axes of a figure are laid out and labelled; `panels` says what each part means."""

    grid: tuple[int, int]
    legend: Any
    bare: bool
    subplots: Mapping[str, Any]
    settings: Mapping[str, Any]

    def make(self, figure: FigureBase) -> list[Axes]:
        """Add the axes to a figure, row by row, with all that does not depend on data."""
        axes = list(figure.subplots(*self.grid, squeeze=False, **self.subplots).flat)
        for place, one in enumerate(axes):
            wanted = {name: _own(value, place) for name, value in self.settings.items()}
            one.set(**{name: value for name, value in wanted.items() if value is not None})
            if self.bare:
                one.set_axis_off()
        return axes

    def legends(self, axes: Sequence[Axes]) -> None:
        """Add the legends, once the axes hold their curves."""
        for place, one in enumerate(axes):
            wanted = _own(self.legend, place)
            if wanted is not None and one.get_legend_handles_labels()[1]:
                one.legend(**({"loc": wanted} if isinstance(wanted, str) else wanted))


def panels(
    title: str | list[str] | None = None,
    x: str | list[str] | None = None,
    y: str | list[str] | None = None,
    *,
    grid: tuple[int, int] = (1, 1),
    legend: Any = "best",
    bare: bool = False,
    subplots: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Panels:
    """Declare axes: their title, the labels of x and y, and how they look.

    `grid` is rows and columns. `legend` is a place ("upper left"), the keywords of `Axes.legend`, or None for none,
    and is drawn where curves have labels. `bare` hides axes that only hold a drawing. `subplots` are further keywords
    of `Figure.subplots` (`sharey`, `width_ratios`); `settings` go to `Axes.set` (`xlim`, `ylim`, `xscale`, `yscale`,
    `aspect`, `xticks`).
    """
    settings = {"title": title, "xlabel": x, "ylabel": y, **settings}
    return Panels(grid=grid, legend=legend, bare=bare, subplots=subplots or {}, settings=settings)


def _own(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, list) else value


def lines(
    axes: Axes, x: Any, curves: Mapping[str, Any] | Sequence[str], *, first: int = 0, **common: Any
) -> list[Line2D]:
    """Draw curves by label, each with the colour and line style of its place in the order; return the lines.

    `curves` maps each label to y, or to (x, y) where curves differ in x; a plain sequence of labels draws zeros, or
    empty lines where x is empty, for an explorer to fill. `x` None counts from 0; `first` is the place of the first
    curve in the order.
    """
    if not isinstance(curves, Mapping):
        x = [] if x is None else x
        curves = {label: [0.0] * len(x) for label in curves}
    drawn = []
    for place, (label, y) in enumerate(curves.items(), start=first):
        data = y if isinstance(y, tuple) else (y,) if x is None else (x, y)
        drawn += axes.plot(*data, label=label, **{**LOOKS[place % len(LOOKS)], **common})
    return drawn


def markdown_table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Markdown:
    """Return a table to be shown by a cell; numbers stand as they are given, so they come formatted."""
    lines_of = [header, ["---"] * len(header), *rows]
    return Markdown("\n".join(f"| {' | '.join(map(str, row))} |" for row in lines_of))
