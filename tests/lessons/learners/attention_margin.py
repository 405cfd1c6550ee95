"""What learners of lesson 24 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "24.P1": [r"(?i)nuclear", r"0\.5, ?0"],
    "24.P2": [r"c = 1\b", r"(?i)start small|smaller start|small start"],
}
