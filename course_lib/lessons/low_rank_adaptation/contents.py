"""The register of lesson 20, low-rank adaptation, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "W": "frozen weight",
        "A": "trained, in the adapter: r rows",
        "B": "trained, in the adapter: r columns",
        "r": "rank of the adapter",
        "s": "fixed number that multiplies the adapter, its scale",
        "G": "gradient summed over the examples",
        r"\sigma_i": "singular value of the gradient",
        r"\eta": "size of a step",
        "m_i": "trained number for a row",
    }
)
