"""The register of lesson 02, momentum, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "L": "loss",
        "w_t": "weights",
        "w^*": "minimum",
        "v_t": "velocity",
        r"\eta": "step size",
        r"\beta": "share of the velocity that is kept in each step",
        r"\lambda": "curvature along one direction",
        r"\lambda_{\max}": "largest curvature",
        r"\lambda_{\min}": "smallest curvature",
        r"\kappa": "condition number",
        "e_t": "error along one direction",
        "z": "root",
    }
)
