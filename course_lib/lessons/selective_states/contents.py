"""The register of lesson 33, a memory that decides what to keep, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "u_t": "number that token t brings",
        "h_t": "state after token t",
        "a_t": "decay: the factor that token t puts on the state",
        "w_t": "entry: what token t adds to the state",
        r"\Delta_t": "step size that the token sets",
        "A": "pole in continuous time, below 0",
        "q_t, k_t, v_t": "query, key and value of a token",
        "S_t": "state that is a matrix",
        r"\gamma_t": "one decay for the whole matrix",
        "M": "mask of decays, T by T",
        "T": "number of tokens",
    }
)
