"""The register of lesson 20, fixed_memory, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "U": "matrix with d rows and M columns",
        "d": "entries of a key",
        "M": "entries of a value",
        "N": "number of pairs",
        "k_i": "key of pair i, of length 1",
        "v_i": "value of pair i",
        r"\sigma": "size of the match with a wrong value",
        r"\eta": "step size of the delta rule",
        "t": "number of later writes",
        r"\gamma": "decay between 0 and 1",
    }
)
