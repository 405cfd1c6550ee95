"""The register of lesson 29, the margin that attention maximises, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x_t": "token",
        "z": "query",
        "W": "matrix that compares tokens with the query",
        "W^*": "matrix that decides which token is right",
        "p_t": "attention weight",
        r"\phi_t": "feature of a wrong token",
        "m_t": "lead of the right token's logit",
        "G": "minus the gradient of the loss",
        r"\beta": "diagonal of the matrix",
        r"\tau": "rescaled time",
        "c": "start of k",
        r"\sigma_i": "singular value of the force",
    }
)
