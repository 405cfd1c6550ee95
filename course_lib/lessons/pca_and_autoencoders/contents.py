"""The register of lesson 18, PCA and autoencoders, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "table with one example in each row",
        r"\mu": "mean of the rows",
        "U": "first columns: the principal directions",
        "s_i": "eigenvalues in decreasing order",
        r"\mathcal S": "set of axes",
        "R": "basis of the code",
        r"\lambda": "weight of the penalty",
        r"\eta": "step size",
        r"\rho": "distance of the start",
        "q": "probability that an input is kept in training",
    }
)
