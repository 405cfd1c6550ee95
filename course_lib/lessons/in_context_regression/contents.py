"""The register of lesson 23, in-context regression, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x_l": "features of an example",
        "d_i": "features of a block",
        r"\beta_i": "coefficients of a task",
        "x_q": "query",
        "w_{hj}": "weight of a head for a feature",
        "u_{hi}": "factor of a head for a task",
        "L": "examples in one prompt",
        "m": "tasks that a head serves",
        "r_i": "error of a task",
        r"\eta": "step size",
    }
)
