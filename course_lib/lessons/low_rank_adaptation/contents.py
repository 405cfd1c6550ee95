"""The register of lesson 25, low-rank adaptation, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "W": "frozen weight",
        "A": "one of two trained matrices of the adapter",
        "B": "one of two trained matrices of the adapter",
        "r": "rank of the adapter",
        "s": "fixed number, its scale",
        "G": "gradient summed over the examples",
        r"\sigma_i": "singular values of the gradient",
        r"\eta": "size of a step",
        "m_i": "trained number for a row",
    }
)
