"""The register of lesson 06, steepest_descent, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "L": "loss",
        "w": "weights",
        "g": "gradient",
        r"\Delta": "step",
        r"\eta": "allowed length of a step",
        "p": "which norm of the family: Lp",
        r"\alpha": "number in the price on the length",
        r"\sigma": "scale of an input",
        "M": "length of the step",
        "W": "matrix of a layer's weights",
        "G": "gradient, a matrix",
        "U": "singular vectors of the gradient, as columns",
        "V": "singular vectors of the gradient, as columns",
        "S": "singular values of the gradient, on a diagonal",
        "s_i": "singular value of the gradient",
        "T": "rotation or reflection that preserves the norm",
        "B": "matrix that defines a norm",
        "P": "orthogonal matrix",
        "Q": "orthogonal, a rotation",
        "C": "mean by which inputs are whitened",
        "d_{in}": "inputs of a layer",
        "d_{out}": "outputs of a layer",
    }
)
