"""The register of lesson 10, convolution, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "image",
        "w_{hl}": "weights",
        "Y": "output",
        "K": "weights of the kernel along one axis",
        "m": "rows and columns",
        "T": "shift",
        "M": "matrix of the layer",
        r"\mathcal L": "loss",
        "S": "stride",
        "L": "layers",
        "P": "zeros",
        "D": "dilation",
        "W": "pixels of the image along one axis",
        "C": "input channels",
        "F": "filters",
        r"\mathcal F": "two-dimensional discrete Fourier transform",
    }
)
