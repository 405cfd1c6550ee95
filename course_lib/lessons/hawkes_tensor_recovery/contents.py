"""The register of lesson 31, Hawkes processes by tensor recovery, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "y_k": "posts in hour",
        r"\mu_i": "base rate",
        "A_{ij}": "kernel",
        r"\tau": "hours later",
        "d_i": "reads with a delay",
        "e_j": "travel with a delay",
        "h": "profile",
        "f": "frequency",
        r"\hat A_{ij}": "discrete Fourier transform",
        r"\omega": "one step clockwise",
        "z_i": "arrow",
        r"\gamma": "weight",
    }
)
