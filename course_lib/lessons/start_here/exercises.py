"""Exercises of lesson 00, start_here."""

from course_lib.lessons.start_here.contents import lesson
from course_lib.teaching import edit, inputs, whole


@lesson.exercise(
    "00.1", "How well a name fits", difficulty=1, minutes=4,
    prompt="A name is true of `hits + misses` sentences. In `hits` of these the number is active, in `misses` of them it is "
    "silent. In `false_alarms` other sentences it is active, too. *Precision* is the share of the hits among the active "
    "sentences, *recall* their share among those of which the name is true. F1 is the harmonic mean of both, "
    "$2\\,P R / (P + R)$. Write `f1(hits, misses, false_alarms)`; `hits` is at least 1.",
    draw=inputs(hits=whole(1, 20), misses=whole(0, 20), false_alarms=whole(0, 20)),
    properties=[
        ("Without a miss and a false alarm F1 is 1.",
         lambda hits, misses, false_alarms, answer: misses + false_alarms > 0 or abs(float(answer) - 1) < 1e-9),
        ("F1 is a share: above 0 and at most 1.", lambda answer: 0 < float(answer) <= 1 + 1e-9),
    ],
    agrees="The result should be the harmonic mean of precision and recall.",
    hints=(
        "Precision divides the hits by all sentences in which the number is active. How many are these?",
        "precision = hits / (hits + false_alarms), recall = hits / (hits + misses).",
        "2 * precision * recall / (precision + recall); or twice the hits over twice the hits and both mistakes.",
    ),
    mistakes=[
        ("precision alone", edit("2 * hits / (2 * hits + misses + false_alarms)", "hits / (hits + false_alarms)"),
         "That is the precision: it does not see the sentences that were missed."),
        ("recall alone", edit("2 * hits / (2 * hits + misses + false_alarms)", "hits / (hits + misses)"),
         "That is the recall: a number that is always active has a recall of 1."),
        ("plain mean", edit("2 * hits / (2 * hits + misses + false_alarms)",
                            "(hits / (hits + misses) + hits / (hits + false_alarms)) / 2"),
         "That is the plain mean of precision and recall. The harmonic one is nearer to the smaller of the two."),
        ("counted once", edit("2 * hits / (2 * hits + misses + false_alarms)", "hits / (hits + misses + false_alarms)"),
         "You count the hits once. In F1 they occur twice, above and below."),
    ],
)
def f1(hits, misses, false_alarms):
    """Return the harmonic mean of precision and recall."""
    return 2 * hits / (2 * hits + misses + false_alarms)


lesson.value(
    "00.2", "How often", difficulty=1, minutes=2,
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
