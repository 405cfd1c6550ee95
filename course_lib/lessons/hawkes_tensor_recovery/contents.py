"""The register of lesson 31, Hawkes processes by tensor recovery, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "y_k": "events in a bin",
        r"\mu_i": "base rate",
        "A_{ij}": "kernel",
        r"\tau": "lag",
        "d_i": "delay with which a place receives",
        "e_j": "delay with which a place sends",
        "h": "profile of the answer",
        r"\hat A_{ij}": "discrete Fourier transform",
        r"\gamma": "weight of the norm",
        "G": "mean of centred products",
    }
)
