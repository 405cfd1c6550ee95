"""The register of lesson 12, state space models, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        r"\alpha": "rate at which the state fades",
        r"\omega": "rate at which the state turns",
        r"\Delta": "length of a step",
        "a": "pole of the step",
        "A": "matrix of the state",
        "B": "vector by which a token is written into the state",
        "C": "vector by which the state is read",
        "K": "kernel, the answer to an impulse",
        "L": "number of tokens",
        "N": "numbers in the state",
        "a_t": "decay of one token",
        r"\Delta_t": "step size that depends on the token",
        "S_t": "state that is a matrix",
        r"\gamma_t": "number that decays all of the state",
        "P_n": "Legendre polynomial",
    }
)
