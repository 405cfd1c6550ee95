"""The register of lesson 32, guests in two rooms and sparse relaxations, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x_i": "room of guest",
        "E": "pairs that know each other",
        r"\sigma_{ij}": "quarrel",
        "w_{ij}": "weight of a pair",
        "U": "weight of all unhappy pairs",
        "Q_p": "symmetric matrices",
        "b_p": "bounds",
        "X": "matrix of the products",
        r"\tau_i": "sign of an unknown",
        "u_e": "1 in a seating if the pair is unhappy",
        "F": "set of pairs of a square",
        "V_i": "complex voltage at a bus",
        "y_{ij}": "admittance of a line",
    }
)
