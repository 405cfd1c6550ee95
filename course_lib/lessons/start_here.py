"""Explorer, prediction and exercises of lesson 00, start_here: each kind of thing once, on one easy fact."""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure

from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, RED, describe, new_figure, styled


class PowersExplorer(Explorer):
    """The powers of one number: they vanish, stay or explode."""

    title = "Multiplying again and again"
    summary = (
        "The powers f^t of a factor f against the number of multiplications t, between the levels +1 and -1."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "factor": Slider(
            label="factor", symbol="f", default=0.7, minimum=-1.3, maximum=1.3, step=0.05,
            tooltip="The number that is multiplied with itself",
        ),
    }  # fmt: skip
    steps = 20

    def compute(self, *, factor):
        """Return the factor and its powers 0 to 20."""
        return {"factor": factor, "powers": factor ** np.arange(self.steps + 1.0)}

    def draw(self, figure):
        """Draw fixed axes, the levels +1 and -1, and the empty curve."""
        axes = figure.add_subplot()
        axes.set(
            xlim=(-0.4, self.steps + 0.4), ylim=(-3, 3), xlabel="multiplications $t$", ylabel="power $f^t$"
        )
        axes.set_title("$f$ multiplied with itself $t$ times")
        axes.set_xticks(range(0, self.steps + 1, 5))
        for level in (-1, 1):
            axes.axhline(level, color=BLACK, linewidth=0.8, linestyle="--")
        (curve,) = axes.plot([], [], color=BLUE, marker="o", markersize=4, linestyle="-")
        return {"curve": curve}

    def update(self, artists, state):
        """Move the curve."""
        artists["curve"].set_data(np.arange(self.steps + 1), state["powers"])

    def words(self, state):
        """Say what becomes of the powers."""
        factor = state["factor"]
        sign = " and change sign at every step" if factor < 0 else ""
        if abs(abs(factor) - 1) < 1e-9:
            return f"|f| = 1: the powers keep their size{sign}."
        if abs(factor) < 1:
            return f"|f| = {abs(factor):.2f} < 1: the powers shrink{sign}; the last one shown is {state['powers'][-1]:.3g}."
        return f"|f| = {abs(factor):.2f} > 1: the powers grow{sign}; the last one shown is {state['powers'][-1]:.3g}."


@styled
def plot_signs() -> Figure:
    """Draw the powers of -1.1 and of 0.9."""
    figure = new_figure(6.4, 3.4)
    axes = figure.add_subplot()
    steps = np.arange(13)
    axes.plot(steps, (-1.1) ** steps, color=RED, marker="s", markersize=4, linestyle="--", label="$f$ = -1.1")
    axes.plot(steps, 0.9**steps, color=BLUE, marker="o", markersize=4, linestyle="-", label="$f$ = 0.9")
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
    axes.set(
        xlabel="multiplications $t$",
        ylabel="power $f^t$",
        ylim=(-3.5, 3.5),
        title="Smaller is not what counts",
    )
    axes.legend(loc="upper left")
    return describe(
        figure,
        "The powers of -1.1 swing between both signs and grow; the powers of 0.9 shrink towards 0, although 0.9 is "
        "the larger number.",
    )


def sign_prediction() -> Prediction:
    """Ask what the powers of -1.1 do."""
    return Prediction(
        "00.P1",
        "The factor is $f = -1.1$, a number smaller than 1. What do its powers do?",
        choices={
            "They shrink, since f < 1": "What counts is the size |f| = 1.1, not the number on the line.",
            "They grow and change sign": "The size |f| = 1.1 is above 1, and each multiplication turns the sign.",
            "They keep their size": "That needs |f| = 1 exactly.",
        },
        answer="They grow and change sign",
        reveal=plot_signs,
    )


def _multiplications(factor: float, below: float) -> int:
    value, count = 1.0, 0
    while value >= below:
        value, count = value * factor, count + 1
    return count


_COUNT = Exercise(
    id="00.1",
    title="How often",
    kind="value",
    difficulty=1,
    minutes=2,
    prompt="Start at 1 and multiply by 0.5 again and again. After how many multiplications is the result below 0.01 for "
    "the first time?",
    draw=lambda generator: {"start": 1.0 + float(torch.rand((), generator=generator))},
    reference=7,
    properties=(
        Property("Count whole multiplications.", lambda i, n: float(n).is_integer() and 0 <= n < 1000),
        Property(
            "After that many multiplications the result is not below 0.01 yet.",
            lambda i, n: float(n) >= _multiplications(0.5, 0.01) and i["start"] * 0.5 ** float(n) < 0.01 * i["start"],
        ),
        Property(
            "One multiplication earlier the result is below 0.01 already.",
            lambda i, n: i["start"] * 0.5 ** (float(n) - 1) >= 0.01 * i["start"],
        ),
    ),
    hints=(
        "Write down 0.5, 0.25, 0.125 and go on.",
        "0.5 to the power n is 1 divided by 2 to the power n: which power of 2 first exceeds 100?",
        "2 to the power 6 is 64 and 2 to the power 7 is 128.",
    ),
    mistakes=(
        Mistake("one too few", 6, "0.5⁶ = 0.015625, which is still above 0.01. One more."),
        Mistake("one too many", 8, "That is below 0.01, but not for the first time: 0.5⁷ is below it already."),
        Mistake("subtracted instead", 2, "After two multiplications you have 0.25. Did you subtract 0.5 instead of "
                "multiplying by it?"),
        Mistake("the bound itself", 6.643856189774724, "That is the solution of 0.5ⁿ = 0.01, and n must be whole: "
                "take the next whole number above it."),
    ),
    same=lambda a, b: abs(float(a) - float(b)) < 0.05,
)  # fmt: skip


def power(factor, count):
    """Return factor ** count by repeated multiplication, starting from 1."""
    result = 1.0
    for _ in range(count):
        result = result * factor
    return result


_POWER = Exercise(
    id="00.2",
    title="Again and again",
    kind="function",
    difficulty=1,
    minutes=4,
    prompt="Write `power(factor, count)`: start at 1 and multiply by `factor`, `count` times. `count` is a "
    "whole number, 0 or more.",
    draw=lambda generator: {
        "factor": round(float(4 * torch.rand((), generator=generator) - 2), 1),
        "count": int(torch.randint(0, 6, (), generator=generator)),
    },
    reference=power,
    properties=(
        Property("With count = 0 nothing is multiplied: the result is 1.", lambda i, v: i["count"] > 0 or float(v) == 1),
        Property(
            "The result should be the factor multiplied with itself count times.",
            lambda i, v: abs(float(v) - i["factor"] ** i["count"]) < 1e-9,
        ),
    ),
    hints=(
        "Keep a variable for the result so far. What is it before the first multiplication?",
        "`for _ in range(count):` runs its body count times, and not at all for count = 0.",
        "result = 1.0, then result = result * factor in the loop, then return result.",
    ),
    mistakes=(
        Mistake("one multiplication too many", lambda f, n: f ** (n + 1),
                "You multiply once too often: for count = 0 the result is 1, not the factor. Start at 1."),
        Mistake("started at zero", lambda f, n: 0.0,
                "You start at 0, and 0 times anything stays 0. Start at 1."),
        Mistake("multiplied once by the count", lambda f, n: f * n,
                "That is factor times count: adding the factor count times. Here it is multiplied."),
        Mistake("lost the sign", lambda f, n: abs(f) ** n,
                "You lost the sign: a negative factor gives a negative result for an odd count."),
    ),
)  # fmt: skip


def _final_size(c: Mapping) -> float:
    return min(abs(float(c["factor"])), 10.0) ** 50


_FLAW = Exercise(
    id="00.3",
    title="Catch a wrong sentence",
    kind="flaw",
    difficulty=1,
    minutes=3,
    prompt="Somebody writes: *“if the factor is smaller than 1, the powers shrink to 0.”* Give a counterexample: a "
    "dictionary `{\"factor\": ...}` with a factor below 1 whose 50th power is 1 or more in size.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"factor": -1.5},
    properties=(
        Property("The factor should be below 1, or the sentence says nothing about it.", lambda i, c: c["factor"] < 1),
        Property("The powers of your factor do shrink to 0, as the sentence says.", lambda i, c: _final_size(c) >= 1),
    ),
    hints=(
        "Smaller than 1 does not mean close to 0. Where else are numbers smaller than 1?",
        "Move the slider of the explorer to its left end.",
        "What counts is the absolute value: look for a number below 1 whose absolute value is at least 1.",
    ),
    mistakes=(
        Mistake("a factor above 1", {"factor": 1.5},
                "Your factor is not below 1, so the sentence does not speak of it.", lambda i, c: c["factor"] >= 1),
        Mistake("a small positive factor", {"factor": 0.5},
                "Between 0 and 1 the sentence is right: look at negative numbers.", lambda i, c: 0 <= c["factor"] < 1),
        Mistake("a small negative factor", {"factor": -0.5},
                "The sign is right, but |f| is still below 1 and the powers shrink: go further left.",
                lambda i, c: -1 < c["factor"] < 0),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_COUNT, _POWER, _FLAW)}

FIGURES = {"explorer": lambda: PowersExplorer().strip(), "signs": plot_signs}
