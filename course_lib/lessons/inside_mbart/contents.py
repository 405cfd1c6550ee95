"""The register of lesson 34, inside_mbart, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "states of $T$ tokens",
        "T": "tokens",
        "d_h": "width",
        "M": "mask",
        "H": "heads of width",
        r"\mu": "mean",
        r"\sigma": "standard deviation",
        r"\gamma": "learned gain",
        r"\beta": "bias",
        r"\Phi": "distribution function",
        "E": "table of embeddings",
        "P": "table of learned positions",
        "X^{(L)}": "state after the last",
        "T'": "decoder's tokens",
        "m_t": "1 for the positions that count",
    }
)
