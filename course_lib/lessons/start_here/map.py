"""The map of lessons: what each needs, drawn, and the way to a goal marked in it."""

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course_lib.lessons.catalog import LESSONS, PARTS, PATHS, Lesson, lessons_for
from course_lib.lessons.start_here.contents import lesson
from course_lib.teaching import Choice, Explorer, panels
from course_lib.teaching.style import BLUE, ORANGE

BOX = (0.88, 0.86)
_LINE = "#b8b8b8"
# Rows that some lessons go further down, so that no arrow runs through a box and no box over a name.
_DOWN = {"00": 1, "26": 1, "28": 2, "29": 2, "35": 2}


def places() -> dict[str, tuple[int, int]]:
    """Return where each lesson's box stands: across, the longest way to it; down, its part, one below another."""
    depth: dict[str, int] = {}
    for one in LESSONS:
        depth[one.number] = 1 + max((depth[number] for number in one.needs.split()), default=-1)
    found, top = {}, 0
    for part in PARTS:
        rows: dict[int, int] = {}
        for one in (one for one in LESSONS if one.part == part):
            column = depth[one.number]
            row = max(rows.get(column, 0), _DOWN.get(one.number, 0))
            found[one.number] = (column, top + row)
            rows[column] = row + 1
        # The first lesson stands alone, left of the first part.
        top += max(rows.values()) if part else 0
    return found


def direct_needs(one: Lesson) -> list[str]:
    """Return the lessons that `one` needs and that none of the others it needs leads to."""
    needed = one.needs.split()
    return [
        number
        for number in needed
        if not any(number in {e.number for e in lessons_for(other)} for other in needed if other != number)
    ]


# Each lesson with one that it needs.
ARROWS = tuple((one.number, number) for one in LESSONS for number in direct_needs(one))
GOALS = {f"path: {name}": numbers for name, numbers in PATHS.items()} | {
    f"{one.number} {one.title}": (one.number,) for one in LESSONS[1:]
}


def _box(number: str | None) -> tuple[float, float, float, float]:
    """Return left, top, width and height of a lesson's box; no extent for none."""
    if number is None:
        return (0.0, 0.0, 0.0, 0.0)
    (x, y), (width, height) = places()[number], BOX
    return (x - width / 2, y - height / 2, width, height)


def _line(number: str, needs: str | None) -> tuple[list[float], list[int]]:
    """Return x and y of the line to a lesson from one that it needs; no length for none."""
    (x, y), reach = places()[number], BOX[0] / 2
    start = (x - reach, y) if needs is None else (places()[needs][0] + reach, places()[needs][1])
    return [start[0], x - reach], [start[1], y]


def _draw_map(axes: Axes) -> None:
    """Draw boxes, names, arrows and the names of the parts."""
    axes.grid(False)
    where = places()
    for arrow in ARROWS:
        axes.plot(*_line(*arrow), "-", color=_LINE, linewidth=0.9, zorder=1)
    for one in LESSONS:
        axes.add_patch(_rectangle(one.number, facecolor="white", edgecolor="#606060", zorder=2))
        name = "\n".join(textwrap.wrap(f"{one.number} {one.title}", 15))
        axes.text(*where[one.number], name, ha="center", va="center", fontsize=7, zorder=3, linespacing=0.95)
    for part, name in PARTS.items():
        if part:
            top = min(where[one.number][1] for one in LESSONS if one.part == part)
            axes.axhline(top - 0.5, color=_LINE, linewidth=0.6, linestyle=":")
            label = "\n".join(textwrap.wrap(f"{part} {name}", 20))
            axes.text(-0.48, top - 0.38, label, va="top", fontsize=9, fontweight="bold")


def _rectangle(number: str | None, **look: Any) -> Rectangle:
    left, top, width, height = _box(number)
    return Rectangle((left, top), width, height, **look)


@lesson.explorer
class MapExplorer(Explorer):
    """The lessons as boxes; those on the way to a goal are marked."""

    title = "Which lessons lead where"
    summary = (
        "All lessons as boxes, part below part. A line leads from each lesson to the ones further right that need it. "
        "Those on the way to the chosen goal are marked, the goal itself in another colour."
    )
    goal = Choice("where to", "A path through the course, or one lesson", "path: Interpretability", tuple(GOALS))
    size = (9.6, 9.4)
    dpi = 120
    strip_scale = 1.0
    layout = panels(
        None,
        "lessons that come before it, one after another",
        "parts of the course",
        legend=None,
        xlim=(-0.5, max(across for across, _ in places().values()) + 0.5),
        ylim=(max(down for _, down in places().values()) + 0.6, -0.6),
        yticks=[()],
    )

    def compute(self, *, goal):
        """Return the goal, the lessons on the way to it, and where their boxes and the lines between them stand."""
        way = lessons_for(*GOALS[goal])
        taken, ends = {one.number for one in way}, set(GOALS[goal])
        return {
            "goal": goal,
            "way": way,
            "marks": [_box(one.number if one.number in taken - ends else None) for one in LESSONS],
            "ends": [_box(one.number if one.number in ends else None) for one in LESSONS],
            "arrows": [_line(*(arrow if taken.issuperset(arrow) else (arrow[1], None))) for arrow in ARROWS],
        }

    def draw(self, axes):
        """Draw the map, the marks that lie over the boxes, and the lines between marked ones."""
        _draw_map(axes)
        marks, ends = (
            [axes.add_patch(_rectangle(None, alpha=0.35, color=color, zorder=4)) for _ in LESSONS]
            for color in (BLUE, ORANGE)
        )
        arrows = [axes.plot([], [], "-", color=BLUE, linewidth=1.8, zorder=1)[0] for _ in ARROWS]
        return {"marks": marks, "ends": ends, "arrows": arrows}

    def words(self, state):
        """Say which lessons these are, and how long they take."""
        way = state["way"]
        hours = sum(one.minutes for one in way) / 60
        names = ", ".join(one.number for one in way)
        return f"{state['goal']}: {len(way)} lessons, about {hours:.0f} hours: {names}."
