"""The list of lessons, the map that is made from it, and drawing all figures to a folder."""

import re
from types import SimpleNamespace

import pytest

from course_lib import lessons
from course_lib.lessons.catalog import LESSONS, PARTS, PATHS, lessons_for, path_table
from course_lib.lessons.start_here.map import ARROWS, GOALS, places
from course_lib.teaching.style import describe, new_figure
from tests.lessons import MODULES


def test_lessons_are_numbered_in_order():
    assert [lesson.number for lesson in LESSONS] == [f"{n:02d}" for n in range(len(LESSONS))]


def test_slugs_and_titles_are_unique_and_parts_known():
    for name in ("slug", "title"):
        assert len({getattr(lesson, name) for lesson in LESSONS}) == len(LESSONS)
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


def test_a_lesson_needs_earlier_ones():
    for lesson in LESSONS:
        assert all(number < lesson.number for number in lesson.needs.split())
        assert lesson.minutes > 0


@pytest.mark.parametrize(
    ("goals", "way"),
    [
        (["start_here"], []),
        (["maximal_update_parametrization"], ["gradient_descent_stability", "steepest_descent"]),
        (
            ["ridge_attention"],
            [
                "gradient_descent_stability",
                "ridge_noise_and_map",
                "attention_scaling",
                "kernelized_attention",
            ],
        ),
        (
            ["maximal_update_parametrization", "convolution"],
            ["gradient_descent_stability", "steepest_descent"],
        ),
    ],
)
def test_the_way_to_a_lesson_is_all_that_it_needs_in_order(goals, way):
    numbers = {lesson.slug: lesson.number for lesson in LESSONS}
    found = [lesson.number for lesson in lessons_for(*(numbers[slug] for slug in goals))]
    assert found == sorted({"00", *(numbers[slug] for slug in (*goals, *way))})


def test_a_way_to_no_lesson_is_refused():
    last, none = LESSONS[-1].number, f"{len(LESSONS):02d}"
    with pytest.raises(ValueError, match=f"goals must be numbers of lessons, '00' to '{last}', got '{none}'"):
        lessons_for("05", none)


def test_the_paths_link_the_notebooks_that_exist(tmp_path):
    of_all = next(lesson for lesson in LESSONS if lesson.slug == "attention_scaling")
    (tmp_path / of_all.notebook).write_text("{}")
    rows = path_table(tmp_path).splitlines()[2:]
    assert len(rows) == len(PATHS)
    for row, goals in zip(rows, PATHS.values(), strict=True):
        link = f"({of_all.notebook})"
        assert row.count("](") == row.count(f"[{of_all.number}]{link}") == 1
        assert re.findall(r"\d\d", row.split("|")[2].replace(link, "")) == [
            lesson.number for lesson in lessons_for(*goals)
        ]


def test_the_map_shows_each_lesson_in_a_place_of_its_own_right_of_what_it_needs():
    where = places()
    assert sorted(where) == [lesson.number for lesson in LESSONS]
    assert len(set(where.values())) == len(LESSONS)
    for lesson, needed in ARROWS:
        assert where[needed][0] < where[lesson][0]


def test_the_arrows_lead_to_a_lesson_from_all_that_it_needs_and_none_is_spare():
    def reached(arrows, end):
        before = {needed for lesson, needed in arrows if lesson == end}
        return before.union(*(reached(arrows, one) for one in before))

    for lesson in LESSONS:
        needed = {one.number for one in lessons_for(lesson.number)} - {lesson.number}
        assert reached(ARROWS, lesson.number) == needed
    for arrow in ARROWS:
        assert arrow[1] not in reached([other for other in ARROWS if other != arrow], arrow[0])
    assert len(GOALS) == len(PATHS) + len(LESSONS) - 1


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
    module = SimpleNamespace(FIGURES={"wait": MODULES["00"].FIGURES["wait"]})
    monkeypatch.setattr(lessons, "lesson_modules", lambda: [(LESSONS[0], module)])
    (first,), (second,) = (lessons.draw_figures(tmp_path / folder) for folder in "ab")
    assert first.read_bytes() == second.read_bytes()
