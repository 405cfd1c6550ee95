"""What learners of lesson 31 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "31.P1": [r"delay is a phase", r"(?i)rank (is )?1|rank one|rank-1|rank-one"],
    "31.P2": [r"(?i)separable"],
}
