"""The register of lesson 30, restricted minimax estimation, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        r"\theta": "unknown rate",
        r"\eta": "largest rate",
        "n": "number of trials",
        "X": "number of successes",
        r"\delta": "rule: one estimate for each count",
        r"\pi": "prior",
        "w_j": "weights of the prior",
        "r": "Bayes risk",
        "R": "risk of a rule",
        r"\eta_n": "limit for n trials",
    }
)
