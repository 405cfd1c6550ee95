"""The register of lesson 17, attention_scaling, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "d": "entries of a query or key",
        "n": "number of keys",
        "q": "query",
        "k_j": "key j",
        "v_j": "value j",
        r"\beta": "scale",
        "z_j": "score of key j",
        r"\alpha_j": "weight of key j",
        "o": "output",
        r"\mu": "mean of queries and keys",
        r"\sigma": "standard deviation of the entries",
        "J": "matrix of the derivatives of the weights with respect to the scores",
        r"\Delta": "what the largest leads the second by",
        "r": "standard deviation of a score",
        "x": "difference of two scores",
        "t": "along it we move the query",
        r"\eta": "rate of Adam",
        "g": "number that QK-norm learns",
    }
)
