"""The register of lesson 21, transformer circuits, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x": "residual stream",
        "W_Q": "matrix of a head, for queries",
        "W_K": "matrix of a head, for keys",
        "W_V": "matrix of a head, for values",
        "W_O": "brings the values back",
        "h": "head",
        "A": "pattern: where each token looks",
        "W_{QK}": "query-key circuit",
        "W_{OV}": "what a head writes to the stream",
        "U": "unembedding",
        "A_{tj}": "weight of a query on a key",
    }
)
