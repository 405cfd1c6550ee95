"""The register of lesson 12, dropout, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "table of rows and columns",
        "t": "targets, one for each row",
        "R": "mask: entries kept or deleted",
        "p": "probability to keep an entry",
        r"\tilde w": "weights that meet a mask",
        "w": "weights that fit inputs with nothing deleted",
        "h": "hidden units of a network",
        "V": "matrix by which hidden units are read",
    }
)
