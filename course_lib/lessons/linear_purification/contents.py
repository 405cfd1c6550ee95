"""The register of lesson 19, linear purification, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "examples as rows, features as columns",
        "W": "matrix that returns each row under a penalty",
        r"\lambda": "penalty",
        r"\Sigma_{xx}": "covariance matrix of the rows",
        r"\Sigma_{xz}": "covariances of the rows with a concept",
        "z": "concept",
        "P": "matrix that changes a state",
        "k": "directions erased",
        "D": "standard deviations of the features",
    }
)
