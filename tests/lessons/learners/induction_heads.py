"""What learners of lesson 22 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "22.P1": [r"(?i)modified", r"(?i)race\b"],
    "22.P2": [r"\b400\b"],
    "22.P3": [r"(?i)one token back", r"(?i)two tokens back"],
}
