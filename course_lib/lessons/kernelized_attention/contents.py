"""The register of lesson 19, kernelized_attention, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "N": "tokens",
        "D": "entries of queries and keys",
        "M": "entries of a value",
        r"\mathrm{sim}": "similarity of queries and keys",
        "Z_i": "denominator, the sum of the similarities",
        r"\phi": "feature map of the queries",
        r"\psi": "feature map of the keys",
        "C": "number of features",
        "U": "sum of products with the values",
        "z": "one of the two sums into which each token writes",
        r"N^\ast": "at this many tokens the two counts are equal",
        "n": "tokens of a chunk",
        "A": "table of weights",
        r"\kappa_i": "how far similarities cancel in a denominator",
    }
)
