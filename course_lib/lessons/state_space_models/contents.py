"""The register of lesson 15, state space models, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "u_t": "input at token t",
        "x_t": "state at token t, a vector",
        "y_t": "output at token t",
        "a": "pole, the number that multiplies one entry of the state",
        "a_t": "decay of one token",
        "w_t": "what one token adds to the state",
        "A": "matrix of the state",
        "B": "vector by which a token is written into the state",
        "C": "vector by which the state is read",
        "D": "number, the same at every token",
        "c_n": "number that we keep for a product of two, by entry",
        "K": "kernel, the answer to a click",
        "L": "number of tokens",
        "N": "numbers in the state",
        "F": "discrete Fourier transform",
        "P_n": "Legendre polynomial",
    }
)
