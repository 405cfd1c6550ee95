"""Figure, explorer and prediction of lesson 00, start_here."""

import numpy as np

from course_lib.lessons.start_here.contents import lesson
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK


@lesson.explorer
class PowersExplorer(Explorer):
    """The powers of one number: they vanish, stay or explode."""

    title = "Multiplying again and again"
    summary = "The powers f^t of a factor f against the number of multiplications t, between the levels +1 and -1."
    factor = Slider("factor", "f", "The number that is multiplied with itself", 0.7, -1.3, 1.3, 0.05)
    steps = 20
    layout = panels(
        "$f$ multiplied with itself $t$ times",
        "multiplications $t$",
        "power $f^t$",
        xlim=(-0.4, steps + 0.4),
        ylim=(-3, 3),
        xticks=range(0, steps + 1, 5),
    )

    def compute(self, *, factor):
        """Return the factor and its powers 0 to 20."""
        return {"factor": factor, "powers": factor ** np.arange(self.steps + 1.0)}

    def draw(self, axes):
        """Draw the levels +1 and -1, and the powers to be moved."""
        for level in (-1, 1):
            axes.axhline(level, color=BLACK, linewidth=0.8, linestyle="--")
        return {"powers": axes.plot(np.zeros(self.steps + 1), marker="o", markersize=4)[0]}

    def words(self, state):
        """Say what becomes of the powers."""
        factor, last = state["factor"], f"the last one shown is {state['powers'][-1]:.3g}"
        sign = " and change sign at every step" if factor < 0 else ""
        if abs(abs(factor) - 1) < 1e-9:
            return f"|f| = 1: the powers keep their size{sign}."
        if abs(factor) < 1:
            return f"|f| = {abs(factor):.2f} < 1: the powers shrink{sign}; {last}."
        return f"|f| = {abs(factor):.2f} > 1: the powers grow{sign}; {last}."


@lesson.figure(
    "Smaller is not what counts", "multiplications $t$", "power $f^t$", ylim=(-3.5, 3.5), legend="upper left"
)
def plot_signs(axes):
    """Draw the powers of -1.1 and of 0.9."""
    steps = np.arange(13)
    lines(axes, steps, {f"$f$ = {factor}": factor**steps for factor in (-1.1, 0.9)}, marker="o", markersize=4)
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
    return (
        "The powers of -1.1 swing between both signs and grow; the powers of 0.9 shrink towards 0, although 0.9 is "
        "the larger number."
    )


sign_prediction = lesson.prediction(
    "00.P1",
    "The factor is $f = -1.1$, a number smaller than 1. What do its powers do?",
    {
        "They shrink, since f < 1": "What counts is the size |f| = 1.1, not the number on the line.",
        "They grow and change sign": "The size |f| = 1.1 is above 1, and each multiplication turns the sign.",
        "They keep their size": "That needs |f| = 1 exactly.",
    },
    answer="They grow and change sign",
    reveal=plot_signs,
)

FIGURES = lesson.figures
