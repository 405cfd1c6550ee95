"""Calendars of the three paths, from the minutes and needs in the list of lessons."""

from collections.abc import Sequence
from functools import cache

from course_lib.lessons.catalog import PATHS, Lesson, lessons_for

WEEKS = (14, 7)
DAYS, HOURS_A_DAY = ("Saturday", "Sunday"), 6


def split_evenly(minutes: Sequence[int], groups: int) -> list[slice]:
    """Split a sequence into so many parts, in order and none empty, the longest as short as can be.

    There are fewer parts where there are fewer minutes than `groups`.

    Raises:
        ValueError: `groups` is below 1.
    """
    if groups < 1:
        raise ValueError(f"groups must be at least 1, got {groups}")

    @cache
    def best(start: int, left: int) -> tuple[int, int, tuple[int, ...]]:
        """The longest part of what begins at `start`, the sum of squares, which breaks ties, and where the parts end."""
        if left == 1:
            total = sum(minutes[start:])
            return total, total**2, (len(minutes),)
        found = []
        for end in range(start + 1, len(minutes) - left + 2):
            own = sum(minutes[start:end])
            longest, squares, ends = best(end, left - 1)
            found.append((max(own, longest), own**2 + squares, (end, *ends)))
        return min(found)

    if not minutes:
        return []
    _, _, ends = best(0, min(groups, len(minutes)))
    return [slice(start, end) for start, end in zip((0, *ends), ends, strict=False)]


def lessons_within(goals: Sequence[str], days: int, minutes: int) -> tuple[Lesson, ...]:
    """Return the lessons of a path that fit into `days` of at most so many minutes: goal by goal, with what each needs."""
    taken: list[str] = []
    for goal in goals:
        lessons = [one.minutes for one in lessons_for(*taken, goal)]
        if all(sum(lessons[part]) <= minutes for part in split_evenly(lessons, days)):
            taken.append(goal)
    return lessons_for(*taken)


def weeks_table(weeks: int) -> str:
    """Return all paths spread over so many weeks, in Markdown: the lessons of each week with their minutes.

    Raises:
        ValueError: `weeks` is below 1.
    """
    if weeks < 1:
        raise ValueError(f"weeks must be at least 1, got {weeks}")
    columns = {name: _shown(lessons_for(*goals), weeks) for name, goals in PATHS.items()}
    return _table("Week", [str(week) for week in range(1, weeks + 1)], columns)


def weekend_table() -> str:
    """Return what a weekend holds of each path, in Markdown: the lessons of each day with their minutes."""
    columns = {
        name: _shown(lessons_within(goals, len(DAYS), HOURS_A_DAY * 60), len(DAYS))
        for name, goals in PATHS.items()
    }
    return _table("Day", DAYS, columns)


def calendar() -> str:
    """Return all calendars in Markdown, each below its heading."""
    blocks = [block for weeks in WEEKS for block in (f"### {weeks} weeks", weeks_table(weeks))]
    return "\n\n".join([*blocks, f"### A weekend, at most {HOURS_A_DAY} hours a day", weekend_table()])


def _shown(lessons: Sequence[Lesson], groups: int) -> list[str]:
    parts = [lessons[part] for part in split_evenly([one.minutes for one in lessons], groups)]
    return [
        f"{', '.join(one.number for one in part)} ({sum(one.minutes for one in part)} min)" for part in parts
    ]


def _table(head: str, names: Sequence[str], columns: dict[str, list[str]]) -> str:
    rows = [f"| {head} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for place, name in enumerate(names):
        cells = [column[place] if place < len(column) else "free" for column in columns.values()]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)
