"""The register of lesson 32, sparsity in conic relaxations, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x_i": "unknowns",
        "Q_p": "symmetric matrices of objective and conditions",
        "b_p": "bounds",
        "X": "matrix of all products of unknowns",
        "E": "pairs on which any of the matrices has an entry",
        r"\sigma_{ij}": "sign of an edge",
        r"\tau_i": "sign of an unknown",
        "r": "share of positive edges",
        "V_i": "complex voltage at a bus",
        "y_{ij}": "admittance of a line",
    }
)
