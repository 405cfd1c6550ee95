"""Exercises of lesson 00, start_here."""

from course_lib.lessons.start_here.contents import lesson
from course_lib.teaching import edit, inputs, uniform, whole

lesson.value(
    "00.1", "How often", difficulty=1, minutes=2,
    prompt="Start at 1 and multiply by 0.5 again and again. After how many multiplications is the result below 0.01 for "
    "the first time?",
    answer=7,
    properties=[
        ("Count whole multiplications.", lambda answer: float(answer).is_integer() and 0 <= answer < 1000),
        ("After that many multiplications the result is not below 0.01 yet.", lambda answer: 0.5 ** float(answer) < 0.01),
        ("One multiplication earlier the result is below 0.01 already.", lambda answer: 0.5 ** (answer - 1) >= 0.01),
    ],
    hints=(
        "Write down 0.5, 0.25, 0.125 and go on.",
        "0.5 to the power n is 1 divided by 2 to the power n: which power of 2 first exceeds 100?",
        "2 to the power 6 is 64 and 2 to the power 7 is 128.",
    ),
    mistakes=[
        ("one too few", 6, "0.5⁶ = 0.015625, which is still above 0.01. One more."),
        ("one too many", 8, "That is below 0.01, but not for the first time: 0.5⁷ is below it already."),
        ("subtracted instead", 2, "After two multiplications you have 0.25. Did you subtract 0.5 instead of multiplying by "
         "it?"),
        ("the bound itself", 6.643856189774724,
         "That is the solution of 0.5ⁿ = 0.01, and n must be whole: take the next whole number above it."),
    ],
    same=lambda a, b: abs(float(a) - float(b)) < 0.05,
)


@lesson.exercise(
    "00.2", "Again and again", difficulty=1, minutes=4,
    prompt="Write `power(factor, count)`: start at 1 and multiply by `factor`, `count` times. `count` is a "
    "whole number, 0 or more.",
    draw=inputs(factor=uniform(-2.0, 2.0, digits=1), count=whole(0, 5)),
    properties=[
        ("With count = 0 nothing is multiplied: the result is 1.", lambda count, answer: count > 0 or float(answer) == 1),
    ],
    agrees="The result should be the factor multiplied with itself count times.",
    hints=(
        "Keep a variable for the result so far. What is it before the first multiplication?",
        "`for _ in range(count):` runs its body count times, and not at all for count = 0.",
        "result = 1.0, then result = result * factor in the loop, then return result.",
    ),
    mistakes=[
        ("one multiplication too many", edit("range(count)", "range(count + 1)"),
         "You multiply once too often: for count = 0 the result is 1, not the factor. Start at 1."),
        ("started at zero", edit("1.0", "0.0"), "You start at 0, and 0 times anything stays 0. Start at 1."),
        ("multiplied once by the count", edit("1.0", "0.0", "result * factor", "result + factor"),
         "That is factor times count: adding the factor count times. Here it is multiplied."),
        ("lost the sign", edit("result * factor", "result * abs(factor)"),
         "You lost the sign: a negative factor gives a negative result for an odd count."),
    ],
)
def power(factor, count):
    """Return factor ** count by repeated multiplication, starting from 1."""
    result = 1.0
    for _ in range(count):
        result = result * factor
    return result


lesson.flaw(
    "00.3", "Catch a wrong sentence", difficulty=1, minutes=3,
    prompt="Somebody writes: *“if the factor is smaller than 1, the powers shrink to 0.”* Give a counterexample: a "
    "dictionary `{\"factor\": ...}` with a factor below 1 whose 50th power is 1 or more in size.",
    answer={"factor": -1.5},
    properties=[
        ("The factor should be below 1, or the sentence says nothing about it.", lambda factor: factor < 1),
        ("The powers of your factor do shrink to 0, as the sentence says.", lambda factor: abs(factor) >= 1),
    ],
    hints=(
        "Smaller than 1 does not mean close to 0. Where else are numbers smaller than 1?",
        "Move the slider of the explorer to its left end.",
        "What counts is the absolute value: look for a number below 1 whose absolute value is at least 1.",
    ),
    mistakes=[
        ("a factor above 1", {"factor": 1.5}, "Your factor is not below 1, so the sentence does not speak of it.",
         lambda factor: factor >= 1),
        ("a small positive factor", {"factor": 0.5}, "Between 0 and 1 the sentence is right: look at negative numbers.",
         lambda factor: 0 <= factor < 1),
        ("a small negative factor", {"factor": -0.5},
         "The sign is right, but |f| is still below 1 and the powers shrink: go further left.",
         lambda factor: -1 < factor < 0),
    ],
)

EXERCISES = lesson.exercises
