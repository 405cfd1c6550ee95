"""What learners of lesson 21 answer, and what gives its predictions away."""

GIVES_AWAY = {
    "21.P1": [r"(?i)change of basis", r"W_Q ?W_K", r"(?i)no meaning"],
    "21.P2": [r"spread over several heads", r"(?i)all four"],
    "21.P3": [r"the translation loss changes"],
}
