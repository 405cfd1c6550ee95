"""The register of lesson 27, stacked_autoencoder, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "f_l": "layer of the encoder",
        "L": "layers of the stack",
        "z": "code",
        r"\mu": "mean of the states",
        r"\Sigma": "covariance of the states",
        "R": "share of the variance that is kept",
        "k": "width of the code",
        r"\lambda_i": "eigenvalues",
        r"\alpha": "share of the variance",
        r"\hat\rho_j": "mean activation of a unit",
        r"\rho": "target of the mean activation",
        r"\epsilon": "tolerance",
    }
)
