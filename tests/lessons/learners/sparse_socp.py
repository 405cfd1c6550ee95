"""What learners of lesson 32 answer, and what gives its predictions away."""

import math
from itertools import combinations, product

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "32.P1": [r"180", r"(?i)sparsity pattern|pattern"],
    "32.P2": [r"(?i)\bodd\b", r"(?i)frustrat"],
}


def vector(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def pair_by_pair(matrices):
    n = matrices.shape[-1]
    return sum(any(float(Q[i, j]) != 0 for Q in matrices) for i, j in combinations(range(n), 2))


def by_sizes(matrices):
    return int(torch.count_nonzero(matrices.abs().sum(0).tril(-1)))


def pairs_of(matrix):
    return int(torch.count_nonzero(matrix.triu(1)))


def by_spanning_tree(Q):
    signs, todo = {0: 1.0}, [0]
    while todo:
        i = todo.pop()
        for j in range(len(Q)):
            if j != i and Q[i, j] != 0 and j not in signs:
                signs[j] = -signs[i] * (1 if Q[i, j] > 0 else -1)
                todo.append(j)
    return vector(*(signs[i] for i in range(len(Q))))


def by_trying(Q):
    off = Q - torch.diag(Q.diagonal())
    for signs in product((1.0, -1.0), repeat=len(Q)):
        tau = vector(*signs)
        if (torch.outer(tau, tau) * off).max() <= 0:
            return tau
    return None


def by_one_row(Q):
    return torch.cat([vector(1.0), torch.where(Q[0, 1:] == 0, 1.0, -Q[0, 1:].sign())])


def all_but_its_own(Q):
    """Follows the edges, but forgets the sign of the vertex that it comes from."""
    tau, known = torch.ones(len(Q), dtype=torch.float64), {0}
    while len(known) < len(Q):
        i, j = next((i, j) for i in known for j in range(len(Q)) if j not in known and Q[i, j] != 0)
        tau[j] = -Q[i, j].sign()
        known.add(j)
    return tau


def cones(sparse, dense):
    return {"sparse": sparse, "dense": dense}


def cycle(a, b, c, d):
    return {"a": a, "b": b, "c": c, "d": d}


ANSWERS = {
    "32.1": [
        ("solved", "halved", lambda a, b, x: vector((a + b) / 2, (a - b) / 2, x)),
        ("solved", "other order and signs", lambda a, b, x: vector(a + b, -2 * x, b - a)),
        ("x not doubled", "x once", lambda a, b, x: vector(a + b, a - b, x)),
        ("root two", "the root of 2", lambda a, b, x: vector(a + b, a - b, math.sqrt(2) * x)),
        ("difference in front", "t and u exchanged", lambda a, b, x: vector(a - b, a + b, 2 * x)),
        ("product", "a b in front", lambda a, b, x: vector(a * b, 0, x)),
        ("difference left out", "2 x at most a + b", lambda a, b, x: vector(a + b, 0, 2 * x)),
        ("wrong", "a negative t", lambda a, b, x: vector(-a - b, a - b, 2 * x)),
        ("malformed", "a tuple", lambda a, b, x: (a + b, a - b, 2 * x)),
    ],
    "32.2": [
        ("solved", "rows and columns, binomial coefficient", cones(2 * 12 * 11, math.comb(144, 2))),
        ("solved", "floats", cones(264.0, 10296.0)),
        ("both ends", "each pair twice", cones(528, 20592)),
        ("border forgotten", "two edges for each vertex", cones(2 * 144, 10296)),
        ("rows only", "horizontal edges", cones(132, 10296)),
        ("twelve unknowns", "pairs of 12", cones(264, 66)),
        ("diagonal", "with the diagonal", cones(264, 144 * 145 // 2)),
        ("all entries", "144 squared", cones(264, 144**2)),
        ("malformed", "a tuple", (264, 10296)),
    ],
    "32.3": [
        ("solved", "pair by pair", pair_by_pair),
        ("solved", "sizes added up", by_sizes),
        ("objective only", "Q_0", lambda matrices: pairs_of(matrices[0])),
        ("constraints only", "without Q_0", lambda matrices: by_sizes(matrices[1:])),
        ("sum", "a sum of the matrices", lambda matrices: pairs_of(matrices.sum(0))),
        ("both triangles", "both orders", lambda matrices: 2 * by_sizes(matrices)),
        ("diagonal", "with the diagonal", edit(".triu(1)", ".triu()")),
        ("each matrix by itself", "one by one", lambda matrices: sum(pairs_of(Q) for Q in matrices)),
        ("in all", "common to all", lambda matrices: pairs_of(matrices.prod(0))),
        ("wrong", "the largest matrix", lambda matrices: max(pairs_of(Q) for Q in matrices)),
        ("malformed", "the pairs themselves", lambda matrices: matrices.abs().sum(0).triu(1).nonzero()),
    ],
    "32.4": [
        ("solved", "all positive", cycle(1, 1, 1, 1)),
        ("solved", "opposite edges", cycle(2.0, -1.0, 0.5, -3.0)),
        ("none positive", "all negative", cycle(-2, -1, -1, -1)),
        ("one positive", "the last one", cycle(-1, -1, -1, 5)),
        ("three positive", "all but one", cycle(1, -1, 1, 1)),
        ("no cycle", "an edge left out", cycle(1, 1, 0, -1)),
        ("malformed", "a matrix", torch.ones(4, 4)),
        ("malformed", "signs as words", cycle("+", "+", "-", "-")),
    ],
    "32.5": [
        ("solved", "along a spanning tree", by_spanning_tree),
        ("solved", "all signs tried", by_trying),
        ("solved", "the other solution", lambda Q: -by_spanning_tree(Q)),
        ("first row", "one row", by_one_row),
        ("wrong", "entries made positive along a tree", lambda Q: by_spanning_tree(-Q)),
        ("signs of the row sums", "row sums", lambda Q: torch.where(Q.sum(1) > 0, 1.0, -1.0).double()),
        ("nothing", "ones", lambda Q: torch.ones_like(Q[0])),
        ("wrong", "the sign of the edge alone", all_but_its_own),
        ("malformed", "float32", lambda Q: by_spanning_tree(Q).float()),
    ],
}  # fmt: skip
