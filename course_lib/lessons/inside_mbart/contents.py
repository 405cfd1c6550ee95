"""The register of lesson 26, inside_mbart, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "one row for each token",
        "T": "tokens",
        "d_h": "width of a head",
        "M": "mask at the pads",
        "H": "heads of a layer",
        r"\mu": "mean of the entries of a state",
        r"\gamma": "learned gain",
        r"\beta": "learned bias",
        r"\phi": "activation",
        "E": "table of embeddings",
        "P": "table of positions",
        r"X^{(\ell)}": "state after a layer",
        "m_t": "1 for the positions that count",
    }
)
