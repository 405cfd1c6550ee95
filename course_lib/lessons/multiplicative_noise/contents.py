"""The register of lesson 05, multiplicative_noise, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x": "input of the sample",
        "y": "target of the sample",
        "N_t": "fresh normal noise at each step",
        r"\sigma": "standard deviation of the noise",
        r"\eta": "step size",
        "a_t": "random factor of a step",
        "P": "mean square of the noisy input",
        "Q": "mean fourth power of the noisy input",
        r"\alpha": "tail exponent",
        "d": "number of weights",
        "b": "rows a step",
    }
)
