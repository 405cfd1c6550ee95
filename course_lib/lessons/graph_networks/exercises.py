"""Exercises of lesson 13, graph networks."""

import torch

from course_lib.architectures.graphs import (
    adjacency_matrix,
    aggregate_edges,
    batch_graphs,
    refine_colours,
    walk_counts,
)
from course_lib.lessons.graph_networks.contents import lesson
from course_lib.lessons.graph_networks.molecules import BICYCLOPENTYL, DECALIN
from course_lib.teaching import but, close, edit


def _adjacency(generator):
    n = int(torch.randint(3, 6, (), generator=generator))
    upper = torch.randint(0, 2, (n, n), generator=generator).triu(1)
    upper[0, 1:] = 1  # node 1 is joined to all: no node is alone, and degrees differ
    upper[1, 2] = 0
    return {"adjacency": (upper + upper.T).double()}


def _scaled(adjacency):
    """D^-1/2 (A + I) D^-1/2."""
    loops = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)
    return loops / torch.outer(loops.sum(1), loops.sum(1)).sqrt()


@lesson.exercise(
    "13.1", "What a GCN layer leaves unchanged", difficulty=2, minutes=8,
    prompt="A GCN layer makes each node its own neighbour and scales: it multiplies by $D^{-1/2}(A + I)D^{-1/2}$, where "
    "$D$ is the diagonal matrix of the row sums of $A + I$. On a connected graph one vector of length 1 with positive "
    "entries comes back from it unchanged. Write `unchanged(adjacency)`, which returns this vector; `adjacency` is the "
    "symmetric matrix $A$ of an undirected, connected graph, float64, with zeros on its diagonal.",
    draw=_adjacency,
    properties=[
        ("The entries should be positive.", lambda answer: bool((answer > 0).all())),
        ("The layer should return your vector unchanged.",
         lambda adjacency, answer: close(_scaled(adjacency) @ answer, answer)),
        ("The vector should have length 1: its squares add up to 1.", lambda answer: close(answer.norm(), 1.0)),
    ],
    hints=(
        "What does A + I make of a vector of ones?",
        "The first D^(-1/2) should turn your vector into ones: which vector does it turn into ones?",
        "D^(-1/2) divides by the square roots of the row sums of A + I.",
    ),
    mistakes=[
        ("ones", edit("degrees.sqrt()", "torch.ones_like(degrees)"),
         "Equal entries come back from a mean. This layer divides by roots on both sides: nodes with more neighbours end up "
         "with more."),
        ("the degrees", edit("degrees.sqrt()", "degrees"),
         "The row sums themselves come back when the layer divides columns only. Here each side takes a root."),
        ("degrees without loops", edit("adjacency.sum(1) + 1", "adjacency.sum(1)"),
         "Those are the row sums of A. D belongs to A + I: each is one larger."),
        ("one over the roots", edit("degrees.sqrt()", "degrees.rsqrt()"),
         "The first factor divides by the root. To leave ones, the vector has to be multiplied by it."),
        ("not of length 1", edit("root / root.norm()", "root"),
         "The layer leaves your vector unchanged. Now divide it by its length."),
        ("entries that add up to 1", edit("root.norm()", "root.sum()"),
         "You divided by the sum of the entries. The length is the root of the sum of their squares."),
    ],
)
def unchanged(adjacency):
    """Return the roots of the degrees, over their norm."""
    degrees = adjacency.sum(1) + 1
    root = degrees.sqrt()
    return root / root.norm()


lesson.value(
    "13.2", "How deep until it is gone", difficulty=2, minutes=6,
    prompt="A GCN layer without weights has the largest eigenvalue 1 and the second-largest $\\lambda_2 = 0.8$; all "
    "others lie between 0 and 0.8. Each "
    "layer keeps half of what was there: $X \\leftarrow \\frac12(X + \\hat A X)$. After how many layers has the "
    "factor in front of "
    "the second eigenvector fallen below 1% of its start, for the first time?",
    answer=44,
    properties=[
        ("After so many layers the factor is not below 1%.", lambda answer: 0.9**answer < 0.01),
        ("One layer earlier the factor is below 1% already.", lambda answer: 0.9 ** (answer - 1) >= 0.01),
        ("Layers come in whole numbers.", lambda answer: answer == int(answer)),
    ],
    hints=(
        "By which factor does one layer multiply an eigenvector with the eigenvalue λ, now that half of X is kept?",
        "Solve factor^k = 0.01 with logarithms.",
        "Round so that the factor is below 1%.",
    ),
    mistakes=[
        ("without the residual", 21,
         "That is for the factor 0.8 in each layer. With half of X kept, the factor is (1 + 0.8)/2 = 0.9."),
        ("rounded down", 43,
         "After 43 layers the factor is 0.0108, still above 1%: round up."),
        ("not rounded", 43.7,
         "Layers come in whole numbers: which is the first one after which the factor is below 1%?",
         lambda answer: 43 < answer < 44),
        ("half the eigenvalue", 6,
         "You took 0.8/2 = 0.4 for the factor, and left out the half of X that stays: (1 + 0.8)/2 = 0.9."),
        ("to 10%", 22,
         "After 22 layers the factor is about 10%. The question is about 1%."),
    ],
)


def _square():
    """The square 1-2-3-4 with the diagonal 1-3."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    return torch.tensor([*pairs, *((j, i) for i, j in pairs)]).T


lesson.value(
    "13.3", "Walks on a square", difficulty=1, minutes=5,
    prompt="Four nodes with the undirected edges 1-2, 2-3, 3-4, 4-1 and the diagonal 1-3. All nodes start with "
    "their own one-hot "
    "vector, and each layer adds up the neighbours. What does node 3 hold in channel 1 after three layers?",
    answer=5,
    properties=[
        ("Three layers of sums give another number.",
         lambda answer: answer == float(walk_counts(adjacency_matrix(_square(), n_nodes=4), 3)[0, 2])),
    ],
    hints=(
        "Follow the 1 of channel 1 through the layers: which nodes hold what after the first one?",
        "After one layer, nodes 2, 3 and 4 hold 1. After two layers, what do the neighbours of node 3 hold?",
        "Add up what nodes 1, 2 and 4 hold after two layers.",
    ),
    mistakes=[
        ("simple paths", 0,
         "No path of three edges leads from 1 to 3 without visiting a node twice, but the layers count walks, which "
         "may."),
        ("two layers", 2,
         "That is the number after two layers: 1-2-3 and 1-4-3."),
        ("at most three edges", 8,
         "You added the walks of one, two and three edges. After three layers only those of exactly three edges "
         "count."),
        ("back to the start", 4,
         "That is what node 1 holds: the closed walks of three edges. The question is about node 3."),
    ],
)


def _directed(generator, *, most=5):
    """Few nodes and edges with whole numbers; some edge stands twice and some node gets several messages."""
    n = int(torch.randint(3, most, (), generator=generator))
    edges = torch.randint(n, (2, n + 2), generator=generator)
    edges = torch.cat([edges, edges[:, :1]], dim=1)
    return n, edges


def _drawn(generator):
    n, edges = _directed(generator)
    x = torch.randint(1, 10, (n, 1), generator=generator).double()
    return {"x": x, "edge_index": edges, "dy": torch.randint(1, 10, (n, 1), generator=generator).double()}


@lesson.exercise(
    "13.4", "A layer from an edge list", difficulty=1, minutes=8,
    prompt="Write `add_messages(x, edge_index)`: `x` has one row for each node, `edge_index` the sources in row 0 and "
    "the targets in "
    "row 1, counted from 0. Return a tensor in the shape of `x` whose row $j$ is the sum of the rows of all sources "
    "of edges that "
    "end in $j$. An edge may be listed twice; then it counts twice. Leave `x` unchanged.",
    draw=_drawn,
    properties=[
        ("Row j should be the sum of the rows of x over all edges that end in j.",
         lambda x, edge_index, answer: close(answer, aggregate_edges(x, edge_index))),
    ],
    forbids=("overwritten inputs",),
    hints=(
        "Which row of edge_index says where a message comes from, and which says where it is added?",
        "`y[target] += x[source]` with tensors of indices writes each target once only, however often it stands there.",
        "Loop over the columns, or look up `index_add` in torch's documentation.",
    ),
    mistakes=[
        ("against the arrows", edit("source, target = edge_index", "target, source = edge_index"),
         "Your messages run against the arrows: row 0 holds the sources, row 1 the targets."),
        ("assigned by index", edit("for i, j in zip(source, target, strict=True):\n        y[j] += x[i]",
         "y[target] += x[source]"),
         "Of several messages to one node only one is left: `y[target] += ...` adds once for each different target, "
         "and "
         "`y[j] = ...` overwrites. A node adds up all its messages."),
        ("each edge once", edit("zip(source, target, strict=True)", "set(zip(source.tolist(), target.tolist()))"),
         "An edge that is listed twice brought its message once, as with a dense matrix whose entries are set to 1. Add "
         "1 to the entry for each edge."),
        ("the node itself too", edit("torch.zeros_like(x)", "x.clone()"),
         "You started with the node's own row. That belongs to layers with self-loops, or to a residual connection."),
        ("mean for the sum", edit("return y", "return y / torch.bincount(target, minlength=len(x)).clamp(min=1)[:, "
        "None]"),
         "You took the mean of the messages; the sum is asked for."),
        ("both ways", edit("y[j] += x[i]", "y[j] += x[i]\n        y[i] += x[j]"),
         "You sent each message in both directions. An edge of edge_index has one; an undirected edge stands there "
         "as two columns."),
    ],
)
def add_messages(x, edge_index):
    """Add the row of each source to the row of its target."""
    y = torch.zeros_like(x)
    source, target = edge_index
    for i, j in zip(source, target, strict=True):
        y[j] += x[i]
    return y


def _rounds_until_they_differ(mark: int) -> int:
    """Mark one atom with three neighbours in each molecule; return the first round whose lists of colours differ."""
    both, _ = batch_graphs([DECALIN, BICYCLOPENTYL], [10, 10])
    start = [mark, *[0] * 9] * 2
    for rounds in range(12):
        colours = refine_colours(both, start, rounds=rounds)
        if sorted(colours[:10]) != sorted(colours[10:]):
            return rounds
    return 0


lesson.value(
    "13.5", "Mark one atom", difficulty=2, minutes=6,
    prompt="In each molecule one of the two atoms with three neighbours is marked: it starts with a colour of its own, all "
    "others share another one. Then refine, round by round. After how many rounds do the two molecules hold different "
    "lists of colours for the first time?",
    answer=3,
    properties=[
        ("The lists differ for the first time after another number of rounds.",
         lambda answer: answer == _rounds_until_they_differ(1)),
    ],
    hints=(
        "After r rounds, an atom's colour depends on what stands within r bonds of it.",
        "Give each atom its distance from the mark, in both molecules: how many are at distance 1, 2 and 3?",
        "Which neighbours do the atoms at distance 2 have in each molecule, and when can they know?",
    ),
    mistakes=[
        ("at once", 1,
         "After one round an atom knows its number of neighbours, and whether one of them is marked. Both molecules have "
         "the same list of that."),
        ("rings of five", 5,
         "It shows earlier: on a ring of five, the two atoms opposite the mark are joined to each other."),
        ("half a ring of five", 2,
         "After two rounds an atom knows how far the mark is, up to distance 2. The two atoms opposite each other on the "
         "ring of five are joined, but whether a neighbour is at distance 2 is known one round later."),
        ("rings of six", 6,
         "It shows earlier: on a ring of six, the two atoms at distance 2 have the atom opposite the mark between them."),
        ("never", 0,
         "Without a mark no number is enough. The mark makes distances visible, and they differ."),
    ],
)


def _steps(i, j):
    return abs(i - j)


lesson.flaw(
    "13.6", "What a maximum marks", difficulty=1, minutes=6,
    prompt="\"With the maximum over neighbours instead of the sum, and one-hot inputs, channel $i$ of node $j$ "
    "after $k$ "
    "layers is 1 if and only if there is a path of at most $k$ edges from $i$ to $j$.\" Give a counterexample on the "
    "path graph "
    "1-2-3-4-5, with undirected edges and no self-loops: a dictionary with the nodes `i` and `j`, different ones, "
    "and the number of "
    "layers `k`, so that a path of at most $k$ edges exists and the entry is 0.",
    answer={"i": 1, "j": 2, "k": 2},
    needs=[
        ("i and j should be whole numbers from 1 to 5, and k one of at least 1.",
         lambda i, j, k: all(v == int(v) for v in (i, j, k)) and 1 <= i <= 5 and 1 <= j <= 5 and k >= 1),
        ("The statement fails there too, by a path without edges; but two different nodes are asked for.",
         lambda i, j: i != j),
    ],
    properties=[
        ("From i to j it takes more than k edges: then 0 is right.", lambda i, j, k: _steps(i, j) <= k),
        ("The entry is 1 there: a walk of exactly k edges exists.", lambda i, j, k: (_steps(i, j) - k) % 2 == 1),
    ],
    hints=(
        "Which walks of exactly two edges start in node 1?",
        "On a path graph, each step changes an even node into an odd one, or an odd one into an even one.",
        "Take neighbours, and a number of layers after which the 1 cannot be at the other one.",
    ),
    mistakes=[
        ("out of reach", {"i": 1, "j": 5, "k": 2},
         "No path of at most k edges leads there: the entry is 0, as the statement says.",
         but(lambda i, j, k: _steps(i, j) > k)),
        ("a walk fits", {"i": 1, "j": 2, "k": 3},
         "A walk of exactly k edges exists there (going back and forth counts), so the entry is 1.",
         but()),
    ],
)


@lesson.exercise(
    "13.7", "Back through a mean", difficulty=3, minutes=12,
    prompt="Write `mean_gradient(dy, edge_index)`: a layer replaces the row of each node by the mean over the "
    "sources of the edges "
    "that end in it, or by zeros if there are none. `dy` is the gradient of the loss with respect to its output. "
    "Return the gradient "
    "with respect to its input, in the same shape. Edges may be listed twice.",
    draw=lambda generator: {name: value for name, value in _drawn(generator).items() if name != "x"},
    properties=[
        ("Every node with edges into it should hand its row of dy back in full, and no other node anything: the "
         "columns of your answer have other sums.",
         lambda dy, edge_index, answer: close(answer.sum(0), dy[edge_index[1].unique()].sum(0), atol=1e-7)),
        ("Row i should be the rate at which the sum of y · dy grows with the features of node i alone.",
         lambda dy, edge_index, answer: close(answer, _by_autograd(dy, edge_index))),
    ],
    hints=(
        "Node j divides each of its messages by the number of edges that end in j. Which derivative does one "
        "message have?",
        "What went along an edge from i to j on the way forward comes back from j to i.",
        "First divide dy by the number of incoming edges of each node, then add up over outgoing edges.",
    ),
    mistakes=[
        ("forward again", edit("dx[i] += shared[j]", "dx[j] += shared[i]"),
         "You sent the gradient along the arrows, as the forward pass sends features. It has to go back, from "
         "targets to sources."),
        ("not divided", edit("dy / count[:, None]", "dy"),
         "That is the gradient of a sum: each message enters a mean with the factor 1/(number of incoming edges)."),
        ("divided at the source", edit("shared = dy / count[:, None]", "shared = dy", "return dx", "return dx / "
        "count[:, None]"),
         "You divided by the number of edges into the source. The mean was taken at the target: divide dy there, "
         "before it travels."),
        ("outgoing edges counted", edit("bincount(target", "bincount(source"),
         "You counted the outgoing edges of a node. The mean divides by the number of incoming ones."),
        ("last edge only", edit("dx[i] += shared[j]", "dx[i] = shared[j]"),
         "You overwrote what other edges had brought back: a node that sent several messages adds up their gradients."),
    ],
)
def mean_gradient(dy, edge_index):
    """Divide at the targets, then add up at the sources."""
    source, target = edge_index
    count = torch.bincount(target, minlength=len(dy)).clamp(min=1)
    shared = dy / count[:, None]
    dx = torch.zeros_like(dy)
    for i, j in zip(source, target, strict=True):
        dx[i] += shared[j]
    return dx


def _by_autograd(dy, edge_index):
    x = torch.zeros_like(dy).requires_grad_()
    return torch.autograd.grad(aggregate_edges(x, edge_index, kind="mean"), x, dy)[0]


EXERCISES = lesson.exercises
