"""The register of lesson 03, ridge_noise_and_map, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "samples as rows, features as columns",
        "m": "rows (samples)",
        "d": "columns (features)",
        r"\sigma": "standard deviation of the noise on the inputs",
        r"\lambda": "weight of the penalty",
        r"w_\lambda": "minimiser of ridge regression",
        "s_i": "singular values",
        "N_i": "noise on one row",
        "p": "prior variance",
        "v": "variance of the errors of the targets",
        r"\kappa": "weight decay",
        "C": "mean of x x^T over rows",
        "a_t": "random factor of one update",
        r"\eta": "step size",
    }
)
