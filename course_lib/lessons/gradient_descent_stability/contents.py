"""The register of lesson 01, gradient_descent_stability, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "matrix of measurements, one row for each patient",
        "y": "target, the progress of the disease",
        "L": "loss",
        "w_t": "weight after t steps",
        "w^*": "solution",
        r"\eta": "step size",
        r"\sigma": "known number of the equation",
        r"\sigma_{\max}": "largest σ",
        r"\sigma_{\min}": "smallest σ that is not zero",
        r"\kappa": "condition number",
        r"\hat w": "weights in turned coordinates",
        "c_i": "share of the removable loss of a direction",
        "H": "Hessian, the matrix of second derivatives",
        r"\lambda_{\max}": "largest eigenvalue of the Hessian",
    }
)
