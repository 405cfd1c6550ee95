"""The register of lesson 28, in-context regression, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x_l": "features of an example",
        "d": "features of a task",
        r"\beta_i": "coefficients of a task",
        "x_q": "query",
        "w_{hj}": "weight of a head for a feature",
        "u_{hi}": "gain of a head for a task",
        "L": "examples in one prompt",
        "s": "scale of the start",
        r"\eta": "step size",
        r"\tau^2": "variance of an answer",
        r"\delta": "relative perturbations of factors",
    }
)
