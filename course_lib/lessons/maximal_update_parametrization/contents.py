"""The register of lesson 07, maximal_update_parametrization, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "W": "weights of a layer, a matrix",
        "x": "input of a layer",
        "y": "output of a layer",
        "d": "number of inputs of a layer",
        "d_{in}": "inputs",
        "d_{out}": "outputs",
        r"\sigma": "standard deviation",
        "g": "gradient of the loss with respect to the output of a layer",
        r"\Delta W": "Adam's first step",
        r"\eta": "step size",
        "r_{in}": "a layer's number of inputs divided by the base's",
        "r_{out}": "a layer's number of outputs divided by the base's",
        "h": "input of the hidden matrix",
        "v": "readout",
        "G": "gradient of a batch",
        "m": "fixed number that multiplies a layer",
        "c": "multiplier",
        r"\alpha": "step size at unit scale",
        "q": "with independent entries of mean 0 and size 1",
        "k": "with independent entries of mean 0 and size 1",
        "d_{head}": "products",
    }
)
