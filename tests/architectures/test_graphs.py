"""Graph networks: worked examples, two forms against each other and PyG, gradients by hand, what cannot be told apart."""

import warnings
from copy import deepcopy
from itertools import pairwise, permutations, product

import pytest
import torch

from course_lib.architectures.graphs import (
    Graph,
    adjacency_matrix,
    aggregate,
    aggregate_edges,
    batch_graphs,
    gcn_gradients,
    gcn_graph,
    gcn_layer,
    max_gradient,
    message_layer,
    normalised_edges,
    readout,
    refine_colours,
    simple_path_counts,
    walk_counts,
)

KINDS = ("sum", "mean", "max")


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def directed(*edges):
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T


def undirected(*edges):
    return directed(*edges, *((j, i) for i, j in edges))


def random_edges(n=9, count=30, seed=0):
    """Edges with repeats, self-loops and a node 8 that none reaches."""
    edges = torch.randint(n - 1, (2, count), generator=torch.Generator().manual_seed(seed))
    edges[0, 0] = n - 1
    return edges


PATH = undirected((0, 1), (1, 2))
TRIANGLE = undirected((0, 1), (1, 2), (0, 2))
CHAIN = directed((0, 1), (1, 2))


def matrix(edges, n=3, weight=None):
    return adjacency_matrix(edges, weight, n_nodes=n).double()


def graph(edges, n, weight=None):
    return Graph.from_edges(edges, weight, n_nodes=n, dtype=torch.float64)


# Worked examples


def test_walks_of_the_notes():
    assert walk_counts(matrix(PATH), 2).tolist() == [[1, 0, 1], [0, 2, 0], [1, 0, 1]]
    assert walk_counts(matrix(PATH), 3).tolist() == [[0, 2, 0], [2, 0, 2], [0, 2, 0]]
    assert walk_counts(matrix(TRIANGLE), 3).tolist() == [[2, 3, 3], [3, 2, 3], [3, 3, 2]]
    assert walk_counts(matrix(PATH), 0).tolist() == torch.eye(3).tolist()


def test_powers_count_walks_and_not_paths():
    # As printed, "paths": a single edge has a closed walk of length 2, and the triangle no path of length 3.
    assert walk_counts(matrix(undirected((0, 1)), 2), 2)[0, 0] == 1
    assert simple_path_counts(undirected((0, 1)), 2, n_nodes=2) == [[0, 0], [0, 0]]
    assert simple_path_counts(TRIANGLE, 3, n_nodes=3) == [[0] * 3] * 3
    assert simple_path_counts(TRIANGLE, 2, n_nodes=3) == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    edges = random_edges(5, 9).unique(dim=1)
    arrows = set(map(tuple, edges.T.tolist()))
    counted = torch.zeros(5, 5, dtype=torch.float64)
    for walk in product(range(5), repeat=5):
        counted[walk[0], walk[-1]] += all(step in arrows for step in pairwise(walk))
    assert torch.equal(walk_counts(matrix(edges, 5), 4), counted)


def test_a_directed_edge_carries_from_row_0_to_row_1():
    # Two layers on 1 -> 2 -> 3 from one-hot inputs: node 3 holds (1, 0, 0). A H, as printed, leaves it empty.
    x = torch.eye(3, dtype=torch.float64)
    for layer in (lambda h: aggregate_edges(h, CHAIN), lambda h: aggregate(h, graph(CHAIN, 3))):
        assert layer(layer(x)).tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    a = matrix(CHAIN)
    assert (a @ a @ x)[2].tolist() == [0, 0, 0]
    assert torch.equal(walk_counts(a, 2).T, a.T @ a.T @ x)


def test_the_sum_over_neighbours_of_the_notes():
    x = torch.tensor([[5.0], [7.0], [11.0]], dtype=torch.float64)
    assert aggregate(x, graph(PATH, 3)).flatten().tolist() == [7, 16, 7]
    assert aggregate(x, graph(PATH, 3), kind="mean").flatten().tolist() == [7, 8, 7]
    assert aggregate(x, graph(PATH, 3), kind="max").flatten().tolist() == [7, 11, 7]


def test_max_marks_walks_of_exactly_k_edges_and_with_loops_of_at_most_k():
    x, g = torch.eye(3, dtype=torch.float64), graph(PATH, 3)
    twice = aggregate(aggregate(x, g, kind="max"), g, kind="max")
    assert twice[1, 0] == 0  # as printed it says "a path exists", and nodes 1 and 2 are joined
    assert torch.equal(twice.T, (walk_counts(matrix(PATH), 2) > 0).double())
    loops = graph(torch.cat([PATH, torch.arange(3).expand(2, 3)], dim=1), 3)
    assert aggregate(aggregate(x, loops, kind="max"), loops, kind="max").min() == 1


def test_gcn_weights_by_hand():
    edges, weight = normalised_edges(PATH, n_nodes=3)
    dense = adjacency_matrix(edges, weight, n_nodes=3)
    expected = torch.tensor([[1 / 2, 6**-0.5, 0], [6**-0.5, 1 / 3, 6**-0.5], [0, 6**-0.5, 1 / 2]])
    torch.testing.assert_close(dense, expected)
    # It is D^-1/2 (A + I) D^-1/2 and not D^-1 (A + I), whose rows sum to 1.
    assert (dense.sum(1) - 1).abs().max() > 0.1


# The two forms


def with_gradient(call, x, dy):
    x = x.detach().clone().requires_grad_()
    y = call(x)
    return y.detach(), torch.autograd.grad(y, x, dy)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_both_forms_are_a_loop_over_nodes_with_its_gradients(kind, weighted):
    edges, x, dy = random_edges(), normal(9, 4), normal(9, 4, seed=1)
    weight = normal(30, seed=2) if weighted else None

    def loop(x):
        rows = []
        for j in range(9):
            into = (edges[1] == j).nonzero().flatten()
            messages = x[edges[0, into]] * (1 if weight is None else weight[into, None])
            reduced = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}[kind]
            rows.append(reduced(messages, 0) if len(into) else x.new_zeros(4))
        return torch.stack(rows)

    wanted = with_gradient(loop, x, dy)
    for form in (
        lambda x: aggregate_edges(x, edges, weight, kind=kind),
        lambda x: aggregate(x, graph(edges, 9, weight), kind=kind),
    ):
        for a, b in zip(with_gradient(form, x, dy), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_gradients_are_finite_differences_and_can_be_differentiated_again():
    edges, x = random_edges(), normal(9, 2).requires_grad_()
    g = graph(edges, 9, normal(30, seed=2).abs())
    for kind in KINDS:
        assert torch.autograd.gradcheck(lambda x, k=kind: aggregate(x, g, kind=k), x)
    assert torch.autograd.gradgradcheck(lambda x: aggregate(x, g).tanh(), x)
    weight = normal(30, seed=3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: aggregate_edges(x, edges, w, kind="mean"), (x, weight))


def test_the_way_back_is_the_transposed_product():
    edges, dy = random_edges(), normal(9, 4, seed=1)
    a = matrix(edges, 9)
    _, dx = with_gradient(lambda x: aggregate(x, graph(edges, 9)), normal(9, 4), dy)
    torch.testing.assert_close(dx, a @ dy)
    assert not torch.allclose(dx, a.T @ dy)  # the nearest wrong one: forward again


def test_equal_messages_share_the_gradient_of_a_maximum():
    x, dy = torch.ones(3, 1, dtype=torch.float64), torch.tensor([[1.0], [1.0], [6.0]], dtype=torch.float64)
    edges = directed((0, 2), (1, 2))
    assert max_gradient(dy, x, edges).flatten().tolist() == [3, 3, 0]
    for form in (
        lambda x: aggregate_edges(x, edges, kind="max"),
        lambda x: aggregate(x, graph(edges, 3), kind="max"),
    ):
        assert with_gradient(form, x, dy)[1].flatten().tolist() == [3, 3, 0]


@pytest.mark.parametrize(("d_in", "d_out"), [(3, 5), (5, 3)])
def test_gcn_layer_and_its_gradients_by_hand(d_in, d_out):
    edges, x, w, b = random_edges(), normal(9, d_in), normal(d_out, d_in, seed=1), normal(d_out, seed=2)
    g, dy = gcn_graph(edges, n_nodes=9, dtype=torch.float64), normal(9, d_out, seed=3)
    dense = g.push.to_dense()
    leaves = [t.clone().requires_grad_() for t in (x, w, b)]
    y = gcn_layer(*leaves[:2], g, leaves[2])
    torch.testing.assert_close(y, dense.T @ x @ w.T + b)
    dx, dw, db = torch.autograd.grad(y, leaves, dy)
    for found in ((dx, dw), gcn_gradients(dy, x, w, g)):
        torch.testing.assert_close(found[0], dense @ dy @ w)
        torch.testing.assert_close(found[1], (dense @ dy).T @ x)
    torch.testing.assert_close(db, dy.sum(0))


def test_a_layer_in_float32_is_near_float64_and_keeps_the_dtype():
    edges, x = random_edges(), normal(9, 4)
    g = gcn_graph(edges, n_nodes=9, dtype=torch.float64)
    single = aggregate(x.float(), g.to(torch.float32))
    assert single.dtype == torch.float32
    assert (single - aggregate(x, g)).abs().max() < 1e-6


def test_half_precision_and_autocast_are_near_full_precision():
    edges, x, w = random_edges(), normal(9, 4).float(), normal(3, 4, seed=1).float()
    g = gcn_graph(edges, n_nodes=9)
    wanted = gcn_layer(x, w, g)
    half = g.to(torch.bfloat16)
    y, dx = with_gradient(lambda x: aggregate(x, half), x.bfloat16(), torch.ones(9, 4, dtype=torch.bfloat16))
    assert y.dtype == dx.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), aggregate(x, g), rtol=2e-2, atol=2e-2)
    leaf = w.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = gcn_layer(x, leaf, g)
    mixed.sum().backward()
    torch.testing.assert_close(mixed.detach(), wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(leaf.grad, gcn_gradients(torch.ones(9, 3), x, w, g)[1])


def test_a_graph_is_moved_as_a_whole_and_copied_with_a_module():
    g = graph(random_edges(), 9, normal(30))
    single = g.to(torch.float32)
    assert (single.pull.dtype, single.push.dtype, single.edge_weight.dtype) == (torch.float32,) * 3
    assert torch.equal(single.to("cpu").edge_index, g.edge_index)
    assert deepcopy(g) is g


# Against PyTorch Geometric


def test_sum_mean_and_max_are_those_of_pyg():
    nn = pytest.importorskip("torch_geometric.nn")
    edges, x, dy, weight = random_edges(), normal(9, 4), normal(9, 4, seed=1), normal(30, seed=2)
    x[3] = x[5]  # equal messages
    for kind in KINDS:
        for given in (None, weight):
            peer = with_gradient(lambda x, k=kind, w=given: nn.SimpleConv(aggr=k)(x, edges, w), x, dy)
            ours = with_gradient(lambda x, k=kind, w=given: aggregate(x, graph(edges, 9, w), kind=k), x, dy)
            for a, b in zip(ours, peer, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loops", [False, True])
def test_gcn_is_that_of_pyg_also_with_loops_that_are_there_already(loops):
    nn = pytest.importorskip("torch_geometric.nn")
    edges = random_edges()
    edges = edges[:, edges[0] != edges[1]]
    if loops:
        edges = torch.cat([torch.tensor([[2, 4], [2, 4]]), edges], dim=1)
    weight, x = normal(edges.shape[1], seed=2).abs(), normal(9, 4)
    peer = nn.GCNConv(4, 3).double()
    for given in (None, weight):
        g = gcn_graph(edges, given, n_nodes=9, dtype=torch.float64)
        ours = gcn_layer(x, peer.lin.weight, g, peer.bias)
        torch.testing.assert_close(ours, peer(x, edges, given), rtol=1e-12, atol=1e-12)
    if loops:  # A + I as printed in the paper makes a loop of weight 1 a 2
        doubled = gcn_graph(
            torch.cat([edges, torch.arange(9).expand(2, 9)], dim=1), n_nodes=9, dtype=torch.float64
        )
        assert (gcn_layer(x, peer.lin.weight, doubled, peer.bias) - peer(x, edges)).abs().max() > 0.01


def test_a_batch_of_graphs_is_that_of_pyg():
    data = pytest.importorskip("torch_geometric.data")
    sizes, edges = [3, 2, 4], [PATH, undirected((0, 1)), random_edges(4, 6)]
    peer = data.Batch.from_data_list(
        [data.Data(edge_index=e, num_nodes=n) for e, n in zip(edges, sizes, strict=True)]
    )
    together, batch = batch_graphs(edges, sizes)
    assert torch.equal(together, peer.edge_index)
    assert torch.equal(batch, peer.batch)


# Layers and batches


def test_the_message_layer_does_not_ask_for_an_order_of_edges():
    edges, s, inner, outer = random_edges(), normal(9, 3), normal(4, 3, seed=1), normal(3, 4, seed=2)
    y = message_layer(s, inner, outer, graph(edges, 9))
    shuffled = edges[:, torch.randperm(30, generator=torch.Generator().manual_seed(0))]
    torch.testing.assert_close(message_layer(s, inner, outer, graph(shuffled, 9)), y, rtol=0, atol=1e-12)
    sources = edges[0, edges[1] == 2]
    by_hand = s[2] + outer @ torch.stack([torch.tanh(inner @ s[i]) for i in sources]).mean(0)
    torch.testing.assert_close(y[2], by_hand)
    assert torch.equal(y[8], s[8])  # nothing flows into node 8


def test_the_printed_divisor_loses_a_third_of_the_update():
    # Two neighbours are listed and divided by 3: two thirds of the mean that the definition above it asks for.
    s, inner, outer = normal(5, 3), normal(4, 3, seed=1), normal(3, 4, seed=2)
    y = message_layer(s, inner, outer, graph(directed((0, 1), (3, 1), (4, 2)), 5))
    printed = s[1] + outer @ (torch.tanh(inner @ s[0]) + torch.tanh(inner @ s[3])) / 3
    torch.testing.assert_close((printed - s[1]) * 1.5, y[1] - s[1])
    torch.testing.assert_close(y[2], s[2] + outer @ torch.tanh(inner @ s[4]))


def test_layers_are_equivariant_and_readouts_invariant():
    edges, x, w = random_edges(), normal(9, 3), normal(3, 3, seed=1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    place = order.argsort()  # the new number of each node
    for layer in (
        lambda x, e: aggregate(x, graph(e, 9), kind="max"),
        lambda x, e: gcn_layer(x, w, gcn_graph(e, n_nodes=9, dtype=torch.float64)),
        lambda x, e: message_layer(x, w, w, graph(e, 9)),
    ):
        y, moved = layer(x, edges), layer(x[order], place[edges])
        torch.testing.assert_close(moved, y[order], rtol=1e-12, atol=1e-12)
        assert not torch.allclose(moved, y)
        for kind in KINDS:
            whole = torch.zeros(9, dtype=torch.int64)
            torch.testing.assert_close(
                readout(moved, whole, n_graphs=1, kind=kind), readout(y, whole, n_graphs=1, kind=kind)
            )


def test_graphs_of_a_batch_do_not_mix():
    edges, batch = batch_graphs([PATH, TRIANGLE], [3, 3])
    x = normal(6, 2)
    y = aggregate(x, graph(edges, 6))
    torch.testing.assert_close(y[:3], aggregate(x[:3], graph(PATH, 3)))
    torch.testing.assert_close(y[3:], aggregate(x[3:], graph(TRIANGLE, 3)))
    for kind, by_hand in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)):
        pooled = readout(x, batch, n_graphs=3, kind=kind)
        torch.testing.assert_close(pooled[1], by_hand(x[3:], 0))
        assert pooled[2].tolist() == [0, 0]


def test_a_graph_without_edges_gives_zeros_and_no_error():
    x, none = normal(3, 2).requires_grad_(), torch.zeros(2, 0, dtype=torch.int64)
    for kind in KINDS:
        y = aggregate(x, graph(none, 3), kind=kind)
        assert torch.equal(y, torch.zeros(3, 2, dtype=torch.float64))
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros(3, 2, dtype=torch.float64))
    assert gcn_graph(none, n_nodes=3).push.to_dense().tolist() == torch.eye(3).tolist()


def test_weights_that_cancel_or_vanish_divide_by_nothing():
    edges = directed((0, 1), (1, 1))
    dense = adjacency_matrix(*normalised_edges(edges, torch.zeros(2), n_nodes=2), n_nodes=2)
    assert dense.tolist() == [[1, 0], [0, 0]]  # node 2 has a loop of weight 0, which stays


# Colour refinement

SIX = ([undirected(*((i, (i + 1) % 6) for i in range(6)))], [6])
TWO_TRIANGLES = ([TRIANGLE, TRIANGLE], [3, 3])


def colours_of(pair, start=None):
    (left, sizes), (right, others) = pair
    edges, _ = batch_graphs([*left, *right], [*sizes, *others])
    colours = refine_colours(edges, start or [0] * edges.max().add(1).item())
    return sorted(colours[: sum(sizes)]), sorted(colours[sum(sizes) :])


def test_a_hexagon_and_two_triangles_keep_one_colour():
    left, right = colours_of((SIX, TWO_TRIANGLES))
    assert left == right
    # One marked node on each side breaks the tie; so does another graph of as many edges.
    left, right = colours_of((SIX, TWO_TRIANGLES), [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    assert left != right
    other = undirected((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4))
    left, right = colours_of((SIX, ([other], [6])))
    assert left != right


def test_networks_split_nodes_exactly_as_colours_do():
    edges = undirected((0, 1), (1, 2), (2, 3), (3, 4), (1, 5))
    g = graph(edges, 6)
    for rounds in range(4):
        colours = refine_colours(edges, [0] * 6, rounds=rounds)
        s = torch.ones(6, 3, dtype=torch.float64)
        for layer in range(rounds):  # sums and a random nonlinear map: injective here
            s = torch.tanh(s + 0.3 * aggregate(s, g) @ normal(3, 3, seed=layer))
        for i, j in permutations(range(6), 2):
            assert torch.allclose(s[i], s[j], atol=1e-12) == (colours[i] == colours[j])
    assert refine_colours(edges, [0] * 6) == refine_colours(edges, [0] * 6, rounds=6)


# Wrong input

X = normal(3, 2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Graph.from_edges(directed((0, 3)), n_nodes=3), "edge_index must hold nodes from 0 to 2, got 3"),
        (lambda: aggregate_edges(X, directed((0, -1))), "edge_index must hold nodes from 0 to 2, got -1"),
        (
            lambda: Graph.from_edges(torch.zeros(3, 5).long(), n_nodes=3),
            r"edge_index must have shape \(2, edges\), sources above targets, got \(3, 5\)",
        ),
        (lambda: Graph.from_edges(PATH, n_nodes=0), "n_nodes must be a whole number of at least 1, got 0"),
        (lambda: Graph.from_edges(PATH.int(), n_nodes=3), "edge_index must have dtype torch.int64, got torch.int32"),
        (lambda: Graph.from_edges(PATH, torch.ones(3), n_nodes=3), r"one entry for each of the 4 edges, got shape \(3,\)"),
        (
            lambda: Graph.from_edges(PATH, torch.tensor([1.0, 2, float("nan"), 1]), n_nodes=3),
            "edge_weight must hold finite numbers, got nan",
        ),
        (
            lambda: Graph.from_edges(PATH, torch.ones(4).requires_grad_(), n_nodes=3),
            "edge_weight must be constant in a Graph, got one with requires_grad=True",
        ),
        (lambda: gcn_graph(PATH, -torch.ones(4), n_nodes=3), "edge_weight must hold numbers of 0 or more, got -1.0"),
        (lambda: aggregate(X, graph(PATH, 4)), r"x must have shape \(4, channels\), one row for each node, got \(3, 2\)"),
        (lambda: aggregate(X.float(), graph(PATH, 3)), "the graph, torch.float64 on cpu, got torch.float32"),
        (lambda: aggregate_edges(X.long(), PATH), "x must hold floating-point numbers, got torch.int64"),
        (lambda: aggregate(X, graph(PATH, 3), kind="median"), r"kind must be one of \['sum', 'mean', 'max'\], got 'median'"),
        (lambda: gcn_layer(X, normal(4, 3), graph(PATH, 3)), r"weight must have shape \(rows, 2\), got \(4, 3\)"),
        (lambda: gcn_layer(X, normal(4, 2).float(), graph(PATH, 3)), "weight must share dtype and device with x"),
        (lambda: message_layer(X, normal(4, 2), normal(3, 4), graph(PATH, 3)), "outer must have 2 rows"),
        (lambda: batch_graphs([], []), "one entry for each graph, at least one, got 0 and 0"),
        (lambda: batch_graphs([PATH], [2]), "edge_index must hold nodes from 0 to 1, got 2"),
        (lambda: readout(X, torch.tensor([0, 0, 2]), n_graphs=2), "batch must hold numbers from 0 to 1, got 0 to 2"),
        (lambda: walk_counts(normal(2, 3), 1), r"adjacency must be a square matrix, got shape \(2, 3\)"),
        (lambda: walk_counts(matrix(PATH), -1), "length must be a whole number of at least 0, got -1"),
        (lambda: refine_colours(PATH, [0, 0]), "edge_index must hold nodes from 0 to 1, got 2"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_making_a_graph_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aggregate(X, graph(PATH, 3))
