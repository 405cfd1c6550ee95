"""What learners of lesson 23 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "23.P1": [r"one_head_each|each head|one head each", r"(?i)allocation"],
    "23.P2": [r"(?i)four times", r"(?i)twice"],
    "23.P3": [r"(?i)not the best|a better"],
}
