"""Figures, explorer and predictions of lesson 10, graph networks."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.architectures.graphs import adjacency_matrix, batch_graphs, normalised_edges, refine_colours
from course_lib.lessons.graph_networks.contents import lesson
from course_lib.measured import quote
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED

GREY, PALE = "0.55", "0.92"


def undirected(*pairs: tuple[int, int]) -> Tensor:
    """Return an edge_index with both directions of each pair; nodes count from 1, as in the text."""
    both = [*pairs, *((j, i) for i, j in pairs)]
    return torch.tensor(both).reshape(-1, 2).T - 1


# Four nodes that all know each other, and a ring of four, joined by one edge.
BRIDGE = undirected((1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4), (4, 5), (5, 6), (5, 7), (6, 8), (7, 8))
PLACES = [(0, 1), (1, 2), (1, 0), (2, 1), (3.4, 1), (4.4, 2), (4.4, 0), (5.4, 1)]
TRIANGLE = undirected((1, 2), (2, 3), (1, 3))
CORNERS = [(0, 0), (2, 0), (1, 1.6)]
HEXAGON = undirected(*((i, i % 6 + 1) for i in range(1, 7)))
RING = [(math.cos(n * math.pi / 3), math.sin(n * math.pi / 3)) for n in range(6)]
TWO_TRIANGLES, _ = batch_graphs([TRIANGLE, TRIANGLE], [3, 3])


def gcn_matrix(edge_index: Tensor, n_nodes: int) -> Tensor:
    """Return D^-1/2 (A + I) D^-1/2 as a dense matrix in float64."""
    edges, weight = normalised_edges(edge_index, torch.ones(edge_index.shape[1]).double(), n_nodes=n_nodes)
    return adjacency_matrix(edges, weight, n_nodes=n_nodes)


def _draw_graph(axes: Axes, edges: Tensor, places: list, *, colors=None, names=True, size=19) -> None:
    """Draw an undirected graph: a line for each pair, a circle with its number for each node."""
    for i, j in edges.T.tolist():
        if i < j:
            axes.plot(*zip(places[i], places[j], strict=True), "-", color=GREY, linewidth=1.2, zorder=1, label="_edge")
    for n, place in enumerate(places):
        fill = PALE if colors is None else colors[n]
        axes.plot(*place, "o", markersize=size, markerfacecolor=fill, markeredgecolor=BLACK, zorder=2, label="_node")
        if names:
            axes.text(*place, str(n + 1), ha="center", va="center", fontsize=10, zorder=3)


@lesson.figure(
    ["a graph", "start: its own name", "after 2 layers", "after 40 layers"],
    "channel",
    "node",
    size=(11.4, 3.2),
    grid=(1, 4),
    legend=None,
    subplots={"width_ratios": [1.5, 1, 1, 1]},
    xticks=range(1, 9),
    yticks=range(1, 9),
)
def plot_question(left, *axes):
    """Draw the features of eight nodes after 0, 2 and 40 layers, each column divided by its largest entry."""
    _draw_graph(left, BRIDGE, PLACES)
    left.set_axis_off()
    left.set(xlim=(-0.5, 5.9), ylim=(-0.8, 2.8))
    layer = gcn_matrix(BRIDGE, 8)
    for one, depth in zip(axes, (0, 2, 40), strict=True):
        features = torch.linalg.matrix_power(layer, depth)
        extent = (0.5, 8.5, 8.5, 0.5)
        one.grid(False)
        one.imshow(
            (features / features.amax(0)).numpy(),
            cmap="Blues",
            vmin=0,
            vmax=1,
            extent=extent,
            interpolation="nearest",
            aspect="auto",
        )
    return (
        "A graph of eight nodes: nodes 1 to 4 are all joined, 5, 6, 8, 7 form a ring, and an edge joins 4 and 5. Then three "
        "tables of nodes and channels, each column divided by its largest entry. At the start "
        "there are ones on the diagonal and zeros elsewhere. After 2 layers each node holds entries from its "
        "surroundings; nodes 1 to 4 and nodes 5 to 8 form two blocks. After 40 layers all columns look nearly alike: "
        "whatever node a channel started from, it shows the same pattern over the nodes."
    )


# The explorer

LAYERS = 10
START = 0.2  # the share of the start that one form adds again in each layer
FORMS = ("sum", "mean", "GCN", "GCN + residual", "GCN + start")


def layer_matrix(form: str, edge_index: Tensor, n_nodes: int) -> Tensor:
    """Return the matrix that one layer of a form multiplies features by (the form with the start: without it)."""
    adjacency = adjacency_matrix(edge_index, torch.ones(edge_index.shape[1]).double(), n_nodes=n_nodes)
    if form == "sum":
        return adjacency.T
    if form == "mean":
        return adjacency.T / adjacency.sum(0)[:, None]
    gcn = gcn_matrix(edge_index, n_nodes).T
    return {"GCN": gcn, "GCN + residual": (torch.eye(n_nodes) + gcn) / 2, "GCN + start": (1 - START) * gcn}[form]


def propagate(form: str, x: Tensor, depth: int, edge_index: Tensor) -> Tensor:
    """Return the features after 0, 1, ..., depth layers of a form without weights, stacked."""
    layer, found = layer_matrix(form, edge_index, len(x)), [x]
    for _ in range(depth):
        found.append(layer @ found[-1] + (START * x if form == "GCN + start" else 0))
    return torch.stack(found)


def limit_pattern(form: str, edge_index: Tensor, n_nodes: int) -> Tensor:
    """Return the leading eigenvector of one layer, with length 1; it has no negative entry here."""
    values, vectors = torch.linalg.eig(layer_matrix(form, edge_index, n_nodes))
    leading = vectors[:, values.real.argmax()].real
    return leading.abs() / leading.norm()


def angle(x: Tensor, pattern: Tensor) -> Tensor:
    """Return the angle in degrees between each row of x and a pattern of length 1."""
    across = (x - (x @ pattern)[..., None] * pattern).norm(dim=-1)
    return torch.rad2deg(torch.atan2(across, (x @ pattern).abs()))


@cache
def _all_starts(form: str) -> tuple[Tensor, Tensor]:
    """Return what the nodes hold and the angle to the limit pattern, for every depth and every start."""
    held = propagate(form, torch.eye(8).double(), LAYERS, BRIDGE).mT
    return held, angle(held, limit_pattern("GCN" if form == "GCN + start" else form, BRIDGE, 8))


def measured_table() -> Markdown:
    """Return what `make bench graphs` stored of sums, means, maxima and a whole layer against PyG."""

    def row(call: str, how: str) -> tuple[str, ...]:
        peers = ["edge_index", "adj_t"] if how != "max" else ["edge_index"]
        return tuple(quote("graphs", f"{call}, {how} / PyG {peer}, {how}") for peer in peers)

    layer = quote("graphs", "gcn_layer / PyG GCNConv, edges normalised before")
    rows = [
        ("sum, `aggregate`", *row("aggregate", "sum")),
        ("mean, `aggregate`", *row("aggregate", "mean")),
        ("maximum, `aggregate`", *row("aggregate", "max"), "not measured"),
        ("sum, `aggregate_edges`", *row("aggregate_edges", "sum")),
        ("`gcn_layer` against `GCNConv`, edges normalised before", layer, "not measured"),
    ]
    return markdown_table(("", "against `edge_index`", "against `adj_t`"), rows)


@lesson.explorer
class WalkExplorer(Explorer):
    """Start one node with a 1, all others with 0, and see what layer after layer makes of it."""

    title = "A one at one node, layer after layer"
    summary = (
        "Left a graph of eight nodes: nodes 1 to 4 are all joined, nodes 5, 6, 8, 7 form a ring, and an edge joins "
        "4 and 5. "
        "The number at a node is what it holds; the circle grows with it. In the middle the matrix "
        "of all starts: row i is the start at node i, framed for the chosen one, each entry divided by the largest. "
        "Right the "
        "angle between the features and the pattern that the form tends to, against the number of layers; "
        "for the form with the start, the pattern of GCN."
    )
    depth = Slider("layers", "k", "How many times the layer is applied", 3, 0, LAYERS, 1)
    form = Choice("layer", "What one layer does with the neighbours of a node", "sum", FORMS)
    node = Slider("start at node", "i", "The node that starts with 1", 1, 1, 8, 1)
    together = ("depth", "form")
    size = (11.6, 3.9)
    layout = panels(
        ["what each node holds", "all starts at once", "angle to the limit pattern"],
        ["framed in red: the start", "node j", "layers k"],
        ["graph", "start i", "degrees"],
        grid=(1, 3),
        legend=[None, None, "upper right"],
        subplots={"width_ratios": [1.45, 0.9, 1.15]},
        xlim=[(-0.6, 6.0), (0.5, 8.5), (0, LAYERS)],
        ylim=[(-0.7, 2.9), (8.5, 0.5), (0, 100)],
        xticks=[[], range(1, 9), range(0, LAYERS + 1, 2)],
        yticks=[[], range(1, 9), range(0, 91, 30)],
    )

    def compute(self, *, depth, form, node):
        """Return features of all starts, and the angles of the chosen one for every form."""
        starts = _all_starts(form)[0][depth]
        held = starts[node - 1]
        curves = [_all_starts(name)[1][:, node - 1].numpy() for name in FORMS]
        here = curves[FORMS.index(form)]
        return {
            "held": held.numpy(),
            "values": [f"{v:.0f}" if form == "sum" else f"{v:.2f}" for v in held.tolist()],
            "matrix": (starts / starts.max()).numpy(),
            "frame": (0.5, node - 0.5, 8, 1),
            "ring": ([PLACES[node - 1][0]], [PLACES[node - 1][1]]),
            "curves": curves,
            "point": ([depth], [here[depth]]),
            "angles": (float(here[0]), float(here[depth])),
            "settings": (depth, form, node),
        }

    def draw(self, left, middle, right):
        """Draw the graph, an empty matrix, five curves and what moves."""
        _draw_graph(left, BRIDGE, PLACES, size=15)
        ring = left.plot([], [], "o", markersize=27, markerfacecolor="none", markeredgecolor=RED, markeredgewidth=2)[0]
        halos = [left.plot(*place, "o", color=BLUE, alpha=0.3, markeredgewidth=0, zorder=1.5)[0] for place in PLACES]
        values = [left.text(x, y + (0.42 if y else -0.42), "", ha="center", va="center", fontsize=9) for x, y in PLACES]
        look = {"cmap": "Blues", "vmin": 0, "vmax": 1, "interpolation": "nearest"}
        middle.grid(False)
        image = middle.imshow(np.zeros((8, 8)), extent=(0.5, 8.5, 8.5, 0.5), aspect="auto", **look)
        frame = middle.add_patch(Rectangle((0, 0), 8, 1, fill=False))
        frame.set(edgecolor=RED, linewidth=2)
        curves = lines(right, np.arange(LAYERS + 1), FORMS)
        point = right.plot([], [], "o", color=RED, markersize=9, zorder=5)[0]
        return {
            "halos": halos, "ring": ring, "values": values, "matrix": image, "frame": frame, "curves": curves,
            "point": point,
        }  # fmt: skip

    def update(self, artists, state):
        """Set the halos' sizes by hand; everything else takes its data."""
        for halo, value in zip(artists["halos"], state["held"] / state["held"].max(), strict=True):
            halo.set_markersize(15 + 22 * value)
        rest = {name: artist for name, artist in artists.items() if name != "halos"}
        super().update(rest, {name: state[name] for name in rest})

    def words(self, state):
        """Say what the best reached node holds, and the angle."""
        (k, form, i), (first, now), held = state["settings"], state["angles"], state["held"]
        most = int(held.argmax())
        if form == "sum":
            what = f"walk{'s' * (round(held[most]) != 1)} of {k} edge{'s' * (k != 1)}"
            said = f"{held[most]:.0f} {what} from node {i} to node {most + 1}, the largest number"
        else:
            said = f"{form}, k = {k}: of the 1 at node {i}, the most is at node {most + 1}, {held[most]:.3f}"
        return f"{said}. Angle to the limit pattern: {now:.1f} degrees, at the start {first:.1f}."


# Walks


@lesson.figure(
    ["1 - 2 - 1 - 2", "1 - 2 - 3 - 2", "1 - 3 - 1 - 2"],
    size=(9.6, 3.3),
    grid=(1, 3),
    legend=None,
    bare=True,
    xlim=(-0.5, 2.5),
    ylim=(-0.6, 2.1),
    aspect="equal",
)
def plot_walks(*axes):
    """Draw the three walks of three edges from node 1 to node 2 of a triangle."""
    for one, walk in zip(axes, ((1, 2, 1, 2), (1, 2, 3, 2), (1, 3, 1, 2)), strict=True):
        _draw_graph(one, TRIANGLE, CORNERS)
        for step, (i, j) in enumerate(pairwise(walk)):
            (x, y), (u, v) = CORNERS[i - 1], CORNERS[j - 1]
            bend = (0.22, 0.22, 0.5)[step] if walk == (1, 2, 1, 2) else 0.22
            look = {
                "arrowstyle": "-|>",
                "color": (BLUE, ORANGE, GREEN)[step],
                "linewidth": 1.8,
                "shrinkA": 11,
                "shrinkB": 11,
            }
            one.annotate("", (u, v), (x, y), arrowprops={**look, "connectionstyle": f"arc3,rad={bend}"})
            out = bend / 2 + 0.09 * (1 if bend > 0 else -1)
            middle = ((x + u) / 2 + (v - y) * out, (y + v) / 2 - (u - x) * out)
            one.text(
                *middle, str(step + 1), color=look["color"], fontsize=11, fontweight="bold", ha="center", va="center"
            )
    return (
        "Three triangles with the three walks of three edges from node 1 to node 2, their steps numbered: 1, 2, 1, 2; "
        "1, 2, 3, 2; and 1, 3, 1, 2. Each of them visits a node twice: with three nodes, three edges cannot do "
        "otherwise."
    )


FLOW = torch.tensor([[0, 1, 1, 3], [1, 2, 3, 2]])
FLOW_PLACES = [(0, 1.4), (1.3, 1.4), (2.6, 1.4), (1.3, 0)]


@lesson.figure(
    ["edges i → j", "Aᵀ: row j collects node j", "X", "Y = AᵀX"],
    size=(10.4, 3.2),
    grid=(1, 4),
    legend=None,
    subplots={"width_ratios": [2.2, 2, 0.8, 0.8]},
    bare=True,
)
def plot_product(graph, matrix, before, after):
    """Draw one message-passing layer as arrows and as a product, with node 3 marked."""
    for i, j in FLOW.T.tolist():
        color = RED if j == 2 else GREY
        look = {"arrowstyle": "-|>", "color": color, "linewidth": 2, "shrinkA": 12, "shrinkB": 12}
        graph.annotate("", FLOW_PLACES[j], FLOW_PLACES[i], arrowprops=look)
    _draw_graph(graph, torch.zeros(2, 0).long(), FLOW_PLACES, colors=[PALE, PALE, "#f6c9b7", PALE])
    graph.set(xlim=(-0.5, 3.1), ylim=(-0.6, 2.0))
    adjacency = adjacency_matrix(FLOW, n_nodes=4)
    x = torch.tensor([[5.0], [7.0], [11.0], [2.0]])
    for axes, table in ((matrix, adjacency.T), (before, x), (after, adjacency.T @ x)):
        rows, cols = table.shape
        for (r, c), value in np.ndenumerate(table.numpy()):
            marked = r == 2 and axes is not before
            read = axes is before and adjacency[r, 2]
            axes.text(
                c, r, f"{value:g}" if value or axes is not matrix else "·", ha="center", va="center", fontsize=13,
                color=RED if marked or read else BLACK, fontweight="bold" if marked or read else "normal",
            )  # fmt: skip
        axes.set(xlim=(-0.7, cols - 0.3), ylim=(rows - 0.3, -0.7))
        for side in (-0.6, cols - 0.4):
            axes.plot([side, side], [-0.6, rows - 0.4], "-", color=BLACK, linewidth=1, label="_bracket")
    return (
        "Left a directed graph with the edges 1 to 2, 2 to 3, 2 to 4 and 4 to 3. Right of it the transposed adjacency "
        "matrix, the features 5, 7, 11, 2 of the nodes, and their product 0, 5, 9, 7. Marked in red: node 3, the "
        "edges that "
        "end in it, its row with ones in the columns 2 and 4, and the sum 7 + 2 = 9."
    )


# Depth


def start_features(n_nodes: int = 8, channels: int = 16) -> Tensor:
    """Return random features of mean 0 and variance 1, one column for each channel."""
    return torch.randn(n_nodes, channels, generator=torch.Generator().manual_seed(10), dtype=torch.float64)


def rest_ratio(x: Tensor) -> Tensor:
    """Return, for features (..., 8 nodes, channels), the norm of what is no multiple of GCN's pattern over the "
    "rest's."""
    pattern = limit_pattern("GCN", BRIDGE, 8)
    along = pattern @ x
    return (x - pattern[:, None] * along[..., None, :]).norm(dim=(-2, -1)) / along.norm(dim=-1)


@lesson.figure(
    "What differs between channels, 16 random ones",
    "layers k",
    "size of the rest / size of the common pattern",
    size=(7.4, 4.4),
    legend="lower left",
    yscale="log",
    ylim=(1e-3, 20),
)
def plot_depth(axes):
    """Draw the part of the features beside the limit pattern against depth, for three forms, beside powers."""
    curves = {form: rest_ratio(propagate(form, start_features(), 80, BRIDGE)).numpy() for form in FORMS[2:]}
    lines(axes, None, curves)
    second = float(torch.linalg.eigvalsh(gcn_matrix(BRIDGE, 8))[-2])
    ks = np.arange(10, 81)
    for rate, name, form in ((second, "λ₂ᵏ", "GCN"), ((1 + second) / 2, "((1 + λ₂)/2)ᵏ", "GCN + residual")):
        power = 0.6 * curves[form][80] * rate ** (ks - 80.0)
        axes.plot(ks, power, color=BLACK, linewidth=0.9, linestyle=":", label=f"_{name}")
        axes.annotate(name, (50, power[40]), (-3, -13), textcoords="offset points", fontsize=10, ha="right")
    return (
        "The size of what differs from the common pattern, relative to the pattern, against the number of layers, "
        f"logarithmic. Without residual it falls like λ₂ to the k, with λ₂ = {second:.3f}, to "
        f"{curves['GCN'][-1]:.1g} after 80 "
        f"layers; with the residual it falls too, like (1 + λ₂)/2 to the k, to {curves['GCN + residual'][-1]:.2g}; "
        f"with a "
        f"part of the start added in each layer it stays at {curves['GCN + start'][-1]:.2g}."
    )


# What cannot be told apart


def _colour_figure(axes: Axes, edges: Tensor, places: list, colours: list[int], mark: int | None) -> None:
    fills = ["#cfe3f5", "#f6c9b7", "#c9e7cb", "#f3e3a1", "#d9cdea", "#dddddd", "#bfe3e0"]
    _draw_graph(axes, edges, places, colors=[fills[c] for c in colours], names=False)
    for n, place in enumerate(places):
        axes.text(*place, "abcdefg"[colours[n]], ha="center", va="center", fontsize=11, zorder=3)
    if mark is not None:
        axes.plot(*places[mark], "o", markersize=25, markerfacecolor="none", markeredgecolor=RED, markeredgewidth=2)
    axes.set(xlim=(-1.45, 1.45), ylim=(-1.4, 1.4))


@lesson.figure(
    ["hexagon", "two triangles", "hexagon, one node marked", "triangles, one node marked"],
    size=(11.4, 3.2),
    grid=(1, 4),
    legend=None,
    bare=True,
    aspect="equal",
)
def plot_twins(*axes):
    """Draw the colours that refinement ends with on both graphs, without and with a marked node."""
    sides = [(-1.1, -0.7), (-0.25, 0), (-1.1, 0.7), (1.1, -0.7), (0.25, 0), (1.1, 0.7)]
    both, _ = batch_graphs([HEXAGON, TWO_TRIANGLES], [6, 6])
    for first, start in ((0, [0] * 12), (2, [1, 0, 0, 0, 0, 0] * 2)):
        colours, mark = refine_colours(both, start), 0 if first else None
        _colour_figure(axes[first], HEXAGON, RING, colours[:6], mark)
        _colour_figure(axes[first + 1], TWO_TRIANGLES, sides, colours[6:], mark)
    return (
        "A hexagon and two triangles, six nodes and six edges each, every node with two neighbours. Without marks "
        "all twelve "
        "nodes keep one colour, a. With one node marked in each graph, the refined colours differ: the "
        "hexagon has four colours, by the distance from the mark, and the triangles have three: the marked node, "
        "its two "
        "neighbours, and the triangle without a mark."
    )


# Predictions

walks_prediction = lesson.prediction(
    "10.P1",
    "Three nodes, all joined: a triangle with the adjacency matrix $A$, zeros on its diagonal and ones elsewhere. "
    "Node 1 "
    "starts with the number 1, the others with 0. In each layer every node replaces its number by the sum of its "
    "neighbours' numbers. What does node 2 hold after three layers?",
    {
        "0": "So it would be if it counted paths that visit no node twice: three nodes have none of three edges. "
        "The layers "
        "count walks, which may come back.",
        "1": "That is its number after one layer, and after two. The third layer adds up node 1, which holds 2, and "
        "node 3, which holds 1.",
        "2": "That is what node 1 holds then. Layer by layer the nodes hold (0, 1, 1), (2, 1, 1), (2, 3, 3).",
        "3": "Layer by layer the nodes hold (0, 1, 1), (2, 1, 1), (2, 3, 3). Each unit is one walk of three edges.",
    },
    answer="3",
    reveal=plot_walks,
)

depth_prediction = lesson.prediction(
    "10.P2",
    "Forty layers bring all channels of the figure above to nearly one pattern. Now each layer keeps half of what "
    "was there: "
    "it returns $\\frac12(X + \\text{layer}(X))$, a residual connection. What do the channels tend to when more and "
    "more of these "
    "layers follow?",
    {
        "Each channel keeps a pattern of its own": "A residual slows the way down, and does not change where it "
        "leads: a "
        "difference that shrinks by the factor λ in a layer now shrinks by (1 + λ)/2. Only a part of the start, added "
        "anew in each layer, keeps the channels apart.",
        "The same pattern as without, after more layers": "A difference that shrank by the factor λ now shrinks by "
        "(1 + λ)/2: "
        "slower, but to the same end.",
        "Another pattern, common to all": "The pattern that one layer returns as it is, the residual layer returns "
        "as it is too.",
    },
    answer="The same pattern as without, after more layers",
    reveal=plot_depth,
)

twins_prediction = lesson.prediction(
    "10.P3",
    "A ring of six nodes, and two separate triangles: six nodes and six edges each. All nodes start with the same "
    "features. "
    "A network of message-passing layers, then the sum over all nodes. How many layers does it take to tell the two "
    "graphs apart?",
    {
        "1": "In the first layer every node adds up two equal neighbours, in both graphs: nothing differs.",
        "3": "Three layers reach round the triangle, but a message does not know where it came from: two equal "
        "neighbours look "
        "alike, whether they are joined or not.",
        "No number is enough": "Every node sees two equal neighbours, in each layer anew. Only something that "
        "differs between "
        "nodes, such as one mark, breaks the tie.",
    },
    answer="No number is enough",
    reveal=plot_twins,
)

FIGURES = lesson.figures
