"""The sentences of lesson 13, each with what decides on it."""

import torch

from course_lib.architectures.graphs import (
    adjacency_matrix,
    aggregate_edges,
    batch_graphs,
    refine_colours,
    simple_path_counts,
    walk_counts,
)
from course_lib.lessons.graph_networks.communities import HALF, draw, through, without
from course_lib.lessons.graph_networks.contents import lesson
from course_lib.lessons.graph_networks.molecules import BICYCLOPENTYL, DECALIN, undirected
from course_lib.teaching import fact

PATH_OF_FIVE = undirected((1, 2), (2, 3), (3, 4), (4, 5))


@lesson.sentence(
    "13.Q1",
    "For two different nodes i and j of a graph without self-loops, (A²)ᵢⱼ counts the paths of two edges from i to j that "
    "visit no node twice.",
    answer=True,
)
def two_edges():
    """The node in the middle has an edge to both ends, so it is neither of them. With three edges a walk can turn back."""
    a = adjacency_matrix(BICYCLOPENTYL, n_nodes=10)
    off = ~torch.eye(10, dtype=torch.bool)
    found = {}
    for k in (2, 3):
        paths = torch.tensor(simple_path_counts(BICYCLOPENTYL, k, n_nodes=10), dtype=a.dtype)
        found[k] = float((walk_counts(a, k) - paths)[off].sum())
    return "\n".join(
        [
            fact("bicyclopentyl, two edges, i ≠ j: {} more walks than paths", found[2], equals=0, within=0),
            fact("three edges, i ≠ j: {}", found[3], at_least=1),
        ]
    )


@lesson.sentence(
    "13.Q2",
    "One-hot names, k layers that add up the neighbours: node j holds row j of Aᵏ.",
    answer="only if Aᵏ is symmetric",
    conditions=("only if Aᵏ is symmetric", "only if the graph has no self-loops"),
)
def rows_and_columns():
    """By (13.4) node j collects from the nodes with an edge to it: that is column j. Row j lists where walks from j lead."""
    chain = torch.tensor([[0, 1], [1, 2]])  # 1 -> 2 -> 3
    held = aggregate_edges(aggregate_edges(torch.eye(3), chain), chain)[2]
    power = walk_counts(adjacency_matrix(chain, n_nodes=3), 2)
    return "\n".join(
        [
            fact("1 → 2 → 3, two layers: node 3 holds {}", held, equals=[1, 0, 0], within=0),
            fact("column 3 of A² is {}", power[:, 2], equals=[1, 0, 0], within=0),
            fact("row 3 is {}", power[2], equals=[0, 0, 0], within=0),
        ]
    )


@lesson.sentence(
    "13.Q3",
    "On a graph of two pieces without an edge between them, many GCN layers leave multiples of one pattern in all channels.",
    answer=False,
)
def two_pieces():
    """Each piece has a pattern of its own that comes back unchanged: the eigenvalue 1 stands there twice. How much of each
    is left depends on the start, so the channels keep two numbers."""
    edges, _ = batch_graphs([DECALIN, BICYCLOPENTYL], [10, 10])
    a = adjacency_matrix(edges, n_nodes=20).double()
    loops = a + torch.eye(20)
    layer = loops / torch.outer(loops.sum(1), loops.sum(1)).sqrt()
    start = torch.randn(20, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sizes = torch.linalg.svdvals(torch.linalg.matrix_power(layer, 1000) @ start)
    return "\n".join(
        [
            fact("two molecules side by side, 1000 layers, 16 channels: {} patterns are left",
                 int((sizes > 1e-6 * sizes[0]).sum()), equals=2, within=0),
            fact("eigenvalues of size 1: {}",
                 int((torch.linalg.eigvalsh(layer) > 1 - 1e-9).sum()), equals=2, within=0),
        ]
    )  # fmt: skip


@lesson.sentence(
    "13.Q4",
    "A residual connection that keeps half of the features in each layer changes what the channels tend to.",
    answer=False,
)
def later_and_the_same():
    """Both matrices have the same eigenvectors, and the largest eigenvalue stays 1. Here the way there is longer."""
    graph = draw(0)
    one = lambda x: x[:, 0] / x[:, 0].norm()  # noqa: E731
    kept, plain = one(through(graph, 200, HALF)), one(through(graph, 200))
    before, half = graph.features, through(graph, 2, HALF)
    common = graph.common()
    shrunk = without(half, common).norm() / without(before, common).norm()
    without_half = without(through(graph, 2), common).norm() / without(before, common).norm()
    return "\n".join(
        [
            fact("200 layers: cosine between a channel with half kept and without {:.6f}",
                 (kept @ plain).abs(), equals=1, within=1e-6),
            fact("after 2 layers the rest is larger with half kept, {:.1f} times",
                 shrunk / without_half, at_least=1.2),
        ]
    )  # fmt: skip


@lesson.sentence(
    "13.Q5",
    "All nodes start with one colour and one feature. Nodes of one colour after k rounds of refinement hold the same "
    "features after k layers of a graph network.",
    answer="only if a layer sees no more than the colours do",
    conditions=("only if a layer sees no more than the colours do", "only if the layer has no weights"),
)
def degrees_of_the_neighbours():
    """Sum, mean and maximum see an atom and its neighbours. GCN divides by the neighbours' degrees as well, which the
    colours know one round later."""
    colours = refine_colours(PATH_OF_FIVE, [0] * 5, rounds=1)
    a = adjacency_matrix(PATH_OF_FIVE, n_nodes=5).double()
    loops = a + torch.eye(5)
    gcn = (loops / torch.outer(loops.sum(1), loops.sum(1)).sqrt()).sum(1)
    return "\n".join(
        [
            fact("path 1-2-3-4-5, one round: the colours of nodes 2 and 3 differ by {}",
                 colours[1] - colours[2], equals=0, within=0),
            fact("one layer of sums on ones: nodes 2 and 3 hold {}", a.sum(1)[1:3], equals=[2, 2], within=0),
            fact("one layer of GCN: {:.4f}", gcn[1:3], equals=[1.0749, 1.0], within=1e-4),
        ]
    )  # fmt: skip
