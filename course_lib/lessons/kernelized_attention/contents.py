"""The register of lesson 15, kernelized_attention, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "N": "tokens of the sequence",
        "D": "columns of queries and keys",
        "M": "columns of the values",
        r"\phi": "feature map",
        "C": "number of features",
        "Z_i": "denominator, the sum of the similarities",
        "U": "sum of outer products",
        r"N^\ast": "crossing of the two lines",
        "n": "tokens of a chunk",
        r"\gamma_i": "decay, a factor that lets the past fade",
        r"\eta_i": "step size of the delta rule",
    }
)
