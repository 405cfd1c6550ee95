"""The register of lesson 26, transformer circuits, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "x": "residual stream",
        "E": "embedding",
        "P": "row for each place",
        "U": "unembedding",
        "A": "pattern",
        "W_Q": "queries",
        "W_K": "keys",
        "W_V": "values",
        "W_O": "back to the stream",
        "w_t": "token at place",
        "h": "head",
        "W_{QK}": "query-key circuit",
        "W_{OV}": "output-value circuit",
        "m": "trained number",
    }
)
