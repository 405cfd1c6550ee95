"""The register of lesson 27, induction heads, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        r"\delta": "probability of the opposite",
        "n": "number of presses",
        "S": "set of lags",
        "p_S": "share of a set",
        "m": "number of places that match",
        "c_S": "trained number of a set",
        "a": "scale of the attention",
        r"\mu": "how often presses occur in the long run",
        r"\chi": "chi-square distance of a context",
        "I": "worth of a set",
        r"\ell": "loss",
    }
)
