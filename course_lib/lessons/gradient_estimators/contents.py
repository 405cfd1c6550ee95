"""The register of lesson 09, gradient_estimators, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        r"\theta": "what the gradient is with respect to",
        r"p_\theta": "probability or density of what is drawn",
        "f": "what a draw pays",
        "F": "mean payment",
        "e_x": "vector with a 1 in place x",
        "b": "baseline",
        r"\mu": "mean of a number",
        r"\sigma": "standard deviation of it",
        "z": "standard normal noise",
        "h": "jump of f",
        "T": "steps that double an angle",
        "k": "coordinates",
        "G_i": "Gumbel variables",
        r"\tau": "temperature",
    }
)
