"""Calendars follow the list of lessons: even weeks, everything after what it needs, a weekend that is not overfull."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.editions import calendar as calendars
from course_lib.lessons.catalog import LESSONS, PATHS, lessons_for

ROOT = Path(__file__).resolve().parents[2]
BY_NUMBER = {lesson.number: lesson for lesson in LESSONS}


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 6, 9])
def test_no_other_split_has_a_shorter_longest_part(groups):
    minutes = [30, 10, 20, 60, 5, 45]
    parts = [minutes[part] for part in calendars.split_evenly(minutes, groups)]
    assert [one for part in parts for one in part] == minutes
    assert len(parts) == min(groups, len(minutes))
    assert all(parts)
    every = [
        max(sum(minutes[a:b]) for a, b in zip((0, *cuts), (*cuts, len(minutes)), strict=True))
        for cuts in combinations(range(1, len(minutes)), len(parts) - 1)
    ]
    assert max(map(sum, parts)) == min(every)


def test_wrong_numbers_of_weeks_are_named():
    with pytest.raises(ValueError, match="groups must be at least 1, got 0"):
        calendars.split_evenly([1], 0)
    with pytest.raises(ValueError, match="weeks must be at least 1, got -1"):
        calendars.weeks_table(-1)
    assert CliRunner().invoke(app, ["calendar", "--weeks", "0"]).exit_code == 2
    assert calendars.split_evenly([], 3) == []


def columns(table):
    """The lessons of each path by week, and the minutes that the table gives them."""
    rows = [line.split(" | ")[1:] for line in table.splitlines()[2:]]
    cells = [[re.match(r"([\d, ]+) \((\d+) min\)", cell.strip(" |")) for cell in row] for row in rows]
    return {
        name: [(found[1].split(", "), int(found[2])) for found in column if found]
        for name, column in zip(PATHS, zip(*cells, strict=True), strict=True)
    }


@pytest.mark.parametrize("weeks", [14, 7, 40])
def test_each_path_is_whole_and_in_order(weeks):
    for name, made in columns(calendars.weeks_table(weeks)).items():
        numbers = [number for lessons, _ in made for number in lessons]
        assert numbers == [one.number for one in lessons_for(*PATHS[name])]
        for place, number in enumerate(numbers):
            assert set(BY_NUMBER[number].needs.split()) <= set(numbers[:place])
        for lessons, minutes in made:
            assert minutes == sum(BY_NUMBER[number].minutes for number in lessons)


def test_a_weekend_holds_whole_goals_and_no_day_is_overfull():
    for name, made in columns(calendars.weekend_table()).items():
        numbers = [number for lessons, _ in made for number in lessons]
        assert len(made) == 2
        assert all(minutes <= 360 for _, minutes in made)
        reached = [goal for goal in PATHS[name] if goal in numbers]
        assert numbers == [one.number for one in lessons_for(*reached)]
        for goal in set(PATHS[name]) - set(reached):
            more = [one.minutes for one in lessons_for(*reached, goal)]
            assert any(sum(more[part]) > 360 for part in calendars.split_evenly(more, 2))


def test_the_command_prints_what_the_page_for_teachers_shows():
    printed = CliRunner().invoke(app, ["calendar"])
    assert printed.exit_code == 0
    assert printed.stdout.strip() == calendars.calendar()
    page = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    assert calendars.calendar() in page, "docs/teaching.md is older than the list of lessons: course calendar"
    assert "| 10 |" in CliRunner().invoke(app, ["calendar", "--weeks", "10"]).stdout
