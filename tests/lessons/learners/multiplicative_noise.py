"""What learners of lesson 05 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch

from course_lib.optimization.ridge import second_moment_limit
from course_lib.teaching import edit

GIVES_AWAY = {
    "05.P1": [r"(?i)too rare to meet", r"(?i)have shrunk below", r"(?i)100,000 runs (hold|missed)"],
    "05.P2": [r"(?i)comes ever closer", r"(?i)with 12 weights", r"(?i)describes single runs, too"],
    "05.P3": [r"(?i)less than a tenth", r"(?i)buys calm"],
}

NEIGHBOURS = {
    "05.e1": ("runs * (1 - 0.45 * (1 + normal(100_000, seed=step)) ** 2)", "runs * (1 - 0.45 * (1 + normal(100_000)) ** 2)"),
    "05.2": ("squares = factors(coins).prod(0) ** 2", "squares = factors(coins).prod(0).abs()"),
    "05.e2": ("noise = carrying_noise(1.0, noise=1.0, step_size=0.45, shape=(60, 10_000), generator=generator)",
              "noise = normal(60, 10_000)"),
    "05.5": ("late = noisy_sgd(1.0, 2.0, 1.0, normal(200, 20_000), step_size=0.1)",
             "late = noisy_sgd(1.0, 2.0, 1.0, normal(200, 20_000), step_size=0.15)"),
    "05.6": ("lesson.tail_slope(lesson.long_run(eta))", "lesson.tail_slope(lesson.long_run(0.5))"),
    "05.7": ("lesson.growth(d, relative_step=1.3)", "lesson.growth(d, relative_step=0.95)"),
    "05.8": ("noise=0.5, rows_a_step=b)", "noise=0.5, rows_a_step=1)"),
    "05.e3": ("clipped = min(best[arm] for arm", "clipped = max(best[arm] for arm"),
    "05.e4": ("strong = lesson.by_step(lesson.CLIPPED[0])", "strong = lesson.by_step(lesson.CLIPPED[2])"),
}  # fmt: skip


def three(mean, square, run):
    return {"mean": mean, "square": square, "run": run}


def case(**changed):
    return {"x": 1.0, "sigma": 1.0, "step_size": 0.45, **changed}


def limit(*, middle=6, last=3, top=2, power=4):
    """The answer of 05.2 with other coefficients."""
    return lambda x, s: top * (x**2 + s**2) / (x**power + middle * x**2 * s**2 + last * s**power)


def of_rows(second):
    """The answer of 05.5 with another mean square, of P, Q and b."""
    return lambda rows, x, s: 2 * (x**2 + s**2) / second(x**2 + s**2, x**4 + 6 * x**2 * s**2 + 3 * s**4, rows)


def by_bisection(x, sigma):
    sides = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
    factor = lambda eta: sum(c * (1 - eta * (x + sigma * side) ** 2) ** 2 for side, c in sides)  # noqa: E731
    low, high = 1e-6, 100.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if factor(middle) < 1 else (low, middle)
    return low


ANSWERS = {
    "05.1": [
        ("solved", "by the formulas", three((1.7 + 0.4) / 2, (1.7**2 + 0.4**2) / 2, math.sqrt(1.7 * 0.4))),
        ("solved", "fractions and a rounded root", three(Fraction(21, 20), Fraction(61, 40), 0.8246)),
        ("solved", "tensors", three(torch.tensor(1.05), torch.tensor(1.525), torch.tensor(0.68).sqrt())),
        ("the run as the mean", "1.05 twice", three(1.05, 1.525, 1.05)),
        ("two steps", "the product", three(1.05, 1.525, 0.68)),
        ("the logarithm", "not exponentiated", three(1.05, 1.525, math.log(0.68) / 2)),
        ("square of the mean", "1.05 squared", three(1.05, 1.05**2, math.sqrt(0.68))),
        ("root mean square", "a root", three(1.05, math.sqrt(1.525), math.sqrt(0.68))),
        ("wrong", "the sum", three(2.1, 1.525, math.sqrt(0.68))),
        ("wrong", "the larger side", three(1.05, 1.525, 1.7)),
        ("malformed", "a list", [1.05, 1.525, 0.82]),
    ],
    "05.2": [
        ("solved", "written out", limit()),
        ("solved", "the library's", lambda x, s: second_moment_limit(x, noise=s)),
        ("solved", "bisection", by_bisection),
        ("solved", "as a tensor", lambda x, s: torch.tensor(limit()(x, s))),
        ("one over the power", "1/(x^2 + s^2)", lambda x, s: 1 / (x**2 + s**2)),
        ("limit of the mean", "2/(x^2 + s^2)", lambda x, s: 2 / (x * x + s * s)),
        ("fourth moment without the 3", "E N^4 = s^4", limit(last=1)),
        ("forgot the cross terms", "no 6", limit(middle=0)),
        ("half the limit", "where E a^2 is smallest", limit(top=1)),
        ("four in the middle", "4 x^2 s^2", limit(middle=4)),
        ("without noise", "2/x^2", lambda x, s: 2 / x**2),
        ("squared mean of the square", "2 x^2 s^2 and 3 s^4", limit(middle=2)),
        ("deviation for the variance", "sigma once", lambda x, s: limit()(x, math.sqrt(s))),
        ("wrong", "root of it", lambda x, s: math.sqrt(limit()(x, s))),
        ("malformed", "an interval", lambda x, s: (0, limit()(x, s))),
    ],
    "05.3": [
        ("solved", "nearly at the limit of the rule", case(step_size=0.499)),
        ("solved", "more noise than input", case(x=0.5, sigma=2.0, step_size=0.2)),
        ("solved", "whole numbers for x and sigma", {"x": 1, "sigma": 1, "step_size": Fraction(9, 20)}),
        ("solved", "another scale", case(x=10.0, sigma=10.0, step_size=0.0045)),
        ("no noise", "sigma 0", case(sigma=0.0, step_size=0.5)),
        ("too little noise", "a tenth", case(sigma=0.1, step_size=0.9)),
        ("too short a step", "the limit of the mean square", case(step_size=0.4)),
        ("too short a step", "a little above it", case(step_size=0.4005)),
        ("need", "the limit of the rule itself", case(step_size=0.5)),
        ("need", "a negative step", case(step_size=-0.3)),
        ("need", "x = 0", case(x=0.0)),
        ("need", "sigma = -1", case(sigma=-1.0)),
        ("need", "beyond the bound", case(x=2000.0, sigma=2000.0, step_size=1e-8)),
        ("malformed", "a list", [1.0, 1.0, 0.45]),
    ],
    "05.4": [
        ("solved", "by the limit", second_moment_limit(0.5, noise=1.0)),
        ("solved", "a fraction", Fraction(40, 73)),
        ("solved", "three digits", 0.548),
        ("limit of the mean", "2/P", 1.6),
        ("another x", "x = 1", 0.4),
        ("half of it", "P/Q", 1.25 / 4.5625),
        ("one over the power", "1/P", 0.8),
        ("without the 6", "no cross terms", 2.5 / 3.0625),
        ("without the 3", "E N^4 = s^4", 2.5 / 2.5625),
        ("wrong", "sigma^4 of x", 0.5),
        ("malformed", "words", "2P/Q"),
    ],
    "05.5": [
        ("solved", "written out", of_rows(lambda p, q, b: p**2 + (q - p**2) / b)),
        ("solved", "over one denominator", of_rows(lambda p, q, b: (q + (b - 1) * p**2) / b)),
        ("solved", "pairs of rows", lambda rows, x, s: 2 * rows * (x**2 + s**2) / (
            (x**4 + 6 * x**2 * s**2 + 3 * s**4) + (rows - 1) * (x**2 + s**2) ** 2)),
        ("one row", "2P/Q", of_rows(lambda p, q, b: q)),
        ("all divided", "b times the limit", of_rows(lambda p, q, b: q / b)),
        ("not subtracted", "P^2 + Q/b", of_rows(lambda p, q, b: p**2 + q / b)),
        ("limit of the mean", "2/P", of_rows(lambda p, q, b: p**2)),
        ("root of the rows", "a root", of_rows(lambda p, q, b: p**2 + (q - p**2) / b**0.5)),
        ("half the limit", "no 2", edit("2 * power / second", "power / second")),
        ("wrong", "b squared", of_rows(lambda p, q, b: p**2 + (q - p**2) / b**2)),
        ("malformed", "a pair", lambda rows, x, s: (0, 1)),
    ],
}  # fmt: skip
