"""What learners of lesson 00 answer, and what gives its predictions away."""

import math

from course_lib.teaching import edit

GIVES_AWAY = {
    "00.P1": [r"\|f\| < 1", r"grows? and change"],
}


def by_recursion(factor, count):
    return 1.0 if count == 0 else factor * by_recursion(factor, count - 1)


ANSWERS = {
    "00.1": [
        ("solved", "by logarithms", math.ceil(math.log(0.01) / math.log(0.5))),
        ("solved", "a float", 7.0),
        ("one too few", "rounded down", math.floor(math.log2(100))),
        ("one too many", "counted the 1 as well", 8),
        ("subtracted instead", "1 - 0.5 - 0.5", 2),
        ("the bound itself", "the logarithm alone", math.log2(100)),
        ("wrong", "to 0.1", 4),
        ("malformed", "words", "seven"),
    ],
    "00.2": [
        ("solved", "the operator", lambda factor, count: factor**count),
        ("solved", "math.prod", lambda factor, count: math.prod([factor] * count)),
        ("solved", "recursion", by_recursion),
        ("one multiplication too many", "starts at the factor", lambda factor, count: factor * factor**count),
        ("started at zero", "a sum's start", edit("result = 1.0", "result = 0.0")),
        ("multiplied once by the count", "factor times count", lambda factor, count: factor * count),
        ("lost the sign", "abs", lambda factor, count: abs(factor) ** count),
        ("wrong", "base and exponent exchanged", lambda factor, count: float(count) ** abs(factor)),
        ("malformed", "prints instead of returning", lambda factor, count: print(factor**count)),
    ],
    "00.3": [
        ("solved", "minus one", {"factor": -1}),
        ("solved", "a large negative number", {"factor": -100.0}),
        ("a factor above 1", "two", {"factor": 2}),
        ("a factor above 1", "one", {"factor": 1.0}),
        ("a small positive factor", "nearly one", {"factor": 0.999}),
        ("a small negative factor", "nearly minus one", {"factor": -0.99}),
        ("a small positive factor", "zero", {"factor": 0}),
        ("malformed", "a number alone", -1.5),
    ],
}  # fmt: skip
