"""The register of lesson 16, a memory that decides what to keep, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "u_t": "new number at token t",
        "h_t": "state at token t",
        "a_t": "decay at token t",
        "w_t": "whole entry of token t",
        r"\Delta_t": "step size, from the token",
        "A": "decay in continuous time",
        "q_t": "query",
        "k_t": "key of a token",
        "v_t": "value of a token",
        "S_t": "state that is a matrix",
        r"\gamma_t": "one decay for the matrix",
        "M": "mask of decays, T by T",
        "T": "tokens",
    }
)
