"""What learners of lesson 00 answer, and what gives its predictions away."""

import math
import statistics
from fractions import Fraction

import torch

from course_lib.lessons.start_here.numbers import f1_of

GIVES_AWAY = {
    "00.P1": [r"(?i)\bnegation", r"(?i)negated", r"(?i)four languages"],
    "00.P2": [r"(?i)do not care about the language", r"(?i)negation in one language", r"(?i)quality:cruel"],
    "00.P3": [r"\b459\b", r"4\.6", r"(?i)distance to 1"],
}

NEIGHBOURS = {
    "00.e1": ("active = strength[:, 1733] > 0", "active = strength[:, 143] > 0"),
    "00.e2": ("language in (None, one.language) for", "language != one.language for"),
    "00.e3": ("while abs(x) >= level:", "while abs(x) >= 1.01 * level:"),
    "00.1": ("[sizes[0.999], sizes[-0.999]]", "[sizes[0.999], sizes[-1]]"),
    "00.2": ("-math.log(abs(f))) + 1 for f", "-math.log(abs(f))) for f"),
    "00.3": ("math.log(100) / (1 - abs(f)) / first_below(f)", "math.log(100) / (1 - f) / first_below(f)"),
}


def by_shares(hits, misses, false_alarms):
    precision, recall = hits / (hits + false_alarms), hits / (hits + misses)
    return 2 * precision * recall / (precision + recall)


def by_library(hits, misses, false_alarms):
    counts = [hits, misses, false_alarms]
    active = torch.tensor([True, False, True]).repeat_interleave(torch.tensor(counts))
    holds = torch.tensor([True, True, False]).repeat_interleave(torch.tensor(counts))
    return f1_of(active, holds)


ANSWERS = {
    "00.1": [
        ("solved", "precision and recall", by_shares),
        ("solved", "whole sentences", by_library),
        ("solved", "statistics.harmonic_mean", lambda h, m, f: statistics.harmonic_mean([h / (h + m), h / (h + f)])),
        ("solved", "fractions", lambda hits, misses, false_alarms: Fraction(2 * hits, 2 * hits + misses + false_alarms)),
        ("precision alone", "active ones", lambda hits, misses, false_alarms: hits / (false_alarms + hits)),
        ("recall alone", "true ones", lambda hits, misses, false_alarms: hits / (misses + hits)),
        ("plain mean", "statistics.mean", lambda h, m, f: statistics.mean([h / (h + m), h / (h + f)])),
        ("counted once", "over the union", lambda hits, misses, false_alarms: 1 / (1 + (misses + false_alarms) / hits)),
        ("wrong", "geometric mean", lambda h, m, f: math.sqrt(h / (h + m) * h / (h + f))),
        ("malformed", "prints instead of returning", lambda hits, misses, false_alarms: print(hits)),
    ],
    "00.2": [
        ("solved", "by logarithms", math.ceil(math.log(0.01) / math.log(0.5))),
        ("solved", "a float", 7.0),
        ("one too few", "rounded down", math.floor(math.log2(100))),
        ("one too many", "counted the 1 as well", 8),
        ("subtracted instead", "1 - 0.5 - 0.5", 2),
        ("the bound itself", "the logarithm alone", math.log2(100)),
        ("wrong", "to 0.1", 4),
        ("malformed", "words", "seven"),
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
