"""What learners of lesson 32 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "32.P1": [r"180", r"(?i)sparsity pattern|pattern"],
    "32.P2": [r"(?i)\bodd\b", r"(?i)frustrat"],
}
