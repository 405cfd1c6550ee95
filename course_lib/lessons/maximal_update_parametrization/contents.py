"""The register of lesson 05, maximal_update_parametrization, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "W": "hidden matrix",
        "v": "readout",
        "d_{in}": "entries of a layer's input",
        "d_{out}": "entries of a layer's output",
        "g": "gradient of the loss with respect to the output of a layer",
        r"\eta": "step size",
        "n_l": "width after layer l",
        r"\Theta": "between two positive multiples, at every width",
        "h_l": "activations of layer l",
        "r_{in}": "factor by which a layer's inputs exceed those of the base",
        "r_{out}": "factor by which a layer's outputs exceed those of the base",
        "m": "fixed number that multiplies a layer",
        "d_{head}": "entries of a query or key",
    }
)
