"""Every explorer of every lesson: pure states, frames that move and can be read, honest words, a strip that says it."""

import random
from unittest import mock

import numpy as np
import pytest
import torch
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from course_lib.teaching.explorer import Choice, Slider, Switch, TextBox
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_clear_layout, painting
from tests.lessons import EXPLORERS


def settings_to_try(control):
    """Both ends, the middle and two settings in between, all on the control's own steps; every option."""
    if isinstance(control, Choice):
        return list(control.options)
    if isinstance(control, TextBox | Switch):
        return list(control.values())
    steps = round((control.maximum - control.minimum) / control.step)
    picks = [steps // 2, *random.Random(0).sample(range(1, steps), min(2, steps - 1))]
    ends = (control.minimum, control.maximum)
    return [*ends, *(min(control.minimum + control.step * pick, control.maximum) for pick in picks)]


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


@pytest.fixture(scope="module", autouse=True)
def bare_pixels():
    """Frames are compared here, not sent: their pixels do as they are, which halves the time that one takes."""
    with mock.patch("course_lib.teaching.explorer._encode", lambda pixels: pixels.tobytes()):
        yield


@pytest.fixture(
    scope="module", params=[kind for _, kind in EXPLORERS], ids=[f"{n}-{k.__name__}" for n, k in EXPLORERS]
)
def drawn(request):
    """One drawn explorer for all tests of its kind, which leave it as they found it; what is painted and stays."""
    with painting() as painted:
        explorer = request.param()
    # Where an explorer runs the pipeline first, that draws figures of its own.
    still = {text: box for text, box in painted.items() if text.get_figure(root=True) is explorer.figure}
    return explorer, still


@pytest.fixture
def explorer(drawn):
    return drawn[0]


def test_a_sweep_moves_picture_data_and_words_and_nothing_else(explorer):
    picture, words = explorer.frame()
    data, limits = data_of(explorer), limits_of(explorer)
    for name, control in explorer.controls.items():
        for value in settings_to_try(control):
            moved_picture, moved_words = explorer.frame(**{name: value})
            moved = data_of(explorer)
            assert all(isinstance(d, str) or np.isfinite(d).all() for d in moved)
            assert limits_of(explorer) == limits
            assert moved_words.strip()
            assert "nan" not in moved_words.lower()
            if value != control.default and not (
                isinstance(control, Slider) and np.isclose(value, control.default)
            ):
                assert moved_picture != picture, (name, value)
                assert not same(moved, data), (name, value)
                assert moved_words != words, (name, value)
        assert explorer.frame(**{name: control.default}) == (picture, words), (
            "a frame leaves a trace in the next"
        )


def test_a_frame_draws_no_number_that_a_cell_would_have_drawn(explorer):
    """It may be computed beside a cell, whose random numbers stay the same; the first frame belongs to its own cell."""
    for name, control in explorer.controls.items():
        explorer.frame(**{name: control.default})
        before = torch.get_rng_state(), np.random.get_state()[1].tolist()
        for value in (control.values()[0], control.values()[2]):
            explorer.frame(**{name: value})
        explorer.frame(**{name: control.default})
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.random.get_state()[1].tolist() == before[1]


def test_it_can_be_read_at_both_ends_of_every_control(drawn):
    explorer, still = drawn
    for name, control in explorer.controls.items():
        for value in (control.values()[0], control.values()[2]):
            with painting() as moving:
                explorer.frame(**{name: value})
            assert_clear_layout(explorer.figure, still | moving)
        explorer.frame(**{name: control.default})


def test_random_settings_are_drawn(explorer):
    chance, limits, pictures = random.Random(1), limits_of(explorer), set()
    choices = {name: settings_to_try(control) for name, control in explorer.controls.items()}
    for _ in range(6):
        picture, words = explorer.frame(**{name: chance.choice(values) for name, values in choices.items()})
        pictures.add(picture)
        assert words.strip()
        assert all(isinstance(d, str) or np.isfinite(d).all() for d in data_of(explorer))
        assert limits_of(explorer) == limits
    assert len(pictures) > 3
    explorer.frame(**{name: control.default for name, control in explorer.controls.items()})


def test_compute_is_pure(explorer):
    """The same settings give the same state, whatever was computed in between, and nothing of the explorer changes."""
    defaults = {name: control.default for name, control in explorer.controls.items()}
    before = {key: repr(value) for key, value in vars(explorer).items() if key != "_background"}
    settings = [
        {**defaults, name: value}
        for name, control in explorer.controls.items()
        for value in (control.values()[0], control.values()[2])
    ]
    first = [explorer.compute(**given) for given in settings]
    for given, state in reversed(list(zip(settings, first, strict=True))):
        assert same(explorer.compute(**given), state)
    assert {key: repr(value) for key, value in vars(explorer).items() if key != "_background"} == before


def test_the_axes_are_labelled(explorer):
    for axes in explorer.figure.axes:
        assert axes.get_xlabel().strip()
        assert axes.get_ylabel().strip()


def test_every_control_has_its_own_short_label_and_says_what_it_does(explorer):
    labels = [control.widget().description for control in explorer.controls.values()]
    assert len(set(labels)) == len(labels), "two controls with one name cannot be told apart"
    for label, control in zip(labels, explorer.controls.values(), strict=True):
        assert len(label) <= 25, "a longer label is cut off in its 13 em"
        assert control.tooltip.strip()


def test_a_hand_can_set_every_slider(explorer):
    # A track is some 330 pixels wide: with three positions a pixel, a drag and an arrow key hit each.
    for control in explorer.controls.values():
        if isinstance(control, Slider):
            assert (control.maximum - control.minimum) / control.step <= 1000


def test_the_strip_shows_three_settings_and_says_them(explorer):
    strip = explorer.strip()
    defaults = {name: control.default for name, control in explorer.controls.items()}
    name, control = next(iter(explorer.controls.items()))
    stills = explorer.stills or [{name: value} for value in control.values()]
    said = [", ".join(explorer.controls[key].say(value) for key, value in given.items()) for given in stills]
    assert [part.get_suptitle() for part in strip.subfigs] == said
    text = text_alternative(strip)
    assert explorer.title in text
    assert explorer.summary in text
    # A panel shows what the live figure shows for that setting.
    for part, given, title in zip(strip.subfigs, stills, said, strict=True):
        explorer.frame(**defaults)
        _, words = explorer.frame(**given)
        assert f"{title}: {words}" in text
        for theirs, ours in zip(part.axes, explorer.figure.axes, strict=True):
            assert (theirs.get_xlim(), theirs.get_ylim()) == (ours.get_xlim(), ours.get_ylim())
            for a, b in zip(theirs.lines, ours.lines, strict=True):
                assert same(np.asarray(a.get_xydata()), np.asarray(b.get_xydata()))
    explorer.frame(**defaults)
