"""The register of lesson 03, ridge_noise_and_map, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X": "samples as rows, features as columns",
        "m": "rows (samples)",
        "d": "columns (features)",
        r"\sigma": "standard deviation of the noise on the input",
        r"\lambda": "weight of the penalty",
        r"w_\lambda": "minimiser of ridge regression",
        "s_i": "singular values",
        "N_i": "noise on one row",
        "a_t": "random map of one step",
        r"\eta": "size of a step",
        "M_t": "second moment",
        r"\rho": "spectral radius",
        "p": "prior variance",
    }
)
