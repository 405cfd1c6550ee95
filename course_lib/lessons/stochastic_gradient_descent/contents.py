"""The register of lesson 02, stochastic_gradient_descent, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "rows of the equations, n rows and d columns",
        "y": "labels",
        "I": "index that a step draws",
        "c": "factor of the gradient: 1 or 2, by the loss",
        r"\eta": "step size",
        "e_t": "w_t less the common solution",
        r"\rho": "length of the longest row",
        r"\sigma_{\min}": "smallest singular value of X that is not 0",
        "w^*": "shortest solution",
        r"v_\infty": "variance that a fixed step settles at",
        r"\hat w": "weights of the least loss",
        "b": "rows that a step averages over",
    }
)
