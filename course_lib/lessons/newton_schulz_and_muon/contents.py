"""The register of lesson 08, newton_schulz_and_muon, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "W": "weights",
        "x_k": "key of fact k",
        "v_k": "value of fact k",
        "f_k": "frequency of fact k",
        "G": "gradient",
        "s_i": "singular value",
        "X": "matrix of any shape",
        "U": "singular vectors, as columns",
        "V": "singular vectors, as columns",
        "S": "singular values, on a diagonal",
        "p": "polynomial of one step",
        "n": "number of steps",
        "l": "lower end",
        "u": "upper end",
        "E": "worst error on the interval",
        r"\mu": "momentum",
        r"\eta_t": "step size",
        "B_t": "running mean of the gradients",
        "M_t": "running mean, one step ahead",
    }
)
