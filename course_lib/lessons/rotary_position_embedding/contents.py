"""The register of lesson 14, rotary_position_embedding, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "d": "entries of a head",
        "m": "position of the query",
        "n": "position of the key",
        r"\omega": "frequency, in radians per position",
        "z": "pair as one complex number",
        r"\varphi": "angle from query to key",
        r"\Pi": "permutation matrix of the layout",
        "L": "length of the sequences in training",
        "s": "factor by which the context is squeezed",
        "r_i": "turns of a pair in training",
        "P": "permutation of the tokens",
    }
)
