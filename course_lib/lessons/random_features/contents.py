"""The register of lesson 16, random_features, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        r"\sigma": "width of the Gaussian kernel",
        r"K_\sigma": "Gaussian kernel",
        "w": "random vector",
        "m": "number of drawn vectors",
        "D": "entries of query and key",
        "r_j": "estimate of the similarity",
        r"\varepsilon": "relative error",
        "a_j": "softmax weights",
    }
)
