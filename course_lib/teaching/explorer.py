"""Explorers: interactive figures that are fast, testable and readable without a kernel.

An explorer is a pure `compute(**controls) -> state`, a `draw(figure)` that runs once, and an
`update(artists, state)` that only sets artist data. What never moves (axes, ticks, labels) is drawn
once and kept as pixels; a frame copies those pixels, draws the moving artists over them and encodes
the result. That is several times cheaper than drawing the figure anew, which is what
`ipywidgets.interact` does, and it holds no global pyplot state.
"""

import base64
import html
import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import ipywidgets
import numpy as np
from IPython.display import HTML, display
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure, FigureBase
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from course_lib.figures import RENDERING, course_style
from course_lib.teaching.layout import Panels
from course_lib.teaching.style import describe, png_bytes, text_alternative
from course_lib.teaching.words import PANEL_CLASS, RESET_CLASS, Words, answer_while_busy

_LAYOUT = ipywidgets.Layout(width="46em", max_width="100%")
_DESCRIPTION = {"description_width": "13em"}
LINE_BREAK = "\n"


@dataclass(frozen=True)
class Slider:
    """A number that the learner sets: its name in words, its symbol, what it does, its range and its unit."""

    label: str
    symbol: str
    tooltip: str
    default: float | int
    minimum: float | int
    maximum: float | int
    step: float | int
    unit: str = ""

    def __post_init__(self):
        if not self.minimum <= self.default <= self.maximum or self.minimum == self.maximum:
            raise ValueError(
                f"default of slider {self.label!r} must lie in [{self.minimum}, {self.maximum}], "
                f"got {self.default}"
            )

    @property
    def description(self) -> str:
        """The visible label, and thereby the accessible name: words, symbol, unit."""
        return f"{self.label} {self.symbol}" + (f" ({self.unit})" if self.unit else "")

    def values(self) -> tuple[float | int, float | int, float | int]:
        """Return left end, default and right end."""
        return (self.minimum, self.default, self.maximum)

    @property
    def whole(self) -> bool:
        """Whether the slider takes whole numbers only: it is given by whole numbers."""
        return all(isinstance(v, int) for v in (self.default, self.minimum, self.maximum, self.step))

    def say(self, value: float | int) -> str:
        """Say a setting in words."""
        return f"{self.label} {self.symbol} = {value:g}" + (f" {self.unit}" if self.unit else "")

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError where `value` is not a number within the slider's ends, whole where they are."""
        if not isinstance(value, int | float) or not self.minimum <= value <= self.maximum:
            raise ValueError(f"{name} must lie in [{self.minimum:g}, {self.maximum:g}], got {value!r}")
        if self.whole and not isinstance(value, int):
            raise ValueError(f"{name} must be a whole number, got {value!r}")

    def widget(self) -> ipywidgets.Widget:
        """Make the control; whole-numbered sliders stay whole."""
        kind = ipywidgets.IntSlider if self.whole else ipywidgets.FloatSlider
        # As many decimals as the step has: 0.005 reads 0.200, not 0.2 or 0.2000.
        decimals = max(0, -Decimal(str(self.step)).as_tuple().exponent)
        options = {} if self.whole else {"readout_format": f".{decimals}f"}
        return kind(
            value=self.default,
            min=self.minimum,
            max=self.maximum,
            step=self.step,
            description=self.description,
            tooltip=self.tooltip,
            style=_DESCRIPTION,
            layout=_LAYOUT,
            **options,
        )


@dataclass(frozen=True)
class Choice:
    """One of a few named settings."""

    label: str
    tooltip: str
    default: str
    options: tuple[str, ...]

    def __post_init__(self):
        if self.default not in self.options or len(self.options) < 2:
            raise ValueError(
                f"default of choice {self.label!r} must be one of {self.options}, got {self.default!r}"
            )

    def values(self) -> tuple[str, str, str]:
        """Return the first option, the default and the last option."""
        return (self.options[0], self.default, self.options[-1])

    def say(self, value: str) -> str:
        """Say a setting in words."""
        return f"{self.label}: {value}"

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError where `value` is not among the options."""
        if value not in self.options:
            raise ValueError(f"{name} must be one of {list(self.options)}, got {value!r}")

    def widget(self) -> ipywidgets.Widget:
        """Make the control."""
        return ipywidgets.Dropdown(
            value=self.default,
            options=self.options,
            description=self.label,
            tooltip=self.tooltip,
            style=_DESCRIPTION,
            layout=_LAYOUT,
        )


@dataclass(frozen=True)
class TextBox:
    """A line that the learner types; it counts when Enter is pressed or the box is left.

    Any text is allowed, the empty one too: the explorer says in words what it makes of it. `other` is a second
    example, which the tests try.
    """

    label: str
    tooltip: str
    default: str
    other: str

    def __post_init__(self):
        if not self.default.strip() or self.default == self.other:
            raise ValueError(
                f"default of text box {self.label!r} must be a text other than {self.other!r}, "
                f"got {self.default!r}"
            )

    def values(self) -> tuple[str, str, str]:
        """Return the empty text, the default and the other example."""
        return ("", self.default, self.other)

    def say(self, value: str) -> str:
        """Say a setting in words."""
        return f"{self.label}: “{value}”"

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError where `value` is not a text."""
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a text, got {value!r}")

    def widget(self) -> ipywidgets.Widget:
        """Make the control."""
        return ipywidgets.Text(
            value=self.default,
            description=self.label,
            tooltip=self.tooltip,
            style=_DESCRIPTION,
            layout=_LAYOUT,
            continuous_update=False,
        )


@dataclass(frozen=True)
class Switch:
    """Something that is off or on: a result that the page derives later, a constraint, a second curve."""

    label: str
    tooltip: str
    default: bool = False

    def values(self) -> tuple[bool, bool, bool]:
        """Return off, the default, and on."""
        return (False, self.default, True)

    def say(self, value: bool) -> str:
        """Say a setting in words."""
        return f"{self.label}: {'on' if value else 'off'}"

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError where `value` is not a bool."""
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}")

    def widget(self) -> ipywidgets.Widget:
        """Make the control."""
        return ipywidgets.Checkbox(
            value=self.default,
            description=self.label,
            tooltip=self.tooltip,
            style=_DESCRIPTION,
            layout=_LAYOUT,
        )


Control = Slider | Choice | TextBox | Switch


class Explorer:
    """Base class of every interactive figure.

    A subclass sets `title`, `summary` (the text alternative of the figure as a whole), its controls as attributes
    (`Slider`, `Choice`, `TextBox` or `Switch`, named as `compute`'s keyword arguments; the first one is the one that the
    static strip sweeps) and its axes as `layout` (`panels`). Where two controls decide together what happens,
    `together` names them: a page without a kernel then shows all their combinations. `stills` names the settings of the
    strip where a sweep of one control would not do. It defines

    - `compute(**settings)`: pure, returns the state that is drawn, a mapping;
    - `draw(*axes)`: makes artists once and returns the moving ones by name (single artists or lists); without
      a `layout` it gets the figure;
    - `words(state)`: one sentence on what the setting shows;
    - `update(artists, state)`, only where setting each artist's data to the entry of its name is not enough.
    """

    title: str
    summary: str
    controls: Mapping[str, Control]
    together: tuple[str, str] | None = None
    # What the three pictures of the static strip set, where a sweep of the first control says too little.
    stills: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]] | None = None
    layout: Panels | None = None
    size: tuple[float, float] = (6.4, 4.0)
    dpi: float = 144
    continuous: bool = True
    # How large the pictures of the static strip are, beside the figure: small text asks for 1; and their dots an inch.
    strip_scale: float = 0.8
    strip_dpi: float = 110

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Control)}
        cls.controls = {**getattr(cls, "controls", {}), **own}
        if cls.together and (len(cls.together), len(set(cls.together) & set(cls.controls))) != (2, 2):
            raise ValueError(
                f"together of {cls.__name__} must name two of its controls {list(cls.controls)}, got {cls.together}"
            )

    def compute(self, **settings: Any) -> Any:
        """Return the state for the given settings."""
        raise NotImplementedError

    def draw(self, *axes: Any) -> dict[str, Artist | list[Artist]]:
        """Draw what the figure consists of and return the artists that move."""
        raise NotImplementedError

    def update(self, artists: dict[str, Any], state: Any) -> None:
        """Set the moving artists to `state`, each to the entry of its name (`set_data`)."""
        for name, artist in artists.items():
            set_data(artist, state[name])

    def words(self, state: Any) -> str:
        """Say in one sentence what `state` shows."""
        raise NotImplementedError

    def _drawn(self, figure: FigureBase) -> dict[str, Artist | list[Artist]]:
        if self.layout is None:
            return self.draw(figure)
        axes = self.layout.make(figure)
        artists = self.draw(*axes)
        self.layout.legends(axes)
        return artists

    def __init__(self):
        self.settings = {name: control.default for name, control in self.controls.items()}
        with course_style(), RENDERING:
            self.figure = Figure(figsize=self.size, dpi=self.dpi, layout="constrained")
            self._canvas = FigureCanvasAgg(self.figure)
            self.artists = self._drawn(self.figure)
            self._moving = _flatten(self.artists)
            for artist in self._moving:
                artist.set_animated(True)
            self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self.figure.bbox)
        # Laid over the moving curves as pixels, since drawing a legend anew takes a quarter of a frame.
        legends = [legend for axes in self.figure.axes if (legend := axes.get_legend())]
        self._legends = [
            self._canvas.copy_from_bbox(legend.get_window_extent().padded(1)) for legend in legends
        ]
        self._widgets: dict[str, ipywidgets.Widget] | None = None
        # JupyterLab hands what its widgets send to more than one thread of the kernel, slider and button at once.
        self._lock = threading.RLock()

    def checked(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the current settings with `settings` over them.

        Raises:
            ValueError: a name is not a control, or a value is outside its control's range.
        """
        for name, value in settings.items():
            if name not in self.controls:
                raise ValueError(
                    f"{name} is not a control of {self.title!r}; its controls are {list(self.controls)}"
                )
            self.controls[name].check(name, value)
        return {**self.settings, **settings}

    def frame(self, **settings: Any) -> tuple[bytes, str]:
        """Render one frame: PNG bytes and the line in words."""
        with self._lock:
            self.settings = self.checked(settings)
            state = self.compute(**self.settings)
            with RENDERING:
                self.update(self.artists, state)
                self._canvas.restore_region(self._background)
                renderer = self._canvas.get_renderer()
                for artist in self._moving:
                    artist.draw(renderer)
                for legend in self._legends:
                    self._canvas.restore_region(legend)
            return _encode(np.asarray(self._canvas.buffer_rgba())), self.words(state)

    # The strip and the text alternative: what a reader without a kernel sees.

    def strip(self) -> Figure:
        """Return three pictures: `stills`, or the first control at its left end, default and right end.

        Narrow explorers stand side by side, wide ones below each other, so that the text stays readable.
        """
        name, control = next(iter(self.controls.items()))
        stills = self.stills or tuple({name: value} for value in control.values())
        width, height = self.strip_scale * self.size[0], self.strip_scale * self.size[1] + 0.4
        rows, columns = (3, 1) if width > 6 else (1, 3)
        with course_style():
            figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
            FigureCanvasAgg(figure)
            said = []
            for part, given in zip(figure.subfigures(rows, columns), stills, strict=True):
                setting = ", ".join(self.controls[moved].say(value) for moved, value in given.items())
                state = self.compute(**{**self._defaults(), **given})
                artists = self._drawn(part)
                self.update(artists, state)
                part.suptitle(setting, fontsize=12, fontweight="bold")
                said.append(f"{setting}: {self.words(state)}")
        return describe(figure, LINE_BREAK.join([f"{self.title}. {self.summary}", *said]))

    def text_alternative(self) -> str:
        """Return in words what the static strip shows."""
        return text_alternative(self.strip())

    def _defaults(self) -> dict[str, Any]:
        return {name: control.default for name, control in self.controls.items()}

    # The live panel.

    def _build(self) -> ipywidgets.Widget:
        self._widgets = {name: control.widget() for name, control in self.controls.items()}
        start = {
            widget.model_id: widget.get_state("index" if isinstance(self.controls[name], Choice) else "value")
            for name, widget in self._widgets.items()
        }
        for name, widget in self._widgets.items():
            widget.value = self.settings[name]
            if isinstance(self.controls[name], Slider):
                widget.continuous_update = self.continuous
            widget.observe(self._on_change, "value")
        self._image = ipywidgets.Image(
            format="png",
            layout=ipywidgets.Layout(width=f"{round(self.size[0] * 96)}px", max_width="100%"),
        )
        self._words = Words(start=start)
        self._quiet = False
        reset = ipywidgets.Button(description="Reset", tooltip=f"Put every control of “{self.title}” back")
        reset.add_class(RESET_CLASS)
        reset.on_click(lambda _: self.set(**self._defaults()))
        panel = ipywidgets.VBox([*self._widgets.values(), reset, self._words, self._image])
        panel.add_class(PANEL_CLASS)
        answer_while_busy(*self._widgets.values(), reset)
        self._refresh()
        return panel

    def _on_change(self, change) -> None:
        if not self._quiet:
            self._refresh()

    def _refresh(self) -> None:
        # Whoever comes last reads what all have set, so the panel ends at the values that its controls show.
        with self._lock:
            picture, words = self.frame(**{name: widget.value for name, widget in self._widgets.items()})
            self._words.alt = f"{self.title}. {self.summary} {words}"
            self._words.text = words
            self._image.value = picture  # last: where the new picture is seen, its words are there

    def set(self, **settings: Any) -> None:
        """Move controls from code, as the learner's hand would; the picture follows.

        Raises:
            ValueError: a name is not a control, or a value is outside its range.
        """
        settings = self.checked(settings)
        if self._widgets is None:
            self.settings = settings
            return
        self._quiet = True
        try:
            for name, value in settings.items():
                self._widgets[name].value = value
        finally:
            self._quiet = False
        self._refresh()

    def _ipython_display_(self) -> None:
        display(self._build(), self.static())

    def static(self) -> HTML:
        """Return the strip and its words, to be folded away by readers who have a kernel."""
        strip = self.strip()
        text = html.escape(text_alternative(strip))
        picture = base64.b64encode(png_bytes(strip, dpi=self.strip_dpi)).decode()
        width = min(round(strip.get_figwidth() * 80), 1000)
        return HTML(
            "<details><summary>For reading without a kernel: three settings, as a picture and in words</summary>"
            f'<img alt="{text}" width="{width}" src="data:image/png;base64,{picture}"/>'
            f"<p>{text.replace(LINE_BREAK, '<br/>')}</p></details>"
        )


def set_data(artist: Artist | list[Artist], value: Any) -> None:
    """Give an artist its data, or each of a list its own.

    A line takes (x, y), numbers or arrays, or y alone where x stays; a text takes its words, or (x, y, words); an
    image takes its array, a scatter plot its points (n, 2), a bar its height, or (x, y, width, height).

    Raises:
        TypeError: the artist is of another kind; the explorer has to define `update`.
    """
    if isinstance(artist, list):
        for one, own in zip(artist, value, strict=True):
            set_data(one, own)
    elif isinstance(artist, Line2D):
        if isinstance(value, tuple):
            artist.set_data(*map(np.atleast_1d, value))
        else:
            artist.set_ydata(np.atleast_1d(value))
    elif isinstance(artist, Text):
        x, y, words = value if isinstance(value, tuple) else (*artist.get_position(), value)
        artist.set(x=x, y=y, text=words)
    elif isinstance(artist, AxesImage):
        artist.set_data(value)
    elif isinstance(artist, PathCollection):
        artist.set_offsets(value)
    elif isinstance(artist, Rectangle):
        artist.set_bounds(value) if isinstance(value, tuple) else artist.set_height(value)
    else:
        raise TypeError(
            f"no rule how {type(artist).__name__} takes its data: define `update` in the explorer that draws it"
        )


def _flatten(artists: Mapping[str, Artist | list[Artist]]) -> list[Artist]:
    return [a for value in artists.values() for a in (value if isinstance(value, list) else [value])]


def _encode(pixels: np.ndarray) -> bytes:
    """Encode RGBA pixels as PNG; fast compression, since a frame is looked at once."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., :3]).save(buffer, format="png", compress_level=1)
    return buffer.getvalue()
