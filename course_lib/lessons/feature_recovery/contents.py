"""The register of lesson 36, feature_recovery, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "n": "atoms",
        "d": "dimensions",
        "v_j": "atoms",
        "h_j": "strengths",
        "M": "units",
        "w_m": "direction",
        "z_m": "strengths",
        "k": "active units",
        r"\lambda": "penalty",
        "E_k": "variance missing",
        "A_k": "agreement",
        "p": "share of the rows in which a neuron fires",
        "f": "share of the rows that hold an atom",
    }
)
