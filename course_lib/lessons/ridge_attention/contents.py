"""The register of lesson 22, ridge_attention, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "k": "key",
        "v": "value",
        "K": "keys as rows",
        "V": "values as rows",
        r"\lambda": "penalty",
        "W": "memory",
        "a": "weights of the values",
        "G_n": "sum of key times key, with the penalty",
        "H_n": "sum of key times value",
        "P": "inverse of G",
        "B": "matrix that measures changes",
        r"\eta": "step size",
        "C": "tokens of a chunk",
        "L": "lower triangle (Cholesky)",
        r"\gamma": "decay",
    }
)
