"""The register of lesson 07, gradient_estimators, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "F": "expectation, as a function of the parameters",
        r"\theta": "parameters of the distribution",
        r"p_\theta": "density",
        r"s_\theta": "score",
        "z": "standard normal noise",
        "b": "baseline",
        "G_i": "Gumbel variables",
        r"\tau": "temperature",
        r"\Phi": "Gaussian distribution function",
    }
)
