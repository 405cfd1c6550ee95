"""The register of lesson 03, stochastic_gradient_descent, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "n rows with d entries each",
        "y": "labels",
        "I": "index that a step draws",
        "c": "2 without the ½ in a sample's loss, 1 with it",
        r"\eta": "step size",
        "e_t": "error w_t - w*",
        r"\rho": "length of the longest row",
        r"\sigma_{\min}": "smallest singular value of X that is not 0",
        "w^*": "solves all equations at once",
        r"v_\infty": "variance at which both balance",
        r"\hat w": "weights of the least loss",
        "b": "rows that a step averages over",
    }
)
