"""What learners of lesson 30 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "30.P1": [r"0\.207|0\.21", r"(?i)equal risks?"],
    "30.P2": [r"(?i)from 3/4", r"0\.75"],
    "30.P3": [r"(?i)three points"],
}
