"""The register of lesson 01, gradient_descent_stability, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        r"\eta": "step size",
        "L": "squared error",
        "w_t": "w after t steps",
        "w^*": "solution",
        r"\sigma": "known number of the equation",
        r"\Sigma": "matrix with the σ on its diagonal",
        r"\sigma_{\max}": "largest σ",
        r"\sigma_{\min}": "smallest singular value that is not zero",
        r"\kappa": "condition number",
        "X": "general matrix, n rows and d columns",
        r"\hat w": "w in rotated coordinates",
        "H": "Hessian, the matrix of second derivatives",
        r"\lambda_{\max}": "largest eigenvalue of the Hessian, the sharpness",
        r"\beta": "share of the step before that momentum repeats",
    }
)
