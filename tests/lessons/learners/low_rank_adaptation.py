"""What learners of lesson 20 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "20.P1": [r"saddle\b", r"(?i)both (factors|gradients)"],
    "20.P2": [r"0\.003", r"(?i)factor of ten|ten times"],
    "20.P3": [r"(?i)forget", r"(?i)switched off"],
}
