"""Every explorer of every lesson: fast frames, honest words, named controls, and a panel that follows the hand."""

import base64
import html
import io
import random
import re
from dataclasses import replace

import ipywidgets
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from course_lib.teaching.explorer import Choice, Explorer, Slider, TextBox
from course_lib.teaching.style import text_alternative
from course_lib.teaching.words import PANEL_CLASS, Words
from tests.lessons import EXPLORERS

every_explorer = pytest.mark.parametrize("kind", EXPLORERS, ids=lambda k: k.__name__)
every_control = pytest.mark.parametrize(
    ("kind", "name"),
    [(k, name) for k in EXPLORERS for name in k.controls],
    ids=lambda v: getattr(v, "__name__", v),
)


class Wave(Explorer):
    """An explorer with one control of each kind, for what the lessons do not use yet."""

    title = "A wave"
    summary = "A sine over a period."
    controls = {  # noqa: RUF012
        "count": Slider(label="waves", symbol="n", unit="periods", default=2, minimum=1, maximum=5, step=1,
                        tooltip="How many"),
        "shape": Choice(label="shape", default="sine", options=("sine", "cosine", "zero"), tooltip="Which"),
        "name": TextBox(label="name", default="Ada", other="Bo", tooltip="Whose wave"),
    }  # fmt: skip
    size = (4.0, 3.0)
    continuous = False

    def compute(self, *, count, shape, name):
        x = np.linspace(0, 2 * np.pi, 100)
        return {
            "y": {"sine": np.sin, "cosine": np.cos, "zero": np.zeros_like}[shape](count * x),
            "count": count,
            "name": name or "nobody",
        }

    def draw(self, figure):
        axes = figure.add_subplot()
        axes.set(xlim=(0, 100), ylim=(-1.2, 1.2), xlabel="x", ylabel="y")
        return {"curves": [axes.plot([], [])[0]]}

    def update(self, artists, state):
        artists["curves"][0].set_data(np.arange(100), state["y"])

    def words(self, state):
        return f"{state['count']} periods of {state['name']}, mean {state['y'].mean():.2f}."


def settings_to_try(kind, name):
    """Left end, default, right end and ten settings in between, all on the control's own steps."""
    control = kind.controls[name]
    if isinstance(control, Choice):
        return list(control.options)
    if isinstance(control, TextBox):
        return list(control.values())
    steps = round((control.maximum - control.minimum) / control.step)
    picks = random.Random(0).sample(range(steps + 1), min(10, steps))
    middle = control.minimum + control.step * (steps // 2)
    inner = (min(control.minimum + control.step * pick, control.maximum) for pick in picks)
    return [*control.values(), middle, *inner]


def same(a, b):
    """Whether two states are equal, whatever they are made of."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | torch.Tensor):
        return np.array_equal(np.asarray(a), np.asarray(b))
    return a == b


def data_of(explorer):
    """Copy the data of all moving artists."""
    flat = [a for v in explorer.artists.values() for a in (v if isinstance(v, list) else [v])]

    def data(artist):
        if isinstance(artist, Text):
            return artist.get_text()
        if isinstance(artist, AxesImage):
            return np.ma.filled(artist.get_array(), -1.0)
        return np.array(artist.get_bbox().extents if isinstance(artist, Rectangle) else artist.get_xydata())

    return [data(artist) for artist in flat]


def limits_of(explorer):
    return [(axes.get_xlim(), axes.get_ylim()) for axes in explorer.figure.axes]


def panel_of(explorer, monkeypatch):
    """Display the explorer as a notebook cell does; return controls by name, Reset, Words, Image and the rest."""
    shown = []
    monkeypatch.setattr("course_lib.teaching.explorer.display", lambda *things: shown.extend(things))
    explorer._ipython_display_()
    panel, *rest = shown
    assert PANEL_CLASS in panel._dom_classes
    *controls, reset, words, image = panel.children
    assert isinstance(reset, ipywidgets.Button)
    assert isinstance(words, Words)
    assert isinstance(image, ipywidgets.Image)
    return dict(zip(explorer.controls, controls, strict=True)), reset, words, image, rest


def test_every_lesson_has_an_explorer():
    assert len(EXPLORERS) >= 2


# Frames


@every_control
def test_a_sweep_moves_picture_data_and_words_and_nothing_else(kind, name):
    explorer = kind()
    control = explorer.controls[name]
    default_picture, default_words = explorer.frame()
    default_data, limits = data_of(explorer), limits_of(explorer)
    for value in settings_to_try(kind, name):
        picture, words = explorer.frame(**{name: value})
        data = data_of(explorer)
        assert Image.open(io.BytesIO(picture)).format == "PNG"
        assert all(isinstance(d, str) or np.isfinite(d).all() for d in data)
        assert limits_of(explorer) == limits
        assert words.strip()
        assert "nan" not in words.lower()
        if (
            not np.isclose(value, control.default)
            if isinstance(control, Slider)
            else value != control.default
        ):
            assert picture != default_picture
            assert not same(data, default_data)
            assert words != default_words
        explorer.frame(**{name: control.default})


@every_explorer
def test_random_settings_are_drawn(kind):
    explorer, chance = kind(), random.Random(1)
    limits, pictures = limits_of(explorer), set()
    choices = {name: settings_to_try(kind, name) for name in kind.controls}
    for _ in range(10):
        picture, words = explorer.frame(**{name: chance.choice(values) for name, values in choices.items()})
        pictures.add(picture)
        assert words.strip()
        assert all(isinstance(d, str) or np.isfinite(d).all() for d in data_of(explorer))
        assert limits_of(explorer) == limits
    assert len(pictures) > 5


@every_explorer
def test_the_axes_are_labelled(kind):
    for axes in kind().figure.axes:
        assert axes.get_xlabel().strip()
        assert axes.get_ylabel().strip()


@every_control
def test_compute_is_pure(kind, name):
    explorer = kind()
    before = {key: (id(value), repr(value)) for key, value in vars(explorer).items() if key != "_background"}
    class_before = {key: id(value) for key, value in vars(kind).items()}
    for value in settings_to_try(kind, name)[:4]:
        settings = {**explorer.settings, name: value}
        assert same(explorer.compute(**settings), explorer.compute(**settings))
        assert same(explorer.compute(**settings), kind().compute(**settings))
        assert same(settings, {**explorer.settings, name: value})
    after = {key: (id(value), repr(value)) for key, value in vars(explorer).items() if key != "_background"}
    assert after == before
    assert {key: id(value) for key, value in vars(kind).items()} == class_before


@every_explorer
def test_a_frame_leaves_no_trace_of_the_one_before(kind):
    explorer = kind()
    name, control = next(iter(explorer.controls.items()))
    first, _ = explorer.frame(**{name: control.maximum})
    explorer.frame(**{name: control.minimum})
    assert explorer.frame(**{name: control.maximum})[0] == first
    assert kind().frame(**{name: control.maximum})[0] == first


@every_explorer
def test_a_frame_does_not_redraw_the_background(kind, monkeypatch):
    explorer = kind()

    def refuse(*_args, **_kwargs):
        raise AssertionError("the whole figure was drawn for one frame")

    for name in ("draw", "print_png", "print_figure"):
        monkeypatch.setattr(FigureCanvasAgg, name, refuse)
    for axes in explorer.figure.axes:
        monkeypatch.setattr(axes, "draw", refuse)
    name, control = next(iter(explorer.controls.items()))
    explorer.frame(**{name: control.maximum})
    with pytest.raises(AssertionError, match="whole figure"):
        explorer.figure.canvas.draw()


@every_explorer
def test_a_frame_has_the_size_of_the_figure(kind):
    explorer = kind()
    assert Image.open(io.BytesIO(explorer.frame()[0])).size == explorer.figure.canvas.get_width_height()


# Settings that do not exist


@every_control
def test_a_value_out_of_range_is_refused_by_the_controls_name(kind, name):
    explorer, control = kind(), kind.controls[name]
    bad = ["none of these"] if isinstance(control, Choice) else [3, None] if isinstance(control, TextBox) else [
        control.maximum + control.step, control.minimum - control.step, float("nan"), float("inf"), "text", None,
    ]  # fmt: skip
    for value in bad:
        for call in (explorer.frame, explorer.set):
            with pytest.raises(ValueError, match=f"^{name} must"):
                call(**{name: value})
    assert explorer.settings == {n: c.default for n, c in kind.controls.items()}


@every_explorer
def test_a_wrong_name_is_refused_with_the_right_ones(kind, monkeypatch):
    explorer = kind()
    panel_of(explorer, monkeypatch)
    for call in (explorer.frame, explorer.set):
        with pytest.raises(ValueError, match=r"momentum is not a control") as error:
            call(momentum=0.9)
        for name in kind.controls:
            assert name in str(error.value)


# The panel


@pytest.mark.parametrize("kind", [*EXPLORERS, Wave], ids=lambda k: k.__name__)
def test_controls_carry_name_tooltip_and_range(kind, monkeypatch):
    widgets, reset, words, image, _ = panel_of(kind(), monkeypatch)
    assert reset.description == "Reset"
    assert kind.title in reset.tooltip
    labels = [widget.description for widget in widgets.values()]
    assert len(set(labels)) == len(labels), "two controls with one name cannot be told apart"
    for name, widget in widgets.items():
        control = kind.controls[name]
        assert control.label in widget.description
        assert len(widget.description) <= 25, "a longer label is cut off in its 13 em"
        assert widget.tooltip == control.tooltip
        assert control.tooltip.strip()
        assert widget.value == control.default
        if isinstance(control, Slider):
            assert control.symbol in widget.description
            assert control.unit in widget.description
            assert (widget.min, widget.max, widget.step) == (control.minimum, control.maximum, control.step)
            assert widget.continuous_update is kind.continuous
        elif isinstance(control, TextBox):
            assert isinstance(widget, ipywidgets.Text)
            assert widget.continuous_update is False
        else:
            assert widget.options == control.options
    assert words.text
    assert kind.title in words.alt
    assert words.text in words.alt
    assert bytes(image.value).startswith(b"\x89PNG")


@every_control
def test_the_learners_hand_moves_picture_and_words(kind, name, monkeypatch):
    explorer = kind()
    widgets, reset, words, image, _ = panel_of(explorer, monkeypatch)
    before = (image.value, words.text, words.alt)
    control = kind.controls[name]
    widgets[name].value = (
        control.values()[2] if control.values()[2] != control.default else control.values()[0]
    )
    after = (image.value, words.text, words.alt)
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert explorer.settings[name] == widgets[name].value
    reset.click()
    assert (image.value, words.text, words.alt) == before
    assert {n: w.value for n, w in widgets.items()} == {n: c.default for n, c in kind.controls.items()}


@every_explorer
def test_set_moves_the_widgets_and_draws_once(kind, monkeypatch):
    explorer = kind()
    widgets, _, words, image, _ = panel_of(explorer, monkeypatch)
    before, frames, frame = image.value, [], explorer.frame
    monkeypatch.setattr(explorer, "frame", lambda **s: frames.append(s) or frame(**s))
    target = {name: control.values()[0] for name, control in kind.controls.items()}
    explorer.set(**target)
    assert {name: widget.value for name, widget in widgets.items()} == target
    assert len(frames) == 1
    assert image.value != before
    assert (image.value, words.text) == kind().frame(**target)
    assert words.text in words.alt


@every_explorer
def test_set_before_the_panel_is_shown_counts_when_it_is(kind, monkeypatch):
    explorer = kind()
    name, control = next(iter(kind.controls.items()))
    explorer.set(**{name: control.maximum})
    widgets, _, words, _, _ = panel_of(explorer, monkeypatch)
    assert widgets[name].value == control.maximum
    assert words.text == kind().frame(**{name: control.maximum})[1]


def test_whole_numbers_stay_whole_and_choices_are_lists(monkeypatch):
    explorer = Wave()
    widgets, reset, words, image, _ = panel_of(explorer, monkeypatch)
    assert isinstance(widgets["count"], ipywidgets.IntSlider)
    assert isinstance(widgets["shape"], ipywidgets.Dropdown)
    before = image.value
    widgets["shape"].value = "cosine"
    assert image.value != before
    explorer.set(count=5)
    assert words.text.startswith("5 periods")
    with pytest.raises(ValueError, match="shape must be one of"):
        explorer.set(shape="square")
    with pytest.raises(ValueError, match="count must be a whole number"):
        explorer.set(count=2.5)
    reset.click()
    assert (widgets["count"].value, widgets["shape"].value, image.value) == (2, "sine", before)


def test_typed_text_counts_and_only_text_is_taken(monkeypatch):
    explorer = Wave()
    widgets, reset, words, _, _ = panel_of(explorer, monkeypatch)
    for typed, said in (("Grace", "of Grace"), ("", "of nobody"), ("$x$ <b> \\ 字 " * 50, "of $x$ <b>")):
        widgets["name"].value = typed
        assert said in words.text
    with pytest.raises(ValueError, match=r"^name must be a text, got 3"):
        explorer.set(name=3)
    reset.click()
    assert (widgets["name"].value, "of Ada" in words.text) == ("Ada", True)


# The strip


@pytest.mark.parametrize("kind", [*EXPLORERS, Wave], ids=lambda k: k.__name__)
def test_the_strip_shows_three_settings_and_says_them(kind, monkeypatch):
    explorer = kind()
    strip = explorer.strip()
    name, control = next(iter(kind.controls.items()))
    assert len(strip.subfigs) == 3
    assert [part.get_suptitle() for part in strip.subfigs] == [control.say(v) for v in control.values()]
    text = text_alternative(strip)
    assert explorer.text_alternative() == text
    assert kind.title in text
    assert kind.summary in text
    for value in control.values():
        assert control.say(value) in text
        assert kind().frame(**{name: value})[1] in text
    # A panel shows what the live figure shows for that setting.
    for part, value in zip(strip.subfigs, control.values(), strict=True):
        live = kind()
        live.frame(**{name: value})
        for theirs, ours in zip(part.axes, live.figure.axes, strict=True):
            assert (theirs.get_xlim(), theirs.get_ylim()) == (ours.get_xlim(), ours.get_ylim())
            for a, b in zip(theirs.lines, ours.lines, strict=True):
                assert same(np.asarray(a.get_xydata()), np.asarray(b.get_xydata()))


@every_explorer
def test_the_strip_and_its_text_stand_beside_the_panel(kind, monkeypatch):
    explorer = kind()
    *_, (static,) = panel_of(explorer, monkeypatch)
    text = html.unescape(static.data).replace("<br/>", "\n")
    said = explorer.text_alternative()
    assert f'<img alt="{said}"' in text
    assert f"<p>{said}</p>" in text
    picture = re.search(r'src="data:image/png;base64,([^"]+)"', static.data)[1]
    assert Image.open(io.BytesIO(base64.b64decode(picture))).width > 500


@every_explorer
def test_the_strip_does_not_depend_on_the_current_setting(kind):
    explorer = kind()
    before = explorer.text_alternative()
    explorer.set(**{name: control.values()[2] for name, control in kind.controls.items()})
    assert explorer.text_alternative() == before


# Construction of controls


def test_a_slider_says_its_value_with_symbol_and_unit():
    slider = Wave.controls["count"]
    assert slider.description == "waves n (periods)"
    assert slider.say(3) == "waves n = 3 periods"
    assert slider.values() == (1, 2, 5)


@pytest.mark.parametrize("change", [{"default": 0}, {"default": 6}, {"minimum": 2, "maximum": 2}])
def test_a_slider_whose_default_is_outside_its_ends_is_refused(change):
    with pytest.raises(ValueError, match="default of slider 'waves'"):
        replace(Wave.controls["count"], **change)


def test_a_text_box_says_its_text_and_needs_an_example():
    box = Wave.controls["name"]
    assert box.values() == ("", "Ada", "Bo")
    assert box.say("Eve") == "name: “Eve”"
    for default in ("", "  ", "Bo"):
        with pytest.raises(ValueError, match="default of text box 'name'"):
            replace(box, default=default)


@pytest.mark.parametrize("change", [{"default": "square"}, {"options": ("sine",)}])
def test_a_choice_without_a_choice_is_refused(change):
    with pytest.raises(ValueError, match="default of choice 'shape'"):
        replace(Wave.controls["shape"], **change)
