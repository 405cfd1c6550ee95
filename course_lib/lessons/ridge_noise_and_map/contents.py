"""The register of lesson 04, ridge_noise_and_map, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "features of a point in each row",
        "m": "rows",
        "d": "entries of a row",
        r"\sigma": "its square is the variance of the noise",
        r"\lambda": "weight of the penalty",
        r"w_\lambda": "the gradient of ridge vanishes",
        "s_i": "singular values",
        "N_i": "noise on one row",
        "p": "prior variance",
        "v": "variance of the errors of the targets",
        r"\kappa": "weight decay",
        "C": "limit of X^T X / m with many rows",
    }
)
