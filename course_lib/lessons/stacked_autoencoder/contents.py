"""The register of lesson 35, stacked_autoencoder, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x": "state",
        "D": "entries of a state",
        "z": "code",
        "k": "numbers in the code",
        r"\hat x": "reconstruction",
        r"\mu": "mean of the states",
        r"\Sigma": "covariance of the states",
        "R": "share of the variance",
        r"\lambda_i": "eigenvalues",
        r"\alpha": "share",
        r"\varrho": "radius",
        r"\theta": "angle",
    }
)
