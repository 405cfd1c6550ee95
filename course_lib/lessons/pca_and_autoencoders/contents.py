"""The register of lesson 23, PCA and autoencoders, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "W_1": "encoder",
        "W_2": "decoder",
        "d": "numbers of an input",
        "k": "numbers of a code",
        "S": "matrix of second moments",
        "u_i": "principal axes",
        "s_i": "variances along the axes",
        r"\mathcal S": "set of chosen axes",
        "R": "invertible mixing of the code",
        r"\eta": "step size",
        r"\rho": "size of the start",
        r"\lambda": "weight of the penalty",
        "p": "share that is returned",
    }
)
