"""The register of lesson 21, random_features, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "D": "entries of query and key",
        r"\sigma": "width of the Gaussian kernel",
        r"K_\sigma": "Gaussian kernel",
        r"\tau": "standard deviation of the entries",
        "w": "random vector",
        "m": "number of drawn frequencies",
        r"\phi": "trigonometric features",
        r"\kappa": "kernel's value",
        r"\phi^+": "positive features",
        r"r": "estimate from one frequency, divided by the exact value",
    }
)
