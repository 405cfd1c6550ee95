"""The register of lesson 10, graph networks, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "n": "nodes of the graph",
        "A": "adjacency matrix",
        "h_j": "row that node j holds",
        "w_{ij}": "weight of an edge",
        "X": "matrix of the rows, with any number of channels",
        "D": "diagonal matrix of the degrees",
        "W": "learned matrix, channels out times channels in",
        r"\hat A": "symmetric matrix of a layer for an undirected graph",
        r"\alpha": "part of the start in each layer",
        "s_j": "states",
        "q_j": "colour of a node",
    }
)
