"""The register of lesson 18, rotary_position_embedding, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "A": "attention as a map of tokens",
        "X": "tokens as rows",
        "P": "permutation of the tokens",
        "m": "position of the query",
        "n": "position of the key",
        "s": "distance from the query back to the key",
        r"\omega": "frequency, in radians per position",
        r"R_\alpha": "turn of a pair by an angle",
        "z": "pair of the query as one complex number",
        "w": "key as a complex number",
        "d": "entries of a query",
        "h_i": "hand of pair i",
        "b": "base of the frequencies",
        "L": "positions of training",
        "f": "times as long as in training",
        "r_i": "turns of a pair in training",
        "g_i": "share of the slowed frequency",
    }
)
