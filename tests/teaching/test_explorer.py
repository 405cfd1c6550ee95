"""The mechanics of an explorer, on a small one: fast frames, named controls, and a panel that follows the hand."""

import base64
import contextlib
import html
import io
import re
import threading
from dataclasses import replace

import ipywidgets
import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from PIL import Image

from course_lib.teaching.explorer import Choice, Explorer, Slider, Switch, TextBox, set_data
from course_lib.teaching.layout import LOOKS, lines, panels
from course_lib.teaching.style import text_alternative
from course_lib.teaching.words import PANEL_CLASS, RESET_CLASS, Words

X = np.linspace(0, 2 * np.pi, 100)
SHAPES = {"sine": np.sin, "cosine": np.cos, "zero": np.zeros_like}


class Wave(Explorer):
    """An explorer with one control of each kind."""

    title = "A wave"
    summary = "A sine over a period."
    count = Slider("waves", "n", "How many", default=2, minimum=1, maximum=5, step=1, unit="periods")
    shape = Choice("shape", "Which", default="sine", options=tuple(SHAPES))
    name = TextBox("name", "Whose wave", default="Ada", other="Bo")
    layout = panels("One wave", "x", "y", xlim=(0, 7), ylim=(-1.2, 1.2), legend="upper right")
    size = (4.0, 3.0)
    continuous = False

    def compute(self, *, count, shape, name):
        return {"curve": (X, SHAPES[shape](count * X)), "end": [(count, 0), (count, 1)], "count": count,
                "name": name or "nobody"}  # fmt: skip

    def draw(self, axes):
        (curve,) = lines(axes, [], ["wave"])
        return {"curve": curve, "end": [axes.plot([], [], "o")[0] for _ in range(2)]}

    def words(self, state):
        return f"{state['count']} periods of {state['name']}, mean {state['curve'][1].mean():.2f}."


DEFAULTS = {"count": 2, "shape": "sine", "name": "Ada"}


@pytest.fixture
def panel(monkeypatch):
    """Display a wave as a notebook cell does; return it, its controls by name, Reset, Words, Image and the rest."""
    shown = []
    monkeypatch.setattr("course_lib.teaching.explorer.display", lambda *things: shown.extend(things))
    wave = Wave()
    wave._ipython_display_()
    box, *rest = shown
    assert PANEL_CLASS in box._dom_classes
    *controls, reset, words, image = box.children
    assert isinstance(reset, ipywidgets.Button)
    assert isinstance(words, Words)
    assert isinstance(image, ipywidgets.Image)
    return wave, dict(zip(wave.controls, controls, strict=True)), reset, words, image, rest


# What a subclass declares


def test_controls_are_the_attributes_in_order_and_are_inherited():
    class Shifted(Wave):
        shift = Slider("shift", "s", "To the right", default=0.0, minimum=0.0, maximum=1.0, step=0.1)

    assert list(Wave.controls) == ["count", "shape", "name"]
    assert list(Shifted.controls) == ["count", "shape", "name", "shift"]
    assert Shifted.controls["count"] is Wave.count


def test_two_controls_that_act_together_are_named_by_two_controls():
    class Both(Wave):
        together = ("name", "count")

    assert Both.together == ("name", "count")
    assert Wave.together is None
    for wrong in (("count", "size"), ("count", "count"), ("count",), ("count", "shape", "name")):
        with pytest.raises(ValueError, match=r"together of Wrong must name two of its controls \['count'"):
            type("Wrong", (Wave,), {"together": wrong})


def test_artists_take_the_entries_of_their_names():
    wave = Wave()
    wave.frame(count=3, shape="cosine")
    assert np.array_equal(wave.artists["curve"].get_xydata(), np.stack([X, np.cos(3 * X)], axis=1))
    assert [artist.get_xydata().tolist() for artist in wave.artists["end"]] == [[[3, 0]], [[3, 1]]]


def test_every_kind_of_artist_takes_its_data():
    axes = Figure().add_subplot()
    (line,) = axes.plot([0, 1], [0, 0])
    set_data(line, [2, 3])
    assert line.get_xydata().tolist() == [[0, 2], [1, 3]]
    text = axes.text(1, 2, "old")
    set_data(text, "new")
    assert (*text.get_position(), text.get_text()) == (1, 2, "new")
    set_data(text, (3, 4, "moved"))
    assert (*text.get_position(), text.get_text()) == (3, 4, "moved")
    image, points, bars = axes.imshow([[0.0]]), axes.scatter([0], [0]), axes.bar([0, 1], [1, 1])
    set_data(image, [[5.0]])
    assert image.get_array().tolist() == [[5.0]]
    set_data(points, [[1, 2], [3, 4]])
    assert points.get_offsets().tolist() == [[1, 2], [3, 4]]
    set_data(list(bars), [7, 8])
    assert [bar.get_height() for bar in bars] == [7, 8]
    set_data(bars[0], (1, 2, 3, 4))
    assert (*bars[0].get_xy(), bars[0].get_width(), bars[0].get_height()) == (1, 2, 3, 4)
    with pytest.raises(TypeError, match="Circle takes its data: define `update`"):
        set_data(Circle((0, 0)), 1)
    with pytest.raises(ValueError, match="zip"):
        set_data(list(bars), [7])


def test_panels_set_each_axes_its_own_and_all_what_they_share():
    figure = Figure()
    declared = panels(["A", "B"], "x", ["one", "two"], grid=(1, 2), legend=[None, {"loc": "lower left"}],
                      ylim=[(0, 1), (0, 2)], xscale="log", subplots={"sharex": True})  # fmt: skip
    left, right = declared.make(figure)
    with matplotlib.rc_context():
        drawn = [
            lines(axes, None, {"first": [1, 2], "second": ([1, 2], [3, 4])}, linewidth=3)
            for axes in (left, right)
        ]
    declared.legends([left, right])
    assert [axes.get_title() for axes in (left, right)] == ["A", "B"]
    assert [axes.get_xlabel() for axes in (left, right)] == ["x", "x"]
    assert [axes.get_ylabel() for axes in (left, right)] == ["one", "two"]
    assert [axes.get_ylim() for axes in (left, right)] == [(0, 1), (0, 2)]
    assert right.get_xscale() == "log"
    assert left.get_legend() is None
    assert [t.get_text() for t in right.get_legend().get_texts()] == ["first", "second"]
    for curves in drawn:
        assert [c.get_color() for c in curves] == [look["color"] for look in LOOKS[:2]]
        assert [c.get_linestyle() for c in curves] == ["-", "--"]
        assert {c.get_linewidth() for c in curves} == {3}
    assert drawn[0][1].get_xydata().tolist() == [[1, 3], [2, 4]]
    (third,) = lines(left, [0, 1], {"third": [0, 1]}, first=2)
    assert third.get_color() == LOOKS[2]["color"]
    for x, points in (([5, 6], [[5, 0], [6, 0]]), ([], []), (None, [])):
        assert [line.get_xydata().tolist() for line in lines(left, x, ["one", "two"])] == [points, points]


# Frames


def test_a_frame_is_a_picture_of_the_figures_size_and_leaves_no_trace_in_the_next():
    wave = Wave()
    first, words = wave.frame(count=5, shape="zero")
    assert Image.open(io.BytesIO(first)).size == wave.figure.canvas.get_width_height()
    assert words == "5 periods of Ada, mean 0.00."
    other, _ = wave.frame(count=1, shape="sine")
    assert other != first
    assert wave.frame(count=5, shape="zero")[0] == first == Wave().frame(count=5, shape="zero")[0]


def test_a_curve_goes_under_the_legend_so_that_its_words_stay_readable():
    wave = Wave()
    legend = wave.figure.axes[0].get_legend().get_window_extent()
    rows = slice(int(wave.figure.bbox.height - legend.y1) + 2, int(wave.figure.bbox.height - legend.y0) - 2)
    columns = slice(int(legend.x0) + 2, int(legend.x1) - 2)
    pictures = [
        np.asarray(Image.open(io.BytesIO(wave.frame(shape=shape, count=5)[0]))) for shape in ("sine", "zero")
    ]
    x = wave.figure.axes[0].transData.transform(np.stack([X, np.sin(5 * X)], axis=1))
    assert legend.count_contains(x) > 0  # the sine does pass there
    assert (pictures[0] != pictures[1]).any()
    assert (pictures[0][rows, columns] == pictures[1][rows, columns]).all()


def test_a_frame_does_not_redraw_the_background(monkeypatch):
    wave = Wave()

    def refuse(*_args, **_kwargs):
        raise AssertionError("the whole figure was drawn for one frame")

    for name in ("draw", "print_png", "print_figure"):
        monkeypatch.setattr(FigureCanvasAgg, name, refuse)
    for axes in wave.figure.axes:
        monkeypatch.setattr(axes, "draw", refuse)
    wave.frame(count=5)
    with pytest.raises(AssertionError, match="whole figure"):
        wave.figure.canvas.draw()


# Settings that do not exist


def test_values_out_of_range_and_unknown_names_are_refused_by_name(panel):
    wave, *_ = panel
    bad = {
        "count": [6, 0, 2.5, float("nan"), float("inf"), "text", None],
        "shape": ["square", None],
        "name": [3, None],
    }
    for call in (wave.frame, wave.set):
        for name, values in bad.items():
            for value in values:
                with pytest.raises(ValueError, match=f"^{name} must"):
                    call(**{name: value})
        with pytest.raises(ValueError, match=r"momentum is not a control .* \['count', 'shape', 'name'\]"):
            call(momentum=0.9)
    assert wave.settings == DEFAULTS


# The panel


def test_controls_carry_name_tooltip_and_range(panel):
    _, widgets, reset, words, image, _ = panel
    assert reset.description == "Reset"
    assert Wave.title in reset.tooltip
    assert {name: widget.value for name, widget in widgets.items()} == DEFAULTS
    assert {name: widget.tooltip for name, widget in widgets.items()} == {
        "count": "How many", "shape": "Which", "name": "Whose wave",
    }  # fmt: skip
    count, shape, name = widgets.values()
    assert isinstance(count, ipywidgets.IntSlider)
    assert (count.description, count.min, count.max, count.step) == ("waves n (periods)", 1, 5, 1)
    assert count.continuous_update is Wave.continuous
    assert isinstance(shape, ipywidgets.Dropdown)
    assert shape.options == tuple(SHAPES)
    assert isinstance(name, ipywidgets.Text)
    assert name.continuous_update is False
    assert words.text
    assert Wave.title in words.alt
    assert words.text in words.alt
    assert bytes(image.value).startswith(b"\x89PNG")


def test_the_learners_hand_moves_picture_and_words_and_reset_puts_them_back(panel):
    wave, widgets, reset, words, image, _ = panel
    before = (image.value, words.text, words.alt)
    for name, value in {"count": 5, "shape": "cosine", "name": "Grace"}.items():
        was = (image.value, words.text)
        widgets[name].value = value
        assert (image.value, words.text) != was
        assert wave.settings[name] == value
    assert words.text in words.alt
    assert "5 periods of Grace" in words.text
    reset.click()
    assert (image.value, words.text, words.alt) == before
    assert {name: widget.value for name, widget in widgets.items()} == DEFAULTS


def test_the_page_knows_where_reset_puts_each_control(panel):
    _, widgets, reset, words, _, _ = panel
    assert RESET_CLASS in reset._dom_classes
    start = {"count": {"value": 2}, "shape": {"index": 0}, "name": {"value": "Ada"}}
    assert words.start == {widgets[name].model_id: state for name, state in start.items()}


def test_controls_moved_in_two_threads_at_once_end_at_both_settings(panel, monkeypatch):
    wave, widgets, _, words, image, _ = panel
    meet, compute = threading.Barrier(2), wave.compute

    def slow(**settings):
        with contextlib.suppress(threading.BrokenBarrierError):
            meet.wait(timeout=1)  # where two may be here at once, they are
        return compute(**settings)

    monkeypatch.setattr(wave, "compute", slow)
    moves = {"count": 5, "shape": "cosine"}
    threads = [threading.Thread(target=setattr, args=(widgets[n], "value", v)) for n, v in moves.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meet.broken
    assert (image.value, words.text) == Wave().frame(**moves)


def test_typed_text_counts(panel):
    _, widgets, _, words, _, _ = panel
    for typed, said in (("Grace", "of Grace"), ("", "of nobody"), ("$x$ <b> \\ 字 " * 50, "of $x$ <b>")):
        widgets["name"].value = typed
        assert said in words.text


def test_set_moves_the_widgets_and_draws_once(panel, monkeypatch):
    wave, widgets, _, words, image, _ = panel
    frames, frame = [], wave.frame
    monkeypatch.setattr(wave, "frame", lambda **s: frames.append(s) or frame(**s))
    target = {"count": 1, "shape": "zero", "name": "Bo"}
    wave.set(**target)
    assert {name: widget.value for name, widget in widgets.items()} == target
    assert len(frames) == 1
    assert (image.value, words.text) == Wave().frame(**target)


def test_set_before_the_panel_is_shown_counts_when_it_is():
    wave = Wave()
    wave.set(count=5)
    wave._build()
    assert wave._widgets["count"].value == 5
    assert wave._words.text == Wave().frame(count=5)[1]


# The strip


def test_the_strip_shows_three_settings_beside_the_panel_and_in_words(panel):
    wave, *_, (static,) = panel
    wave.set(count=4, name="Bo")  # the strip does not depend on the current setting
    strip = wave.strip()
    assert [part.get_suptitle() for part in strip.subfigs] == [f"waves n = {n} periods" for n in (1, 2, 5)]
    for part, count in zip(strip.subfigs, (1, 2, 5), strict=True):
        assert np.array_equal(part.axes[0].lines[0].get_ydata(), np.sin(count * X))
    said = text_alternative(strip)
    assert said == wave.text_alternative()
    assert said.startswith("A wave. A sine over a period.\nwaves n = 1 periods: 1 periods of Ada")
    text = html.unescape(static.data).replace("<br/>", "\n")
    assert f'<img alt="{said}"' in text
    assert f"<p>{said}</p>" in text
    picture = re.search(r'src="data:image/png;base64,([^"]+)"', static.data)[1]
    assert Image.open(io.BytesIO(base64.b64decode(picture))).width > 500


def test_the_strip_may_set_several_controls_at_once():
    class Chosen(Wave):
        stills = ({"count": 1}, {"count": 5, "shape": "cosine"}, {"name": "Bo"})

    strip = Chosen().strip()
    titles = [part.get_suptitle() for part in strip.subfigs]
    assert titles == ["waves n = 1 periods", "waves n = 5 periods, shape: cosine", "name: “Bo”"]
    for part, drawn in zip(strip.subfigs, (np.sin(X), np.cos(5 * X), np.sin(2 * X)), strict=True):
        assert np.array_equal(part.axes[0].lines[0].get_ydata(), drawn)
    assert "\nwaves n = 5 periods, shape: cosine: 5 periods of Ada" in text_alternative(strip)


# Construction of controls


def test_controls_say_their_values():
    assert Wave.count.description == "waves n (periods)"
    assert Wave.count.say(3) == "waves n = 3 periods"
    assert Wave.count.values() == (1, 2, 5)
    assert Wave.shape.say("zero") == "shape: zero"
    assert Wave.name.values() == ("", "Ada", "Bo")
    assert Wave.name.say("Eve") == "name: “Eve”"
    assert Slider("s", "σ", "Fine", 0.2, 0.0, 1.0, 0.005).widget().readout_format == ".3f"


@pytest.mark.parametrize(
    ("control", "change", "message"),
    [
        (Wave.count, {"default": 0}, "default of slider 'waves'"),
        (Wave.count, {"default": 6}, "default of slider 'waves'"),
        (Wave.count, {"minimum": 2, "maximum": 2}, "default of slider 'waves'"),
        (Wave.name, {"default": "  "}, "default of text box 'name'"),
        (Wave.name, {"default": "Bo"}, "default of text box 'name'"),
        (Wave.shape, {"default": "square"}, "default of choice 'shape'"),
        (Wave.shape, {"options": ("sine",)}, "default of choice 'shape'"),
    ],
)
def test_a_control_whose_default_cannot_be_set_is_refused(control, change, message):
    with pytest.raises(ValueError, match=message):
        replace(control, **change)


def test_a_switch_is_off_or_on():
    switch = Switch("Reveal the count", "Shows what step 2 derives")
    assert switch.values() == (False, False, True)
    assert (switch.say(False), switch.say(True)) == ("Reveal the count: off", "Reveal the count: on")
    box = switch.widget()
    assert (box.value, box.description, box.tooltip) == (
        False,
        "Reveal the count",
        "Shows what step 2 derives",
    )
    switch.check("reveal", True)
    for wrong in (1, "on", None):
        with pytest.raises(ValueError, match="reveal must be True or False"):
            switch.check("reveal", wrong)
