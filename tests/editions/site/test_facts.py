"""Explorers as rows of frames: through the default, within their size, with the words of each setting."""

import io

import numpy as np
import pytest
from PIL import Image

from course_lib.editions.site import facts
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from course_lib.teaching import Choice, Explorer, Slider, TextBox, panels


class Line(Explorer):
    """One line with a slope that is moved, and a name that is chosen."""

    title = "A line"
    summary = "A line through the origin."
    slope = Slider("slope", "a", "How steep", 0.5, -1.0, 1.0, 0.1, unit="m")
    style = Choice("name", "What it is called", "b", ("a", "b", "c"))
    layout = panels("Line", "x", "y")
    size = (3, 2)

    def compute(self, *, slope, style):
        x = np.linspace(0, 1, 5)
        return {"line": (x, slope * x), "said": f"{style} rises by {slope:g}."}

    def draw(self, axes):
        axes.set(xlim=(0, 1), ylim=(-1, 1))
        return {"line": axes.plot([], [])[0]}

    def update(self, artists, state):
        artists["line"].set_data(*state["line"])

    def words(self, state):
        return state["said"]


class Plane(Line):
    """The same line, whose two controls are shown together."""

    together = ("style", "slope")


def slider(default, low, high, step):
    return Slider("a", "a", "a", default, low, high, step)


@pytest.mark.parametrize("positions", [3, 5, 9])
@pytest.mark.parametrize(
    ("default", "low", "high", "step"),
    [
        (0.7, -1.2, 1.2, 0.01),
        (0, 0, 100, 1),
        (100, 0, 100, 1),
        (1, 0, 100, 1),
        (0.2, 0.005, 0.4, 0.005),
        (2, 1, 3, 1),
    ],
)
def test_a_row_is_even_and_holds_ends_and_default(default, low, high, step, positions):
    control = slider(default, low, high, step)
    values = facts.settings_of(control, positions)
    assert values == sorted(set(values))
    assert {values[0], values[-1]} == {low, high}
    assert default in values
    assert len(values) <= positions
    assert len(values) == min(positions, round((high - low) / step) + 1)
    for value in values:
        control.check("value", value)
        assert (value - low) / step == pytest.approx(round((value - low) / step), abs=1e-6)


def test_other_controls_show_all_that_they_offer():
    assert facts.settings_of(Choice("a", "b", "y", ("x", "y", "z", "w")), 3) == ["x", "y", "z", "w"]
    assert facts.settings_of(TextBox("a", "b", "one", "two"), 3) == ["", "one", "two"]
    assert facts.format_setting(TextBox("a", "b", "one", "two"), "") == "(empty)"


def test_rows_hold_the_frames_and_words_of_the_explorer(tmp_path):
    made = facts.render_rows(Line, tmp_path)
    slope, style = made["controls"]
    assert (slope["label"], slope["kind"], slope["values"][slope["default"]]) == (
        "slope a (m)",
        "slider",
        "0.5 m",
    )
    assert slope["words"] == [f"b rises by {value.removesuffix(' m')}." for value in slope["values"]]
    assert (style["label"], style["values"], style["default"]) == ("name", ["a", "b", "c"], 1)
    assert style["words"] == ["a rises by 0.5.", "b rises by 0.5.", "c rises by 0.5."]
    # One file serves both rows at the default; every other frame is its own.
    assert slope["files"][slope["default"]] == style["files"][1] == "default.webp"
    files = {*slope["files"], *style["files"]}
    assert {path.name for path in tmp_path.iterdir()} == files
    assert len(files) == len(slope["files"]) + len(style["files"]) - 1
    assert made["bytes"] == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert made["grid"] is None


def test_two_controls_that_act_together_get_every_pair_of_their_settings(tmp_path):
    made = facts.render_rows(Plane, tmp_path)
    slope, style = made["controls"]
    grid = made["grid"]
    assert grid["controls"] == [1, 0]
    assert grid["words"] == [
        [f"{name} rises by {value.removesuffix(' m')}." for value in slope["values"]]
        for name in style["values"]
    ]
    # The grid holds both rows, and every pair has a file of its own.
    assert grid["files"][style["default"]] == slope["files"]
    assert [line[slope["default"]] for line in grid["files"]] == style["files"]
    files = [file for line in grid["files"] for file in line]
    assert {path.name for path in tmp_path.iterdir()} == set(files)
    assert len(set(files)) == len(files)
    assert made["bytes"] == sum(path.stat().st_size for path in tmp_path.iterdir())
    # What a file shows is its own pair: a steep slope is no other slope, whatever its name.
    drawn = type("Plane", (Plane,), {"dpi": facts.DPI})()
    expected = np.asarray(Image.open(io.BytesIO(drawn.frame(slope=-1.0, style="a")[0])).convert("RGB"), float)
    got, other = (
        np.asarray(Image.open(tmp_path / name).convert("RGB"), float) for name in (files[0], files[-1])
    )
    assert (np.abs(got - expected) > 64).mean() < 0.1 * (np.abs(other - expected) > 64).mean()


def test_two_controls_move_together_wherever_there_are_two_and_in_most_other_explorers():
    kinds = [kind for lesson in LESSONS for kind in contents_of(lesson).explorers.values()]
    more = [kind for kind in kinds if len(kind.controls) > 1]
    assert [kind.__name__ for kind in more if len(kind.controls) == 2 and not kind.together] == []
    apart = {kind.__name__ for kind in more if not kind.together}
    assert len(apart) <= 0.1 * len(more)


def test_a_frame_is_the_explorers_picture_in_few_colours(tmp_path):
    made = facts.render_rows(Line, tmp_path)
    drawn = type("Line", (Line,), {"dpi": facts.DPI})()
    slope = made["controls"][0]
    for name, value in ((slope["files"][0], -1.0), (slope["files"][-1], 1.0)):
        expected = np.asarray(Image.open(io.BytesIO(drawn.frame(slope=value)[0])).convert("RGB"), float)
        got = np.asarray(Image.open(tmp_path / name).convert("RGB"), float)
        other = np.asarray(Image.open(io.BytesIO(drawn.frame(slope=0.5)[0])).convert("RGB"), float)
        # Few colours shift a shade, another setting moves a line.
        assert (np.abs(got - expected) > 64).mean() < 0.1 * (np.abs(got - other) > 64).mean()


def test_a_large_explorer_gets_fewer_positions_and_one_that_is_too_large_an_error(tmp_path):
    whole = facts.render_rows(Line, tmp_path / "whole")
    less = facts.render_rows(Line, tmp_path / "less", limit=whole["bytes"] - 1)
    assert len(less["controls"][0]["values"]) < len(whole["controls"][0]["values"])
    assert less["bytes"] < whole["bytes"]
    with pytest.raises(ValueError, match=r"frames of Line take \d+ bytes, and at most 10 are allowed"):
        facts.render_rows(Line, tmp_path / "none", limit=10)


def test_an_explorer_without_a_slider_gets_fewer_colours_where_it_is_too_large(tmp_path):
    class Shades(Explorer):
        title = summary = "A name on 200 colours."
        name = Choice("name", "What it is called", "b", ("a", "b", "c"))
        layout = panels("Shades", "x", "y")
        size = (3, 2)

        def compute(self, *, name):
            return {"name": name}

        def draw(self, axes):
            axes.imshow(np.linspace(0, 1, 200)[None], cmap="viridis", aspect="auto")
            return {"name": axes.text(100, 0, "")}

        def update(self, artists, state):
            artists["name"].set_text(state["name"])

        def words(self, state):
            return state["name"]

    whole = facts.render_rows(Shades, tmp_path / "whole")
    less = facts.render_rows(Shades, tmp_path / "less", limit=whole["bytes"] - 1)
    assert less["controls"] == whole["controls"]
    colours = [
        len(Image.open(tmp_path / made / "default.webp").convert("RGB").getcolors())
        for made in ("whole", "less")
    ]
    assert 32 < colours[0] <= 64
    assert colours[1] <= 32


def test_facts_are_made_once_and_again_when_a_source_changes(tmp_path, monkeypatch):
    made = []

    def write(lesson, folder):
        made.append(lesson)
        folder.mkdir()
        (folder / "facts.json").write_text('{"hints": {}}')

    monkeypatch.setattr(facts, "write", write)
    lessons = LESSONS[:2]
    first = facts.gather(tmp_path, lessons=lessons)
    assert facts.gather(tmp_path, lessons=lessons) == first
    assert made == list(lessons)
    monkeypatch.setattr(facts, "fingerprint", lambda lesson: "changed")
    assert facts.gather(tmp_path, lessons=lessons)["01"]["folder"] == "01-changed"
    assert made == 2 * list(lessons)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00-changed", "01-changed"]
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        facts.gather(tmp_path, workers=0)


def test_the_facts_of_a_lesson_come_from_its_register(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "render_rows", lambda kind, folder: {"title": kind.title})
    made = facts.gather(tmp_path, lessons=LESSONS[:1])["00"]
    from course_lib.lessons import start_here

    assert made["symbols"] == start_here.lesson.symbols
    asked = start_here.wait_prediction.example()
    assert made["predictions"]["00.P3"] == {
        "choices": [list(c) for c in asked.choices.items()],
        "answer": asked.answer,
    }
    assert made["hints"]["00.1"] == list(start_here.EXERCISES["00.1"].hints)
    assert made["explorers"]["NumberExplorer"] == {"title": start_here.NumberExplorer.title}
