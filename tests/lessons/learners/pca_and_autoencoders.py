"""What learners of lesson 18 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "18.P1": [r"invertible", r"(?i)rotation"],
    "18.P2": [r"(?i)one after the other", r"(?i)straight line", r"1 - \\lambda/s|1 - \\frac"],
    "18.P3": [r"counts variance", r"A's code"],
}
