"""Graph networks: message passing is a sparse matrix product, and its gradient is the transposed one (lesson 13).

Edges are stored as PyTorch Geometric stores them: `edge_index` has two rows, sources above targets, and one column for
each edge; `edge_weight` has one number for each edge, 1 where it is left out. An undirected edge is two columns. Nodes
count from 0. The adjacency matrix has A_ij = weight of the edge i -> j, so node j collects column j of it: A^T X.

Two forms that agree stand here: `aggregate_edges` is the equation, one message for each edge; `aggregate` multiplies by
a sparse matrix that `Graph.from_edges` sorts once, together with its transpose for the way back.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

KINDS = ("sum", "mean", "max")


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {list(KINDS)}, got {kind!r}")


def _check_count(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_edges(edge_index: Tensor, edge_weight: Tensor | None, n_nodes: int, *, read: bool) -> None:
    """Shapes and dtypes; values only where `read` allows it, since a GPU would have to wait for them."""
    _check_count("n_nodes", n_nodes, 1)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"edge_index must have shape (2, edges), sources above targets, got {tuple(edge_index.shape)}"
        )
    if edge_index.dtype != torch.int64:
        raise ValueError(f"edge_index must have dtype torch.int64, got {edge_index.dtype}")
    if edge_weight is not None and tuple(edge_weight.shape) != (edge_index.shape[1],):
        raise ValueError(
            f"edge_weight must have one entry for each of the {edge_index.shape[1]} edges, "
            f"got shape {tuple(edge_weight.shape)}"
        )
    if not read:
        return
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n_nodes:
        outside = edge_index[(edge_index < 0) | (edge_index >= n_nodes)][0]
        raise ValueError(
            f"edge_index must hold nodes from 0 to {n_nodes - 1}, got {int(outside)}; n_nodes is {n_nodes}"
        )
    if edge_weight is not None and not bool(edge_weight.isfinite().all()):
        outside = edge_weight[~edge_weight.isfinite()][0]
        raise ValueError(f"edge_weight must hold finite numbers, got {float(outside)}")


def _check_features(x: Tensor, n_nodes: int) -> None:
    if x.ndim != 2 or x.shape[0] != n_nodes:
        raise ValueError(
            f"x must have shape ({n_nodes}, channels), one row for each node, got {tuple(x.shape)}"
        )
    if not x.is_floating_point():
        raise ValueError(f"x must hold floating-point numbers, got {x.dtype}")


# Message passing, edge by edge


def adjacency_matrix(
    edge_index: Int[Tensor, "two edges"], edge_weight: Float[Tensor, "_"] | None = None, *, n_nodes: int
) -> Float[Tensor, "nodes nodes"]:
    """A_ij = the sum of the weights of all edges i -> j, as a dense matrix, to be read.

    Raises:
        ValueError: `edge_index` or `edge_weight` has another shape or dtype, or an entry that is no node.
    """
    _check_edges(edge_index, edge_weight, n_nodes, read=edge_index.device.type == "cpu")
    weight = _ones(edge_index) if edge_weight is None else edge_weight
    return weight.new_zeros(n_nodes, n_nodes).index_put(tuple(edge_index), weight, accumulate=True)


def aggregate_edges(
    x: Num[Tensor, "nodes channels"],
    edge_index: Int[Tensor, "two edges"],
    edge_weight: Float[Tensor, "_"] | None = None,
    *,
    kind: str = "sum",
) -> Float[Tensor, "nodes channels"]:
    """y_j = the sum, mean or maximum of w_ij x_i over all edges i -> j (13.4, 13.7), to be read.

    The mean divides by the number of edges, whatever their weights. A node without incoming edges gets 0. Gradients,
    with respect to the weights too, are those of autograd; of equal messages each has an equal share in a maximum's.

    Raises:
        ValueError: shapes or dtypes do not fit, `kind` is unknown, or an entry of `edge_index` is no node.
    """
    _check_kind(kind)
    _check_features(x, len(x))
    _check_edges(edge_index, edge_weight, len(x), read=x.device.type == "cpu")
    (source, target), y = edge_index, torch.zeros_like(x)
    messages = x[source] if edge_weight is None else x[source] * edge_weight[:, None].to(x.dtype)
    if kind == "max":
        return y.scatter_reduce(0, target[:, None].expand_as(messages), messages, "amax", include_self=False)
    y = y.index_add(0, target, messages)
    return y if kind == "sum" else y / _in_degree(target, len(x), x.dtype).clamp(min=1)[:, None]


def max_gradient(
    dy: Float[Tensor, "nodes channels"],
    x: Float[Tensor, "nodes channels"],
    edge_index: Int[Tensor, "two edges"],
) -> Float[Tensor, "nodes channels"]:
    """dL/dx of the maximum over incoming edges: dy_j goes to the largest message, in equal shares to equal ones.

    Raises:
        ValueError: shapes or dtypes do not fit, or an entry of `edge_index` is no node.
    """
    return _max_gradient(dy, x, aggregate_edges(x, edge_index, kind="max"), edge_index, None)


def _max_gradient(dy: Tensor, x: Tensor, y: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    (source, target), weight = edge_index, 1 if edge_weight is None else edge_weight[:, None]
    largest = (x[source] * weight == y[target]).to(x.dtype)
    winners = torch.zeros_like(x).index_add(0, target, largest)
    share = (dy / winners.clamp(min=1))[target]
    return torch.zeros_like(x).index_add(0, source, largest * share * weight)


def _ones(edge_index: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Weights of 1, in torch's default dtype unless told otherwise."""
    return torch.ones(edge_index.shape[1], dtype=dtype or torch.get_default_dtype(), device=edge_index.device)


def _in_degree(target: Tensor, n_nodes: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(n_nodes, dtype=dtype, device=target.device).index_add(
        0, target, torch.ones_like(target, dtype=dtype)
    )


# Message passing as a sparse product


@dataclass(frozen=True)
class Graph:
    """Edges sorted once, by target for the way forward and by source for the way back; make it by `from_edges`.

    `pull` is A^T and `push` is A, both sparse in CSR format; edges that stand several times are added up there.
    """

    n_nodes: int
    pull: Tensor
    push: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None

    @classmethod
    def from_edges(
        cls,
        edge_index: Int[Tensor, "two edges"],
        edge_weight: Float[Tensor, "_"] | None = None,
        *,
        n_nodes: int,
        dtype: torch.dtype | None = None,
    ) -> "Graph":
        """Check the edges and sort them both ways. This reads values: do it once, before training.

        `dtype` is that of the node features, by default that of the weights, or torch's default. The weights are
        constants here: for learned ones take `aggregate_edges`.

        Raises:
            ValueError: a shape or dtype does not fit, an entry is no node or not finite, or the weights ask for a gradient.
        """
        _check_edges(edge_index, edge_weight, n_nodes, read=True)
        if edge_weight is not None and edge_weight.requires_grad:
            raise ValueError(
                "edge_weight must be constant in a Graph, got one with requires_grad=True; "
                "use aggregate_edges for learned weights, or pass edge_weight.detach()"
            )
        weight = _ones(edge_index) if edge_weight is None else edge_weight
        weight = weight.to(dtype or weight.dtype)
        given = None if edge_weight is None else weight
        pull, push = (_csr(edges, weight, n_nodes) for edges in (edge_index.flip(0), edge_index))
        return cls(n_nodes, pull, push, edge_index, given)

    def to(self, target: torch.dtype | torch.device | str) -> "Graph":
        """Return the same graph for features of another dtype, or on another device."""
        weight = None if self.edge_weight is None else self.edge_weight.to(target)
        edges = self.edge_index if isinstance(target, torch.dtype) else self.edge_index.to(target)
        return replace(
            self, pull=self.pull.to(target), push=self.push.to(target), edge_index=edges, edge_weight=weight
        )

    def __deepcopy__(self, memo: dict) -> "Graph":
        """Return the graph itself: nothing in it changes, and torch cannot copy a sparse matrix in this way."""
        return self

    def in_degree(self) -> Float[Tensor, " nodes"]:
        """Return the number of edges that end in each node, whatever their weights."""
        return _in_degree(self.edge_index[1], self.n_nodes, self.pull.dtype)


def _csr(edges: Tensor, weight: Tensor, n_nodes: int) -> Tensor:
    """The sparse matrix with these rows, columns and values; equal places are added up."""
    matrix = torch.sparse_coo_tensor(edges, weight, (n_nodes, n_nodes), check_invariants=False).coalesce()
    with warnings.catch_warnings():  # "CSR is in beta", once for each process
        warnings.simplefilter("ignore", UserWarning)
        return matrix.to_sparse_csr()


def _multiply(matrix: Tensor, x: Tensor) -> Tensor:
    """The product in the features' own precision; on a CPU, 16-bit numbers are multiplied as 32-bit ones."""
    narrow = x.device.type == "cpu" and x.element_size() == 2
    with torch.autocast(x.device.type, enabled=False):
        return (matrix.float() @ x.float()).to(x.dtype) if narrow else matrix @ x


def _without_autocast(layer: Callable) -> Callable:
    """Run a layer in the precision of its inputs: autocast would hand the sparse product another dtype."""

    @wraps(layer)
    def run(x, *args, **kwargs):
        with torch.autocast(x.device.type, enabled=False):
            return layer(x, *args, **kwargs)

    return run


class _Product(torch.autograd.Function):
    """A^T X with A at hand for the way back, which is the same function with the two exchanged."""

    @staticmethod
    def forward(ctx, x, pull, push):
        ctx.matrices = pull, push
        return _multiply(pull, x.contiguous())

    @staticmethod
    def backward(ctx, dy):
        pull, push = ctx.matrices
        return _Product.apply(dy, push, pull), None, None


class _Maximum(torch.autograd.Function):
    """The largest message, and its gradient by hand in the place of autograd's slower way to equal shares."""

    @staticmethod
    def forward(ctx, x, edge_index, edge_weight):
        y = aggregate_edges(x, edge_index, edge_weight, kind="max")
        ctx.save_for_backward(x, y, edge_index, edge_weight)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return _max_gradient(dy, *ctx.saved_tensors), None, None


def aggregate(
    x: Float[Tensor, "nodes channels"], graph: Graph, *, kind: str = "sum"
) -> Float[Tensor, "nodes channels"]:
    """Y = A^T X, dX = A dY (13.4, 13.8): as `aggregate_edges`, without a row in memory for each edge.

    The mean is the sum over the number of incoming edges. A maximum is no matrix product: it goes edge by edge, and its
    gradient cannot be differentiated again; those of sum and mean can, any number of times.

    Raises:
        ValueError: x has not one row for each node, another dtype or device than the graph, or `kind` is unknown.
    """
    _check_kind(kind)
    _check_features(x, graph.n_nodes)
    if (x.dtype, x.device) != (graph.pull.dtype, graph.pull.device):
        raise ValueError(
            f"x must share dtype and device with the graph, {graph.pull.dtype} on {graph.pull.device}, "
            f"got {x.dtype} on {x.device}; graph.to(...) converts a graph"
        )
    if kind == "max":
        return _Maximum.apply(x, graph.edge_index, graph.edge_weight)
    y = _Product.apply(x, graph.pull, graph.push)
    return y if kind == "sum" else y / graph.in_degree().clamp(min=1)[:, None]


# Layers


def normalised_edges(
    edge_index: Int[Tensor, "two edges"], edge_weight: Float[Tensor, "_"] | None = None, *, n_nodes: int
) -> tuple[Int[Tensor, "two more"], Float[Tensor, " more"]]:
    """The edges of D^-1/2 (A + I) D^-1/2 (13.1), D the sums of the columns of A + I: weights into each node.

    As in PyTorch Geometric, a self-loop that is there keeps its weight and gets no second one: A_ii = 2 stays 2, it does
    not become 3. (Its place is at the end; where it stood, an edge of weight 0 stays, so that no size depends on values.)
    Several loops at one node add up here; PyTorch Geometric keeps one of them.
    Ranges: weights of 0 or more. A node whose weights sum to 0 gets the factor 0.

    Raises:
        ValueError: shapes or dtypes do not fit, or (on a CPU) an entry is no node, or a weight is not finite.

    Source: Kipf and Welling, arXiv:1609.02907, equation 2.
    """
    _check_edges(edge_index, edge_weight, n_nodes, read=edge_index.device.type == "cpu")
    weight = _ones(edge_index) if edge_weight is None else edge_weight
    (source, target), nodes = edge_index, torch.arange(n_nodes, device=edge_index.device)
    at_loop = (source == target).to(weight.dtype)
    here = weight.new_zeros(n_nodes).index_add(0, target, at_loop)  # how many loops each node has
    loop = weight.new_zeros(n_nodes).index_add(0, target, at_loop * weight) + (here == 0).to(weight.dtype)
    edges = torch.cat([edge_index, torch.stack([nodes, nodes])], dim=1)
    weight = torch.cat([weight * (1 - at_loop), loop])
    degree = weight.new_zeros(n_nodes).index_add(0, edges[1], weight)
    scale = torch.where(degree > 0, degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt(), 0)
    return edges, scale[edges[0]] * weight * scale[edges[1]]


def gcn_graph(
    edge_index: Int[Tensor, "two edges"],
    edge_weight: Float[Tensor, "_"] | None = None,
    *,
    n_nodes: int,
    dtype: torch.dtype | None = None,
) -> Graph:
    """The graph of `normalised_edges`, sorted once, for `gcn_layer`.

    Raises:
        ValueError: as `Graph.from_edges`, and for negative weights, whose square root would be needed.
    """
    _check_edges(edge_index, edge_weight, n_nodes, read=True)
    if edge_weight is not None and bool((edge_weight < 0).any()):
        raise ValueError(f"edge_weight must hold numbers of 0 or more, got {float(edge_weight.min())}")
    weight = _ones(edge_index, dtype) if edge_weight is None else edge_weight.to(dtype or edge_weight.dtype)
    edges, weight = normalised_edges(edge_index, weight, n_nodes=n_nodes)
    return Graph.from_edges(edges, weight, n_nodes=n_nodes)


def _check_weight(name: str, weight: Tensor, x: Tensor, channels: int) -> None:
    if weight.ndim != 2 or weight.shape[1] != channels:
        raise ValueError(f"{name} must have shape (rows, {channels}), got {tuple(weight.shape)}")
    if (weight.dtype, weight.device) != (x.dtype, x.device):
        raise ValueError(
            f"{name} must share dtype and device with x, {x.dtype} on {x.device}, got {weight.dtype} on {weight.device}"
        )


@_without_autocast
def gcn_layer(
    x: Float[Tensor, "nodes _"],
    weight: Float[Tensor, "_ _"],
    graph: Graph,
    bias: Float[Tensor, "_"] | None = None,
) -> Float[Tensor, "nodes channels_out"]:
    """Y = A^T X W^T + b with the weights of `gcn_graph` in A (13.1), as PyTorch Geometric's GCNConv.

    The product with A goes where the rows are shorter: after W if W makes them shorter, before it otherwise.
    Shapes: `weight` is W, channels out x channels in, as in torch.nn.Linear; `bias` has one entry for each channel out.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together.
    """
    _check_features(x, graph.n_nodes)
    _check_weight("weight", weight, x, x.shape[1])
    shorter_after = weight.shape[0] <= weight.shape[1]
    y = aggregate(x @ weight.T, graph) if shorter_after else aggregate(x, graph) @ weight.T
    return y if bias is None else y + bias


def gcn_gradients(
    dy: Float[Tensor, "nodes channels_out"],
    x: Float[Tensor, "nodes channels_in"],
    weight: Float[Tensor, "channels_out channels_in"],
    graph: Graph,
) -> tuple[Float[Tensor, "nodes channels_in"], Float[Tensor, "channels_out channels_in"]]:
    """With G = A dY: dX = G W and dW = G^T X (13.8), by hand; the gradient of b is the sum of dY over the nodes."""
    pulled_back = _multiply(graph.push, dy)
    return pulled_back @ weight, pulled_back.T @ x


@_without_autocast
def message_layer(
    states: Float[Tensor, "nodes d"],
    inner: Float[Tensor, "_ _"],
    outer: Float[Tensor, "_ _"],
    graph: Graph,
) -> Float[Tensor, "nodes d"]:
    """S_j + W1 mean_i tanh(W2 S_i) over the edges i -> j: a residual update, the same in any order of edges.

    tanh(W2 S) is computed once for each node, not for each edge, and W1 is applied to the mean.
    Shapes: `inner` is W2, r x d; `outer` is W1, d x r.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together.
    """
    _check_features(states, graph.n_nodes)
    _check_weight("inner", inner, states, states.shape[1])
    _check_weight("outer", outer, states, inner.shape[0])
    if outer.shape[0] != states.shape[1]:
        raise ValueError(
            f"outer must have {states.shape[1]} rows, as states has channels, got {outer.shape[0]}"
        )
    return states + aggregate(torch.tanh(states @ inner.T), graph, kind="mean") @ outer.T


# Several graphs at once


def batch_graphs(
    edge_indices: Sequence[Tensor], sizes: Sequence[int]
) -> tuple[Int[Tensor, "two edges"], Int[Tensor, " nodes"]]:
    """Put graphs side by side: one `edge_index` with shifted nodes, and for each node the number of its graph.

    Shapes: one `edge_index` (2, edges) and one number of nodes for each graph.

    Raises:
        ValueError: there is no graph, the lists differ in length, or a graph has a wrong `edge_index`.
    """
    if not edge_indices or len(edge_indices) != len(sizes):
        raise ValueError(
            f"edge_indices and sizes need one entry for each graph, at least one, got {len(edge_indices)} and {len(sizes)}"
        )
    first = 0
    shifted = []
    for edge_index, size in zip(edge_indices, sizes, strict=True):
        _check_edges(edge_index, None, size, read=edge_index.device.type == "cpu")
        shifted.append(edge_index + first)
        first += size
    batch = [torch.full((size,), n, device=shifted[0].device) for n, size in enumerate(sizes)]
    return torch.cat(shifted, dim=1), torch.cat(batch)


def readout(
    x: Float[Tensor, "nodes channels"], batch: Int[Tensor, "_"], *, n_graphs: int, kind: str = "sum"
) -> Float[Tensor, "graphs channels"]:
    """The sum, mean or maximum of the rows of each graph; a graph without nodes gets 0.

    `batch` holds the number of its graph for each node, from 0 to n_graphs - 1.

    Raises:
        ValueError: `batch` has not one entry for each row of x or names another graph, or `kind` is unknown.
    """
    _check_kind(kind)
    _check_count("n_graphs", n_graphs, 1)
    _check_features(x, len(batch))
    if batch.dtype != torch.int64:
        raise ValueError(f"batch must have dtype torch.int64, got {batch.dtype}")
    if x.device.type == "cpu" and len(batch) and not 0 <= int(batch.min()) <= int(batch.max()) < n_graphs:
        raise ValueError(
            f"batch must hold numbers from 0 to {n_graphs - 1}, got {int(batch.min())} to {int(batch.max())}"
        )
    y = x.new_zeros(n_graphs, x.shape[1])
    if kind == "max":
        return y.scatter_reduce(0, batch[:, None].expand_as(x), x, "amax", include_self=False)
    y = y.index_add(0, batch, x)
    return y if kind == "sum" else y / _in_degree(batch, n_graphs, x.dtype).clamp(min=1)[:, None]


# What a graph network can count, and what it cannot tell apart


def walk_counts(adjacency: Float[Tensor, "nodes _"], length: int) -> Float[Tensor, "nodes nodes"]:
    """A^k: entry i, j is the number of walks of k edges from i to j; nodes and edges may come back (13.5).

    Raises:
        ValueError: the matrix is not square, or `length` is below 0.
    """
    _check_count("length", length, 0)
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"adjacency must be a square matrix, got shape {tuple(adjacency.shape)}")
    return torch.linalg.matrix_power(adjacency, length)


def simple_path_counts(edge_index: Int[Tensor, "two edges"], length: int, *, n_nodes: int) -> list[list[int]]:
    """The number of paths of `length` edges from i to j that visit no node twice, one by one: for small graphs.

    Raises:
        ValueError: `edge_index` is wrong, or `length` is below 0.
    """
    _check_edges(edge_index, None, n_nodes, read=True)
    _check_count("length", length, 0)
    neighbours = [[] for _ in range(n_nodes)]
    for i, j in edge_index.T.tolist():
        neighbours[i].append(j)
    paths = [(i,) for i in range(n_nodes)]
    for _ in range(length):
        paths = [(*path, j) for path in paths for j in neighbours[path[-1]] if j not in path]
    counts = [[0] * n_nodes for _ in range(n_nodes)]
    for path in paths:
        counts[path[0]][path[-1]] += 1
    return counts


def refine_colours(
    edge_index: Int[Tensor, "two edges"], colours: Sequence[int], *, rounds: int | None = None
) -> list[int]:
    """Colour refinement, 1-WL: the new colour stands for the old one and the multiset of incoming old ones (13.6).

    Two nodes keep one colour exactly if no network can tell them apart after as many layers, each of which sees a node and
    the multiset of its neighbours (sum, mean, maximum). GCN sees the neighbours' degrees, too: put them into the first
    colours. Without `rounds` this goes on as long as colours split.
    Compare graphs by refining them side by side, as `batch_graphs` puts them.
    `colours` has one whole number for each node, what is known of it at the start.

    Raises:
        ValueError: `edge_index` names a node without a colour, or `rounds` is below 0.

    Source: Xu et al., How powerful are graph neural networks?, arXiv:1810.00826.
    """
    _check_edges(edge_index, None, len(colours), read=True)
    _check_count("rounds", len(colours) if rounds is None else rounds, 0)
    incoming = [[] for _ in colours]
    for i, j in edge_index.T.tolist():
        incoming[j].append(i)
    names = {colour: n for n, colour in enumerate(sorted(set(colours)))}
    colours = [names[colour] for colour in colours]
    for _ in range(len(colours) if rounds is None else rounds):
        seen = [(c, tuple(sorted(colours[i] for i in incoming[j]))) for j, c in enumerate(colours)]
        names = {view: n for n, view in enumerate(sorted(set(seen)))}
        if len(names) == len(set(colours)) and rounds is None:
            return colours
        colours = [names[view] for view in seen]
    return colours
