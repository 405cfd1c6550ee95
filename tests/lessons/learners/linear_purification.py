"""What learners of lesson 19 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "19.P1": [r"(?i)inverse|invertible", r"(?i)undo"],
    "19.P2": [r"(?i)three directions", r"(?i)class means|means of (the )?classes"],
    "19.P3": [r"language erased", r"exact translations"],
}
