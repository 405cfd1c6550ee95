"""The register of lesson 04, steepest_descent, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "g": "gradient",
        r"\Delta": "step",
        "L": "loss",
        "p": "which norm of the family: Lp",
        r"\eta": "allowed length of a step",
        "D": "unit step",
        r"\alpha": "number in the penalty for long steps",
        "M": "length of the step",
        r"\beta": "most by which the loss curves, as the norm measures it",
        "H": "Hessian",
        "W": "matrix of a layer's weights",
        "d_{in}": "entries of the layer's input",
        "d_{out}": "entries of the layer's output",
        "G": "gradient, a matrix",
        "s_i": "singular values of the gradient",
        "T": "linear map that keeps the norm",
    }
)
