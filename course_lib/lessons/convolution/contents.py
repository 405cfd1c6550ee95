"""The register of lesson 08, convolution, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "S": "stride",
        "P": "padding",
        "D": "dilation",
        "X": "image",
        "w_{hl}": "entries of the kernel",
        "Y": "output",
        "W": "pixels of the image along one axis",
        "K": "weights of the kernel along one axis",
        "C": "input channels",
        "F": "filters",
        "L": "loss",
        r"\mathcal F": "two-dimensional discrete Fourier transform",
    }
)
