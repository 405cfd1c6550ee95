"""The register of lesson 24, the margin that attention maximises, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "tokens as rows",
        "z": "query",
        "y": "label",
        "v": "vector that reads the output",
        "W": "product of two matrices, by which tokens are compared",
        r"\beta": "diagonal of the matrix",
        r"\Delta_t": "gap of a token's score",
        "m_t": "by how much the logit of the optimal token exceeds that of token t",
        r"\phi_t": "feature of a token",
        "c": "scale of the start",
        r"\tau": "time",
    }
)
