"""The register of lesson 17, ridge_attention, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "K": "keys as rows",
        "V": "values as rows",
        r"\lambda": "small number on the diagonal",
        "W": "linear map from keys to values",
        "a_i": "weights that sum to 1",
        "P_n": "inverse",
        "C": "tokens of a chunk",
        "L": "lower triangular factor (Cholesky)",
        "g": "gain of an update",
        r"\gamma": "forgetting factor",
        r"\eta": "step size",
    }
)
