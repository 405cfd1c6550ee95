"""The list of lessons, the map that is made from it, and drawing all figures to a folder."""

import re
from types import SimpleNamespace

import pytest

from course_lib import lessons
from course_lib.lessons.catalog import LESSONS, PARTS, lesson_map
from course_lib.teaching.style import describe, new_figure
from tests.lessons import MODULES


def test_33_lessons_are_numbered_in_order():
    assert [lesson.number for lesson in LESSONS] == [f"{n:02d}" for n in range(33)]


def test_slugs_and_titles_are_unique_and_parts_known():
    assert len({lesson.slug for lesson in LESSONS}) == len({lesson.title for lesson in LESSONS}) == 33
    for lesson in LESSONS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", lesson.slug)
        assert lesson.notebook == f"{lesson.number}_{lesson.slug}.ipynb"
        assert lesson.part in PARTS


def test_modules_are_those_of_lessons_and_hold_what_a_lesson_needs():
    found = {lesson.number: module for lesson, module in lessons.lesson_modules()}
    assert found == MODULES
    assert {"00", "01"} <= set(found)
    for lesson, module in lessons.lesson_modules():
        assert module.__name__ == f"course_lib.lessons.{lesson.slug}"
        assert module.FIGURES
        assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in module.FIGURES)
        assert all(key == e.id and key.startswith(lesson.number + ".") for key, e in module.EXERCISES.items())


@pytest.mark.parametrize("there", [[], [0], [1, 31], range(33)])
def test_the_map_links_exactly_the_notebooks_that_exist(tmp_path, there):
    for number in there:
        (tmp_path / LESSONS[number].notebook).write_text("{}")
    (tmp_path / "99_something_else.ipynb").write_text("{}")
    (tmp_path / "05_maximal_update_parametrization.ipynb.bak").write_text("{}")
    rows = lesson_map(tmp_path).splitlines()[2:]
    assert len(rows) == 33
    for number, (lesson, row) in enumerate(zip(LESSONS, rows, strict=True)):
        assert row.startswith(f"| {lesson.number} | ")
        assert (f"[{lesson.title}]({lesson.notebook})" in row) == (number in there)
        assert ("open" in row.split("|")[-2]) == (number in there)
        assert ("in preparation" in row) == (number not in there)
        assert f"| {lesson.part} {PARTS[lesson.part]}".replace("|  ", "| ") in row


def test_a_folder_is_not_a_notebook(tmp_path):
    (tmp_path / LESSONS[0].notebook).mkdir()
    assert not LESSONS[0].is_open(tmp_path)


def small_figure():
    figure = new_figure(2, 2)
    figure.add_subplot().plot([0, 1], [0, 1])
    return describe(figure, "A line.")


def test_draw_figures_writes_the_files_that_it_returns_the_same_every_time(tmp_path, monkeypatch):
    module = SimpleNamespace(FIGURES={"one": small_figure, "two": small_figure})
    monkeypatch.setattr(lessons, "lesson_modules", lambda: [(LESSONS[7], module), (LESSONS[8], module)])
    drawn = [lessons.draw_figures(tmp_path / folder) for folder in ("new/first", "second")]
    for paths, folder in zip(drawn, ("new/first", "second"), strict=True):
        expected = ["07_one.svg", "07_two.svg", "08_one.svg", "08_two.svg"]
        assert paths == [tmp_path / folder / name for name in expected]
        assert sorted(p.name for p in (tmp_path / folder).iterdir()) == expected
    for a, b in zip(*drawn, strict=True):
        assert a.read_bytes() == b.read_bytes()
        assert a.read_bytes().startswith(b"<?xml")


def test_a_figure_of_a_lesson_is_drawn_to_the_same_bytes_twice(tmp_path, monkeypatch):
    module = SimpleNamespace(FIGURES={"signs": MODULES["00"].FIGURES["signs"]})
    monkeypatch.setattr(lessons, "lesson_modules", lambda: [(LESSONS[0], module)])
    (first,), (second,) = (lessons.draw_figures(tmp_path / folder) for folder in "ab")
    assert first.read_bytes() == second.read_bytes()
