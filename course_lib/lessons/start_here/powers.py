"""Powers of one number: the strip of moves, the wait until they are small, guess and explorer."""

import math

import numpy as np
from matplotlib.patches import FancyBboxPatch

from course_lib.lessons.start_here.contents import lesson
from course_lib.teaching import Explorer, Slider, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE

LEVEL, STEPS = 0.01, 500


def first_below(factor: float, level: float = LEVEL) -> int | None:
    """Return after how many multiplications |f^t| is below the level for the first time; None for |f| >= 1."""
    size = abs(factor)
    if size >= 1:
        return None
    count, x = 0, 1.0
    while x >= level:
        count, x = count + 1, x * size
    return count


@lesson.figure(
    size=(8.4, 1.5),
    bare=True,
    xlim=(-0.5, 4.5),
    ylim=(-0.62, 0.62),
)
def plot_moves(axes):
    """Draw the moves of a page as five boxes in a row."""
    moves = (
        ("question", "in words,\nno formula"),
        ("predict", "before anything\nis shown"),
        ("play", "a panel\nwith sliders"),
        ("derive", "a few lines,\nexercises"),
        ("measure", "claims that run\non your machine"),
    )
    for place, (name, text) in enumerate(moves):
        box = FancyBboxPatch(
            (place - 0.38, -0.42), 0.76, 0.84, boxstyle="round,pad=0.02", facecolor="white", edgecolor=BLUE
        )
        axes.add_patch(box)
        axes.text(place, 0.22, name, ha="center", va="center", fontsize=11, fontweight="bold")
        axes.text(place, -0.15, text, ha="center", va="center", fontsize=8.5)
        if place:
            axes.annotate(
                "",
                (place - 0.4, 0),
                (place - 0.6, 0),
                arrowprops={"arrowstyle": "->", "color": BLACK, "linewidth": 1.4},
            )
    return "The five moves of a page: question, predict, play, derive, measure."


@lesson.figure(
    "how long until the power is below 0.01",
    "distance $1 - f$",
    "multiplications $t$",
    size=(5.8, 3.2),
    xscale="log",
    yscale="log",
    xlim=(6e-4, 1),
    ylim=(3, 1e4),
    legend=None,
)
def plot_wait(axes):
    """Draw the wait against the distance to 1, and the number of the prediction in it."""
    distance = np.geomspace(1e-3, 0.5, 60)
    axes.plot(distance, [first_below(1 - d) for d in distance], color=BLUE, label="counted")
    for factor in (0.9, 0.99, 0.999):
        wait = first_below(factor)
        axes.plot([1 - factor], [wait], "o", color=GREEN, markersize=6)
        axes.annotate(f"$f$ = {factor}: {wait:,}", (1 - factor, wait), (6, 6), textcoords="offset points", fontsize=9)
    return "Each time the distance to 1 is ten times smaller, from 0.1 on, the wait is about ten times as long."


@lesson.explorer
class PowersExplorer(Explorer):
    """The size of the powers of one number, and when they are below 0.01."""

    title = "Multiplying again and again"
    summary = (
        "The size of the powers of a factor f against the number of multiplications t, on a logarithmic axis. The dashed "
        "line is 0.01; the dot marks the first power below it."
    )
    factor = Slider("factor", "f", "What 1 is multiplied by again and again", 0.5, -1.01, 1.01, 0.005)
    layout = panels(
        "1 multiplied by $f$, $t$ times",
        "multiplications $t$",
        "size of the power",
        legend=None,
        xlim=(0, STEPS),
        ylim=(1e-4, 1e3),
        yscale="log",
    )

    def compute(self, *, factor):
        """Return the factor, the sizes of its powers 0 to 500, and the first place below 0.01, if it is among them."""
        steps = np.arange(STEPS + 1)
        powers = np.maximum(abs(factor), 1e-5) ** steps
        wait = first_below(factor)
        shown = wait is not None and wait <= STEPS
        return {
            "factor": factor,
            "wait": wait,
            "powers": (steps, np.maximum(powers, 1e-5)),
            "first": ([wait], [LEVEL]) if shown else ([], []),
        }

    def draw(self, axes):
        """Draw the level, the powers to be moved and the mark where they cross it."""
        axes.axhline(LEVEL, color=BLACK, linewidth=0.9, linestyle="--")
        return {
            "powers": axes.plot([], [], color=BLUE, linewidth=1.8)[0],
            "first": axes.plot([], [], "o", color=ORANGE, markersize=8)[0],
        }

    def words(self, state):
        """Say whether and when the powers are below the level."""
        factor, wait = state["factor"], state["wait"]
        sign = " The sign changes at every step." if factor < 0 else ""
        if wait is None:
            fate = "keep their size" if math.isclose(abs(factor), 1) else "grow"
            return f"f = {factor:.3f}: the powers {fate} and are never below 0.01.{sign}"
        return f"f = {factor:.3f}: first below 0.01 after {wait:,} multiplications.{sign}"


wait_prediction = lesson.prediction(
    "00.P3",
    "The factor is $f = 0.99$. After how many multiplications is what is left below 0.01 for the first time?",
    {
        "After about 100": "Subtracting 0.01 a hundred times would be at 0 by then. Multiplying takes 1% of what is left.",
        "After about 200": "By then the power is still above 0.1.",
        "After about 500": right("Each multiplication takes 1% of what is left, and what is left shrinks, too."),
        "After about 1,000": "By then it is below 0.0001.",
    },
    reveal=plot_wait,
)
