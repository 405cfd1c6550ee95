"""The register of lesson 13, graph networks, with the symbols of its text."""

from course_lib.teaching import Contents

lesson = Contents(
    symbols={
        "A": "adjacency matrix",
        "n": "nodes of the graph",
        "h_j^k": "row that node j holds after k layers",
        "H^k": "matrix of these rows",
        "D": "diagonal matrix of the degrees",
        "X": "features, one row for each node",
        r"\hat A": "matrix of a GCN layer",
        r"\sqrt d": "roots of the degrees",
        "v_1": "eigenvectors of it",
        r"\lambda_1": "eigenvalues of it",
        "x": "channel",
        r"\alpha": "part of the start in each layer",
        "q_j": "colour of a node",
        "W": "weights of a layer",
    }
)
