"""What learners of lesson 13 answer, and what gives its predictions away."""

import math

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "13.P1": [r"(?i)classifier was blind", r"v_2\b", r"(?i)splits the communities"],
    "13.P2": [r"(?i)no depth", r"(?i)colou?r refinement|1-WL", r"(?i)multiset"],
    "13.P3": [r"(?i)two of the five", r"(?i)harmless", r"(?i)half kept ≈"],
}

NEIGHBOURS = {
    "13.e1": ("for depth in (0, 2, 16, 64)]", "for depth in (0, 2, 8, 64)]"),
    "13.e2": ("lesson.accuracy(lesson.blown_up(rest), graph)", "lesson.accuracy(lesson.blown_up(x), graph)"),
    "13.5": ("walk_counts(A, 4) - counted", "walk_counts(A, 3) - counted"),
    "13.1": ("graph.degrees.sqrt()\n    cosines", "graph.degrees\n    cosines"),
    "13.2": ("** (1 / 20) / values[-2])", "** (1 / 20) / values[-3])"),
    "13.e3": ("same = (vectors[:, -2] > 0)", "same = (vectors[:, -3] > 0)"),
    "13.e4": ("lesson.draw(seed, shift=0.0)", "lesson.draw(seed, shift=0.2)"),
    "13.e5": ('{"remove": "mean"}', '{"remove": "random"}'),
    "13.3": ('for form in ("half kept", "start added")]', 'for form in ("start added", "half kept")]'),
    "13.6": ("[gap(torch.ones(20, 1), layers)", "[gap(marked, layers)"),
    "13.e6": ("[1.0, *[0.0] * 9] * 2)", "[1.0, *[0.0] * 9, 0.0, 1.0, *[0.0] * 8])"),
    "13.e7": ('mean("start added", 32), untrained', 'mean("half kept", 32), untrained'),
}


def by_index_add(x, edge_index):
    return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


def by_dense_matrix(x, edge_index):
    counts = torch.zeros(len(x), len(x), dtype=x.dtype)
    counts.index_put_(
        (edge_index[1], edge_index[0]), torch.ones(edge_index.shape[1], dtype=x.dtype), accumulate=True
    )
    return counts @ x


def by_ones_in_a_matrix(x, edge_index):
    adjacency = torch.zeros(len(x), len(x), dtype=x.dtype)
    adjacency[edge_index[1], edge_index[0]] = 1
    return adjacency @ x


def in_place(x, edge_index):
    """Adds into x itself: later messages carry earlier ones."""
    y = x.clone()
    for source, target in edge_index.T:
        y[target] += y[source]
    return y - x


def mean_by_autograd(dy, edge_index):
    x = torch.zeros_like(dy, requires_grad=True)
    incoming = torch.bincount(edge_index[1], minlength=len(dy)).clamp(min=1)[:, None]
    return torch.autograd.grad(by_index_add(x, edge_index) / incoming, x, dy)[0]


def mean_by_matrix(dy, edge_index):
    n = len(dy)
    weights = by_dense_matrix(torch.eye(n, dtype=dy.dtype), edge_index)
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    return weights.T @ dy


def back(dy, edge_index):
    return by_index_add(dy, edge_index.flip(0))


def incoming(dy, edge_index, row=1):
    return torch.bincount(edge_index[row], minlength=len(dy)).clamp(min=1)[:, None]


def walk(i, j, k):
    return {"i": i, "j": j, "k": k}


ANSWERS = {
    "13.3": [
        ("solved", "a power of the adjacency matrix",
         (torch.tensor([[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0]])).matrix_power(3)[2, 0]),
        ("solved", "a float", 5.0),
        ("simple paths", "no node twice", 0),
        ("two layers", "one layer too few", 2),
        ("at most three edges", "all layers added", 1 + 2 + 5),
        ("back to the start", "the closed walks", 4),
        ("wrong", "one layer too many", 16),
        ("malformed", "the whole vector", [4, 5, 5, 5]),
    ],
    "13.4": [
        ("solved", "index_add", by_index_add),
        ("solved", "a dense matrix of counts", by_dense_matrix),
        ("solved", "scatter_add", lambda x, edge_index: torch.zeros_like(x).scatter_add(
            0, edge_index[1][:, None].expand(-1, x.shape[1]), x[edge_index[0]])),
        ("against the arrows", "rows exchanged", back),
        ("assigned by index", "fancy assignment",
         edit("for i, j in zip(source, target, strict=True):\n        y[j] += x[i]",
                                                       "y[target] = y[target] + x[source]")),
        ("each edge once", "ones in a dense matrix", by_ones_in_a_matrix),
        ("the node itself too", "index_add into x",
         lambda x, edge_index: x.index_add(0, edge_index[1], x[edge_index[0]])),
        ("mean for the sum", "divided by the degree",
         lambda x, edge_index: by_index_add(x, edge_index) / incoming(x, edge_index)),
        ("both ways", "an undirected graph", lambda x, edge_index: by_index_add(x, edge_index) + back(x, edge_index)),
        ("wrong", "adds into one table", in_place),
        ("malformed", "one row for each edge", lambda x, edge_index: x[edge_index[0]]),
    ],
    "13.1": [
        ("solved", "the last eigenvector", lambda adjacency: torch.linalg.eigh(
            (loops := adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype))
            / torch.outer(loops.sum(1), loops.sum(1)).sqrt())[1][:, -1].abs()),
        ("solved", "a loop over the nodes", lambda adjacency: torch.stack(
            [((row.sum() + 1) / (adjacency.sum() + len(adjacency))).sqrt() for row in adjacency])),
        ("ones", "a constant", lambda adjacency: torch.full_like(adjacency[0], len(adjacency) ** -0.5)),
        ("the degrees", "no root", lambda adjacency: (d := adjacency.sum(1) + 1) / d.norm()),
        ("degrees without loops", "roots of the sums of A", lambda adjacency: (d := adjacency.sum(1).sqrt()) / d.norm()),
        ("one over the roots", "the diagonal of D^-1/2", lambda adjacency: (d := (adjacency.sum(1) + 1) ** -0.5) / d.norm()),
        ("not of length 1", "the roots alone", lambda adjacency: (adjacency.sum(1) + 1) ** 0.5),
        ("entries that add up to 1", "shares", lambda adjacency: (d := (adjacency.sum(1) + 1).sqrt()) / d.sum()),
        ("wrong", "with another sign", lambda adjacency: -(d := (adjacency.sum(1) + 1).sqrt()) / d.norm()),
        ("malformed", "the matrix of the layer", lambda adjacency: adjacency + torch.eye(len(adjacency))),
    ],
    "13.2": [
        ("solved", "ceil of the logarithm", math.ceil(math.log(0.01) / math.log(0.9))),
        ("solved", "a whole number as a float", 44.0),
        ("without the residual", "0.8 in each layer", 21),
        ("rounded down", "int()", int(math.log(0.01) / math.log(0.9))),
        ("not rounded", "the logarithms alone", math.log(0.01) / math.log(0.9)),
        ("half the eigenvalue", "0.4 in each layer", 6),
        ("to 10%", "one digit", 22),
        ("wrong", "one layer too many", 45),
        ("malformed", "no number", "44 layers"),
    ],
    "13.5": [
        ("solved", "rounds of a loop", 3),
        ("solved", "as a float", 3.0),
        ("at once", "the mark alone", 1),
        ("half a ring of five", "distances known", 2),
        ("rings of five", "the length of a ring", 5),
        ("rings of six", "the length of the other ring", 6),
        ("never", "no number", 0),
        ("wrong", "one round too many", 4),
        ("malformed", "a word", "three"),
    ],
    "13.6": [
        ("solved", "neighbours, an even number of layers", walk(3, 4, 2)),
        ("solved", "two apart, an odd number", walk(5, 3, 3)),
        ("solved", "far, much later", walk(1, 5, 101)),
        ("a walk fits", "neighbours, three layers", walk(2, 3, 3)),
        ("a walk fits", "exactly k edges", walk(1, 3, 2)),
        ("out of reach", "the ends of the path", walk(1, 5, 3)),
        ("need", "an odd number of layers back", walk(3, 3, 3)),
        ("need", "counted from 0", walk(0, 1, 2)),
        ("malformed", "a tuple", (1, 2, 2)),
    ],
    "13.7": [
        ("solved", "autograd", mean_by_autograd),
        ("solved", "the transposed matrix of weights", mean_by_matrix),
        ("solved", "index_add backwards", lambda dy, edge_index: back(dy / incoming(dy, edge_index), edge_index)),
        ("forward again", "along the arrows",
         lambda dy, edge_index: by_index_add(dy / incoming(dy, edge_index), edge_index)),
        ("not divided", "a sum's gradient", back),
        ("divided at the source", "divided after the journey",
         lambda dy, edge_index: back(dy, edge_index) / incoming(dy, edge_index)),
        ("outgoing edges counted", "the wrong row of edge_index",
         lambda dy, edge_index: back(dy / incoming(dy, edge_index, row=0), edge_index)),
        ("last edge only", "assigned", edit("+= shared[j]", "= shared[j]")),
        ("wrong", "the mean of the gradients that come back",
         lambda dy, edge_index: back(dy, edge_index) / incoming(dy, edge_index, row=0)),
        ("malformed", "one row for each edge", lambda dy, edge_index: dy[edge_index[1]]),
    ],
}  # fmt: skip
