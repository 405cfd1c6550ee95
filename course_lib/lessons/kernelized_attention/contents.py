"""The register of lesson 15, kernelized_attention, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "N": "tokens of the sequence",
        "D": "columns of queries and keys",
        "M": "columns of the values",
        r"\mathrm{sim}": "similarity of a query and a key",
        "Z_i": "denominator, the sum of the similarities",
        r"\phi": "feature map of the queries",
        r"\psi": "feature map of the keys",
        "C": "number of features",
        "U": "sum of outer products of features and values",
        "z": "sum of the features of the keys",
        r"N^\ast": "crossing of the two counts",
        "n": "tokens of a chunk",
        "A": "table of weights",
        r"\kappa_i": "how far similarities cancel in a denominator",
    }
)
