"""The register of lesson 29, mbart_to_sparse_features, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "X_t": "state at a position",
        "m_t": "1 where a position counts",
        r"\hat\rho_j": "mean activation of a code unit",
        r"\rho": "target of the mean activation",
        "M": "number of features",
        "f_i": "length of what a feature adds",
        "r": "root mean square length",
        "s": "score of a feature for a sentence",
        "R": "sum of ranks",
        "c": "factor",
    }
)
