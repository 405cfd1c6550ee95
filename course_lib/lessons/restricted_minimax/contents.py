"""The register of lesson 30, restricted minimax estimation, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "n": "number of tests",
        "X": "number of failures",
        r"\theta": "true failure rate",
        r"\eta": "largest possible rate",
        r"\delta": "rule: one report for each count",
        "R": "risk of a rule",
        r"\pi": "prior",
        "w_j": "shares of the prior",
        "r": "average risk of the best reply",
        "s": "square root of the probability of no failure",
    }
)
