"""The register of lesson 13, attention_scaling, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "d": "entries of a query or key",
        r"\beta": "scale",
        "q_i": "queries",
        "k_j": "keys",
        "v_j": "values",
        "s_{ij}": "scores",
        r"\alpha_{ij}": "weights",
        "o_i": "outputs",
        r"\mu": "mean of queries and keys",
        "J": "Jacobian of the weights with respect to the scores",
        r"\Delta": "lead of the highest score over the second",
        "H": "entropy",
        "g": "learned number that replaces the scale",
    }
)
