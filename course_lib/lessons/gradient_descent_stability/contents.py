"""The register of lesson 01, gradient_descent_stability, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "matrix with n rows and d columns",
        "y": "target, one number a row",
        "L": "squared error",
        "w_t": "w after t steps",
        "w^*": "solution",
        r"\eta": "step size",
        r"\sigma": "known number of the equation",
        r"\sigma_{\max}": "largest singular value",
        r"\sigma_{\min}": "smallest singular value that is not zero",
        r"\kappa": "condition number",
        r"\hat w": "w in rotated coordinates",
        "c_i": "share of the removable loss along direction i",
        "H": "Hessian, the matrix of second derivatives",
        r"\lambda_{\max}": "largest eigenvalue of the Hessian, the sharpness",
        r"\beta": "share of the step before that momentum repeats",
    }
)
