"""The map of lessons: what each needs, drawn, and the way to a goal marked in it."""

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course_lib.lessons.catalog import LESSONS, PARTS, PATHS, Lesson, lessons_for
from course_lib.lessons.start_here.contents import lesson
from course_lib.teaching import Choice, Explorer, panels
from course_lib.teaching.style import BLUE, ORANGE

_NAMES = 0.75  # from the last column of dots to the names
_WIDE = 11.0  # of a row of names


def _rows() -> list[str]:
    """Return what stands below each other: the parts' names and, under each, the numbers of its lessons."""
    return [row for part in PARTS for row in (part, *(one.number for one in LESSONS if one.part == part)) if row]


def places() -> dict[str, tuple[int, int]]:
    """Return where each lesson's dot stands: across, the longest way to it; down, its row, part below part."""
    depth: dict[str, int] = {}
    for one in LESSONS:
        depth[one.number] = 1 + max((depth[number] for number in one.needs.split()), default=-1)
    rows = _rows()
    return {number: (depth[number], rows.index(number)) for number in depth}


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


def _last_column() -> int:
    return max(across for across, _ in places().values())


def _row(number: str | None) -> tuple[float, float, float, float]:
    """Return left, top, width and height of the row of a lesson's name; no extent for none."""
    if number is None:
        return (0.0, 0.0, 0.0, 0.0)
    return (_last_column() + _NAMES - 0.2, places()[number][1] - 0.46, _WIDE, 0.92)


def _line(number: str, needs: str | None) -> tuple[list[float], list[float]]:
    """Return x and y of the line to a lesson's dot from that of one that it needs; no length for none."""
    end = places()[number]
    (x, y), (right, down) = end if needs is None else places()[needs], end
    return [x, x + 0.15 * (right - x), right - 0.85 * (right - x), right], [y, y, down, down]


def _draw_map(axes: Axes) -> None:
    """Draw dots, names and the names of the parts."""
    axes.grid(False)
    where, names = places(), _last_column() + _NAMES
    for one in LESSONS:
        across, down = where[one.number]
        axes.plot([across, names - 0.3], [down, down], "-", color="0.92", linewidth=0.8, zorder=0)
        axes.plot(across, down, "o", color="white", markeredgecolor="#606060", markersize=7, zorder=2)
        axes.text(names, down, f"{one.number}  {one.title}", va="center", fontsize=9, color="black", zorder=3)
    rows = _rows()
    for part, name in PARTS.items():
        if part:
            row = rows.index(part)
            axes.text(names - 0.2, row + 0.1, f"{part} {name}", va="center", fontsize=9.5, fontweight="bold")


@lesson.explorer
class MapExplorer(Explorer):
    """The lessons as boxes; those on the way to a goal are marked."""

    title = "Which lessons lead where"
    summary = (
        "One row for each lesson, part below part. The more lessons come before a lesson, one after another, the further "
        "right its dot is. Those on the way to the chosen goal are marked and joined, the goal itself in another colour."
    )
    goal = Choice("where to", "A path through the course, or one lesson", "path: Interpretability", tuple(GOALS))
    size = (9.0, 9.6)
    dpi = 100
    strip_scale = 0.8
    strip_dpi = 73  # three maps are much text
    layout = panels(
        None,
        "lessons that come before it, one after another",
        "parts of the course",
        legend=None,
        xlim=(-0.6, _last_column() + _NAMES + _WIDE - 0.2),
        ylim=(len(_rows()) - 0.3, -0.7),
        xticks=range(_last_column() + 1),
        yticks=[()],
    )

    def compute(self, *, goal):
        """Return the goal, the way to it, and where its rows, its dots and the lines between them stand."""
        way = lessons_for(*GOALS[goal])
        taken, ends = {one.number for one in way}, set(GOALS[goal])

        def dots(numbers: set[str]) -> tuple[list[int], list[int]]:
            found = [places()[number] for number in sorted(numbers)]
            return [across for across, _ in found], [down for _, down in found]

        return {
            "goal": goal,
            "way": way,
            "marks": [_row(one.number if one.number in taken - ends else None) for one in LESSONS],
            "ends": [_row(one.number if one.number in ends else None) for one in LESSONS],
            "way_dots": dots(taken - ends),
            "end_dots": dots(ends),
            "arrows": [_line(*(arrow if taken.issuperset(arrow) else (arrow[1], None))) for arrow in ARROWS],
        }

    def draw(self, axes):
        """Draw the map, and the marks, dots and lines to be moved."""
        _draw_map(axes)
        marks, ends = (
            [axes.add_patch(Rectangle((0, 0), 0, 0, alpha=0.3, color=color, linewidth=0, zorder=1)) for _ in LESSONS]
            for color in (BLUE, ORANGE)
        )
        way_dots, end_dots = (
            axes.plot([], [], "o", color=color, markersize=7, zorder=4)[0] for color in (BLUE, ORANGE)
        )
        arrows = [axes.plot([], [], "-", color=BLUE, linewidth=1.1, alpha=0.7, zorder=1)[0] for _ in ARROWS]
        return {"marks": marks, "ends": ends, "way_dots": way_dots, "end_dots": end_dots, "arrows": arrows}

    def words(self, state):
        """Say which lessons these are, and how long they take."""
        way = state["way"]
        hours = sum(one.minutes for one in way) / 60
        names = ", ".join(one.number for one in way)
        return f"{state['goal']}: {len(way)} lessons, about {hours:.0f} hours: {names}."
