"""Message passing as a sparse product against PyTorch Geometric, forward and all gradients.

10,000 nodes, 100,000 random edges, 64 channels, float32, CPU time of one thread, every candidate once a round. Less than
1 means faster than the peer that is named after the stroke. `adj_t` is a torch.sparse CSR matrix, as PyG takes it.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Spread, interleave
from course_lib.architectures.graphs import Graph, aggregate, aggregate_edges, gcn_graph, gcn_layer

NODES, EDGES, CHANNELS, ROUNDS = 10_000, 100_000, 64, 31


def _ratios(
    candidates: dict[str, Callable[[], Tensor]], leaves, dy, *, rounds: int = ROUNDS
) -> dict[str, Spread]:
    """Time every candidate against each peer among them."""
    passes = {n: lambda _, f=f: torch.autograd.grad(f(), leaves, dy) for n, f in candidates.items()}
    seconds = {n: np.array(s) for n, s in interleave(passes, rounds=rounds, clock=time.thread_time).items()}
    peers = [name for name in candidates if name.startswith("PyG") or name.startswith("W on edges")]
    return {
        f"{name} / {peer}": Spread.of(seconds[name] / seconds[peer])
        for name in candidates
        for peer in peers
        if name not in peers
    }


def run() -> dict[str, Spread]:
    """Return ratios of CPU time, forward and all gradients."""
    from torch_geometric.nn import GCNConv, SimpleConv

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    x, dy = normal(NODES, CHANNELS).requires_grad_(), normal(NODES, CHANNELS)
    graph = Graph.from_edges(edges, n_nodes=NODES)
    figures = {}
    for kind in ("sum", "mean", "max"):
        peer = SimpleConv(aggr=kind)
        candidates = {
            f"aggregate, {kind}": lambda k=kind: aggregate(x, graph, kind=k),
            f"aggregate_edges, {kind}": lambda k=kind: aggregate_edges(x, edges, kind=k),
            f"PyG edge_index, {kind}": lambda c=peer: c(x, edges),
        }
        if kind != "max":
            candidates[f"PyG adj_t, {kind}"] = lambda c=peer: c(x, graph.pull)
        figures |= _ratios(candidates, (x,), dy, rounds=ROUNDS if kind != "max" else 9)

    weight = (normal(CHANNELS, CHANNELS) / CHANNELS**0.5).requires_grad_()
    normalised = gcn_graph(edges, n_nodes=NODES)
    # The peer keeps its normalised edges too; its weight is ours.
    conv = GCNConv(CHANNELS, CHANNELS, cached=True, bias=False)
    conv.lin.weight = torch.nn.Parameter(weight.detach().clone())
    ours = torch.autograd.grad(gcn_layer(x, weight, normalised), (x, weight), dy)
    theirs = torch.autograd.grad(conv(x, edges), (x, conv.lin.weight), dy)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    passes = {
        "gcn_layer": lambda _: torch.autograd.grad(gcn_layer(x, weight, normalised), (x, weight), dy),
        "GCNConv": lambda _: torch.autograd.grad(conv(x, edges), (x, conv.lin.weight), dy),
    }
    seconds = interleave(passes, rounds=ROUNDS, clock=time.thread_time)
    figures["gcn_layer / PyG GCNConv, edges normalised before"] = Spread.of(
        np.array(seconds["gcn_layer"]) / np.array(seconds["GCNConv"])
    )

    def on_edges() -> Tensor:
        messages = x[edges[0]] @ weight.T
        return torch.zeros_like(x).index_add(0, edges[1], messages)

    candidates = {
        "W on nodes, edge by edge": lambda: aggregate_edges(x @ weight.T, edges),
        "W on nodes, sparse product": lambda: aggregate(x @ weight.T, graph),
        "W on edges": on_edges,
    }
    return figures | _ratios(candidates, (x, weight), dy)
