"""Figures, explorer and predictions of lesson 13, graph networks."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from torch import Tensor

from course_lib.architectures.graphs import batch_graphs, refine_colours
from course_lib.lessons.graph_networks.communities import (
    ADDED,
    DRAWS,
    GCN,
    HALF,
    NODES,
    REMOVED,
    START,
    TRAINED,
    Communities,
    accuracy,
    blown_up,
    draw,
    guesses,
    readout_alone,
    through,
    without,
)
from course_lib.lessons.graph_networks.contents import lesson
from course_lib.lessons.graph_networks.molecules import BICYCLOPENTYL, DECALIN, undirected
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, compact, small_legend

GREY, PALE = "0.55", "0.92"


TRIANGLE = undirected((1, 2), (2, 3), (1, 3))
CORNERS = [(0, 0), (2, 0), (1, 1.6)]


def _title_inside(axes: Axes) -> None:
    """Put the title of an axes that only holds a drawing inside it, below the edge of the figure."""
    axes.set_title(axes.get_title(), fontsize=9.5, y=0.9)


def _discs() -> np.ndarray:
    """Return a place for each of the 200 nodes: two discs, one for each community."""
    n = np.arange(NODES // 2)
    radius, angle = np.sqrt((n + 0.5) / len(n)), n * math.pi * (3 - math.sqrt(5))
    disc = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    shift = np.array([1.2, 0])
    return np.concatenate([disc - shift, disc + shift])


DISCS = _discs()


def _edges(axes: Axes, graph: Communities) -> None:
    """Draw all edges of a graph as thin grey lines."""
    pairs = graph.adjacency.triu(1).nonzero().numpy()
    edges = LineCollection(DISCS[pairs], colors="0.87", linewidths=0.3, antialiaseds=False, zorder=1)
    axes.add_collection(edges)
    axes.set(xlim=(-2.3, 2.3), ylim=(-1.12, 1.12), aspect="equal")


def _classified(axes: Axes, x: Tensor, graph: Communities, *, edges: bool) -> None:
    """Colour each node by what the classifier says of it; labelled nodes are rings."""
    if edges:
        _edges(axes, graph)
    axes.set(xlim=(-2.3, 2.3), ylim=(-1.12, 1.12), aspect="equal")
    found, known = guesses(x, graph).numpy() > 0, graph.labelled.numpy()
    hidden = graph.hidden.numpy()
    for side, color, marker in ((True, BLUE, "o"), (False, ORANGE, "s")):
        chosen = hidden[found[hidden] == side]
        axes.plot(*DISCS[chosen].T, marker, color=color, markersize=3.4, linestyle="none", zorder=2, label="_said")
    axes.plot(*DISCS[known].T, "o", markersize=4.5, color="white", markeredgecolor=BLACK, linestyle="none", zorder=3)
    compact(axes)


_FOUR = (0, 2, 16, 64)


@lesson.figure(
    ["no layer", "2 layers", "16 layers", "64 layers"],
    size=(7.6, 4.1),
    grid=(2, 2),
    legend=None,
    bare=True,
)
def plot_question(*axes):
    """Draw what a classifier says of each node after 0, 2, 16 and 64 layers."""
    graph = draw(0)
    for one, depth in zip(axes, _FOUR, strict=True):
        x = through(graph, depth)
        _classified(one, x, graph, edges=depth == 0)
        one.set_title(f"{one.get_title()}: {accuracy(x, graph):.2f} right", fontsize=9.5)
    return (
        "Two discs of 100 nodes each, the communities; the first panel shows the edges. 20 nodes are "
        "white, with known labels. Blue circles "
        "and orange squares show the classifier's answers. Without a layer both colours are mixed. After 2 layers the left "
        "disc is blue and the right one orange, with few exceptions. After 16 and 64 layers both discs are mixed again."
    )


@lesson.figure(
    ["64 layers, as they are", "64 layers, the rest blown up"],
    size=(7.6, 2.15),
    grid=(1, 2),
    legend=None,
    bare=True,
)
def plot_rest(*axes):
    """Draw what the classifier says after 64 layers, before and after the common part is taken out."""
    graph = draw(0)
    x = through(graph, 64)
    for one, y in zip(axes, (x, blown_up(without(x, graph.common()))), strict=True):
        _classified(one, y, graph, edges=False)
        one.set_title(f"{one.get_title()}: {accuracy(y, graph):.2f} right", fontsize=9.5)
    return (
        "The 64 layers of the last picture twice: as they are, both discs are mixed; with the common part removed and the "
        "rest blown up, the left disc is blue and the right one orange, with few exceptions."
    )


# Walks


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
    ["1 - 2 - 1 - 2", "1 - 2 - 3 - 2", "1 - 3 - 1 - 2"],
    size=(7.6, 2.5),
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
        _title_inside(one)
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


# The explorer

SUM = "sum"
EXPLORED = (SUM, GCN, HALF, ADDED)
DEEPEST = 80
_STEPS = (0.03, 0.2, 0.4, 0.55, 0.7, 0.85, 1.01)  # finer where many layers leave the shares
BINS = (*(-step for step in reversed(_STEPS)), *_STEPS)
_WARM = ("#fee3bd", "#fdb863", "#e98a1c", "#b35806", "#7f3b08", "#4d2003")
_COLD = ("#dbeaf4", "#a6cde3", "#62a7d0", "#2f7fba", "#16559c", "#08264f")
SHADES = (*reversed(_WARM), "0.88", *_COLD)


@cache
def _explored(form: str) -> tuple[Tensor, Tensor]:
    """Return the matrix of one layer and the vector of length 1 that many layers leave."""
    graph = draw(0)
    if form == SUM:
        return graph.adjacency, torch.linalg.eigh(graph.adjacency)[1][:, -1].abs()
    return graph.layer(), graph.common()


def from_one_node(form: str, node: int, depth: int) -> Tensor:
    """Start one node (from 1) with a 1, all others with 0; return what the nodes hold after so many layers."""
    layer, _ = _explored(form)
    start = torch.zeros(NODES, dtype=torch.float64)
    start[node - 1] = 1
    x = start
    for _ in range(depth):
        y = layer @ x
        x = {SUM: y, GCN: y, HALF: (x + y) / 2, ADDED: (1 - START) * y + START * start}[form]
    return x


@lesson.explorer
class GraphExplorer(Explorer):
    """Start one node with a 1, all others with 0, and see what layer after layer makes of it."""

    title = "A one at one node, layer after layer"
    summary = (
        "Left the graph of 200 nodes, coloured by what they hold, as a share of the largest entry: blue above 0, "
        "orange below, the darker the larger. "
        "Right the same shares against the number of neighbours, each node counted as its own; circles and squares are the "
        "two communities."
    )
    depth = Slider("layers", "k", "How many times the layer is applied", 6, 0, DEEPEST, 1)
    form = Choice("layer", "What one layer does with the neighbours of a node", GCN, EXPLORED)
    node = Slider("start at node", "i", "The node that starts with 1; 1 to 100 are one community", 1, 1, NODES, 1)
    removed = Switch("remove the common part", "Take out the multiple of the pattern that many layers leave")
    together = ("depth", "removed")
    size = (9.2, 2.7)
    dpi = 100
    layout = panels(
        ["what the nodes hold", "the same, node by node"],
        ["place of a node, across", "neighbours, with the node itself"],
        ["place of a node, upwards", "share of the largest entry"],
        grid=(1, 2),
        legend=[None, small_legend("lower right")],
        subplots={"width_ratios": [1.45, 1]},
        xlim=[(-2.3, 2.3), (0, 24)],
        ylim=[(-1.2, 1.2), (-1.15, 1.15)],
        xticks=[[], range(0, 25, 4)],
        yticks=[[], (-1, -0.5, 0, 0.5, 1)],
    )

    def compute(self, *, depth, form, node, removed):
        """Return shares of the largest entry, in bins and beside the degrees, and how they split the communities."""
        graph, (_, pattern) = draw(0), _explored(form)
        held = from_one_node(form, node, depth)
        rest = without(held[:, None], pattern)[:, 0]
        shown = (rest if removed else held).numpy()
        share = shown / np.abs(shown).max()
        side, degrees = graph.community.numpy() > 0, graph.degrees.numpy()
        return {
            "bins": [DISCS[(share >= low) & (share < high)].T for low, high in pairwise(BINS)],
            "first": (degrees[side], share[side]),
            "second": (degrees[~side], share[~side]),
            "ring": ([DISCS[node - 1][0]], [DISCS[node - 1][1]]),
            "above": (int((share[side] > 0).sum()), int((share[~side] > 0).sum())),
            "rest": float(rest.norm() / held.norm()),
            "most": int(np.abs(shown).argmax()) + 1,
            "setting": (depth, form, node, removed),
        }

    def draw(self, left, right_):
        """Draw the edges, and points that move."""
        compact(left, right_)
        _edges(left, draw(0))
        left.set_axis_off()
        look = {"linestyle": "none", "markeredgecolor": "0.3", "markeredgewidth": 0.3, "zorder": 2}
        bins = [left.plot([], [], "o", color=shade, markersize=4.4, **look)[0] for shade in SHADES]
        ring = left.plot([], [], "o", markersize=9, markerfacecolor="none", markeredgecolor=RED, zorder=4)[0]
        right_.axhline(0, color=GREY, linewidth=0.7)
        first = right_.plot([], [], "o", color=BLUE, markersize=3, linestyle="none", label="nodes 1 to 100")[0]
        second = right_.plot([], [], "s", color=ORANGE, markersize=3, linestyle="none", label="nodes 101 to 200")[0]
        return {"bins": bins, "ring": ring, "first": first, "second": second}

    def update(self, artists, state):
        """Set each bin by hand; everything else takes its data."""
        for points, places in zip(artists["bins"], state["bins"], strict=True):
            points.set_data(*places)
        rest = {name: artist for name, artist in artists.items() if name != "bins"}
        super().update(rest, {name: state[name] for name in rest})

    def words(self, state):
        """Say where the largest entry is and how the signs fall, or how large the rest is."""
        (depth, form, node, removed), (first, second) = state["setting"], state["above"]
        layers = f"{form}, {depth} layer{'s' * (depth != 1)} from node {node}"
        if removed:
            return (
                f"{layers}, without the common part: above 0 are {first} of nodes 1 to 100 and {second} of nodes 101 to "
                f"200. The largest entry is at node {state['most']}."
            )
        return (
            f"{layers}: the largest entry is at node {state['most']}. Besides the common part, "
            f"{state['rest']:.1g} of the whole is left."
        )


# Depth


@lesson.figure(
    ["parts along all eigenvectors", "common part, √d", "v₂"],
    ["eigenvalue λ of the direction", "", ""],
    ["size of its part, start = 1", "", ""],
    size=(8.4, 2.4),
    grid=(1, 3),
    legend=None,
    subplots={"width_ratios": [1.15, 1, 1]},
    xlim=[(-0.65, 1.08), (-2.3, 2.3), (-2.3, 2.3)],
    ylim=[(1e-11, 30), (-1.12, 1.12), (-1.12, 1.12)],
    yscale=["log", "linear", "linear"],
)
def plot_directions(sizes, first, second):
    """Draw by how much layers multiply the part along each eigenvector, and the two eigenvectors that last longest."""
    graph = draw(0)
    values, vectors = torch.linalg.eigh(graph.layer())
    looks = ((2, "s", GREEN, (-0.62, 1.5)), (8, "^", ORANGE, (-0.62, 3e-6)), (32, "o", BLUE, (0.6, 1e-9)))
    for depth, marker, color, place in looks:
        look = {"color": color, "markersize": 3, "linestyle": "none", "label": f"{depth} layers"}
        sizes.plot(values, (values**depth).abs(), marker, **look)
        sizes.text(*place, f"{depth} layers", fontsize=8.5, color=color)
    sizes.annotate("λ₁", (1, 1), (-3, -14), textcoords="offset points", fontsize=9)
    sizes.annotate("λ₂", (values[-2], values[-2] ** 32), (6, -3), textcoords="offset points", fontsize=9)
    side = vectors[:, -2] * (vectors[:, -2] @ graph.community).sign()
    for axes, vector in ((first, graph.common()), (second, side)):
        share = (vector / vector.abs().max()).numpy()
        axes.scatter(*DISCS.T, c=share, cmap="PuOr", vmin=-1, vmax=1, s=11, edgecolors="0.3", linewidths=0.25)
        axes.set_aspect("equal")
        axes.set_axis_off()
    compact(sizes, first, second)
    return (
        "Left, on a logarithmic axis: what 2, 8 and 32 layers leave of the part along each of 200 eigenvectors, against its "
        "eigenvalue. At eigenvalue 1 all is left; after 32 layers the part at λ₂ is more than 20 times each smaller one. "
        "Middle and right: the nodes in their two communities, violet above 0, orange below. The common part is violet "
        "everywhere; v₂ is violet in the left disc and orange in the right one, with few exceptions."
    )


_DEEP = (0, 1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128)
_DIGITS = {
    "removed in each layer, float64": (torch.float64, "common"),
    "float64, removed at the end": (torch.float64, ""),
    "float32, removed at the end": (torch.float32, ""),
}


@cache
def _digits() -> dict[str, list[float]]:
    """Return the mean accuracy of the rest over all draws, at each depth."""

    def mean(depth, dtype, remove):
        found = []
        for seed in DRAWS:
            graph = draw(seed)
            x = through(graph, depth, remove=remove, dtype=dtype)
            found.append(accuracy(blown_up(without(x, graph.common().to(dtype))), graph))
        return float(np.mean(found))

    return {name: [mean(depth, *how) for depth in _DEEP] for name, how in _DIGITS.items()}


@lesson.figure(
    "The rest, blown up: mean accuracy of 8 draws",
    "layers k",
    "accuracy",
    size=(6.4, 2.7),
    legend=small_legend("lower left"),
    xlim=(0, 130),
    ylim=(0.47, 1.0),
    xticks=range(0, 129, 16),
)
def plot_digits(axes):
    """Draw how long the rest can be read, in two precisions, removed at the end or in each layer."""
    lines(axes, _DEEP, _digits())
    compact(axes)
    return (
        "Accuracy of the rest against the number of layers. Removed at the end it rises to about 0.96, stays there, and "
        "falls to about 0.7: in float32 after 48 layers, in float64 after 96. Removed in each layer it stays at 0.96."
    )


# What cannot be told apart

_HEXAGONS = [
    (0, 0.5), (0.87, 1), (1.73, 0.5), (1.73, -0.5), (0.87, -1), (0, -0.5), (-0.87, -1), (-1.73, -0.5), (-1.73, 0.5),
    (-0.87, 1),
]  # fmt: skip


def _pentagons() -> list[tuple[float, float]]:
    """Return the places of two rings of five, each with its first atom at the bond between them."""
    turn = [2 * math.pi * n / 5 for n in range(5)]
    left = [(-1.3 + 0.85 * math.cos(a), 0.85 * math.sin(a)) for a in turn]
    return [*left, *((-x, y) for x, y in left)]


def molecules_colours(marked: bool, rounds: int | None = None) -> tuple[list[int], list[int]]:
    """Refine both molecules side by side; `marked`: one atom with three neighbours has a colour of its own in each."""
    both, _ = batch_graphs([DECALIN, BICYCLOPENTYL], [10, 10])
    start = [int(marked), *[0] * 9] * 2
    colours = refine_colours(both, start, rounds=rounds)
    return colours[:10], colours[10:]


def _molecule(axes: Axes, edges: Tensor, places: list, colours: list[int], mark: bool) -> None:
    fills = [
        "#cfe3f5",
        "#f6c9b7",
        "#c9e7cb",
        "#f3e3a1",
        "#d9cdea",
        "#dddddd",
        "#bfe3e0",
        "#f7d4e6",
        "#e6e2c4",
        "#ffffff",
    ]
    _draw_graph(axes, edges, places, colors=[fills[c % 10] for c in colours], names=False, size=13)
    for n, place in enumerate(places):
        axes.text(*place, "abcdefghijklmnopqrst"[colours[n]], ha="center", va="center", fontsize=9, zorder=3)
    if mark:
        axes.plot(*places[0], "o", markersize=17, markerfacecolor="none", markeredgecolor=RED, markeredgewidth=1.8)
    axes.set(xlim=(-2.4, 2.4), ylim=(-1.4, 1.4))
    compact(axes)
    _title_inside(axes)


_PAIR = {"size": (7.2, 2.3), "grid": (1, 2), "legend": None, "bare": True, "aspect": "equal"}


@lesson.figure(["decalin", "bicyclopentyl"], **_PAIR)
def plot_molecules(*axes):
    """Draw both molecules, without colours."""
    for one, edges, places in zip(axes, (DECALIN, BICYCLOPENTYL), (_HEXAGONS, _pentagons()), strict=True):
        _draw_graph(one, edges, places, names=False, size=13)
        one.set(xlim=(-2.4, 2.4), ylim=(-1.4, 1.4))
        compact(one)
        _title_inside(one)
    return (
        "Decalin, two rings of six atoms with a common bond, and bicyclopentyl, two rings of five with a bond between them: "
        "ten atoms and eleven bonds each."
    )


@lesson.figure(["decalin", "bicyclopentyl"], **_PAIR)
def plot_twins(*axes):
    """Draw the colours that refinement ends with on both molecules."""
    found = molecules_colours(marked=False)
    for one, edges, places, colours in zip(
        axes, (DECALIN, BICYCLOPENTYL), (_HEXAGONS, _pentagons()), found, strict=True
    ):
        _molecule(one, edges, places, colours, mark=False)
    return (
        "Both molecules with the colours that refinement ends with. Each has two atoms of one colour, which have three "
        "neighbours, four of a second, next to them, and four of a third."
    )


@lesson.figure(["decalin, one atom marked", "bicyclopentyl, one atom marked"], **_PAIR)
def plot_marked(*axes):
    """Draw the colours after three rounds with one atom marked in each."""
    found = molecules_colours(marked=True, rounds=3)
    for one, edges, places, colours in zip(
        axes, (DECALIN, BICYCLOPENTYL), (_HEXAGONS, _pentagons()), found, strict=True
    ):
        _molecule(one, edges, places, colours, mark=True)
    return "Both molecules after three rounds, one atom with three neighbours marked in each: now some colours differ."


# The closing experiment

DEPTHS = (2, 4, 8, 16, 32)


def trained(form: str, depth: int) -> list[float]:
    """Return the stored accuracy of a trained network on each of six graphs, at its best rate."""
    return measured("deep_graphs", f"{form}, {depth} layers")["accuracy"]


@lesson.figure(
    "Trained networks, 20 labels: mean and range of 6 graphs",
    "layers",
    "accuracy",
    size=(6.8, 3.1),
    legend=small_legend("lower left"),
    xlim=(1.8, 36),
    ylim=(0.3, 1.0),
    xscale="log",
)
def plot_trained(axes):
    """Draw the stored accuracies of trained networks against their depth."""
    for line, form in zip(lines(axes, DEPTHS, list(TRAINED)), TRAINED, strict=True):
        found = np.array([trained(form, depth) for depth in DEPTHS])
        line.set_data(DEPTHS, found.mean(1))
        axes.fill_between(DEPTHS, found.min(1), found.max(1), color=line.get_color(), alpha=0.1, linewidth=0)
    alone = [np.mean(readout_alone(REMOVED, depth)) for depth in DEPTHS]
    axes.plot(DEPTHS, alone, "--", color="0.4", linewidth=1.3, label=f"{REMOVED}, hidden weights random")
    axes.legend(**small_legend("lower left"))
    axes.set_xticks(DEPTHS, [str(depth) for depth in DEPTHS])
    axes.minorticks_off()
    compact(axes)
    return (
        "Accuracy against the number of layers. All five kinds are near 0.95 from 2 to 8 layers. At 16 layers "
        "rescaled only is near 0.5 on every graph, and GCN on all but one; at 32 half kept is, too, while start added and, "
        "a little higher, common part removed stay above 0.9. Common part removed with hidden weights that stay random "
        "rises from 0.84 at 2 layers to 0.95 at 32."
    )


def by_rate(form: str, depth: int) -> dict[str, float]:
    """Return the stored mean accuracy, on the nodes that choose the rate, for each rate."""
    return measured("deep_graphs", f"{form}, {depth} layers")["choosing by rate"]


def trained_table() -> Markdown:
    """Return mean accuracy, lowest and highest of six graphs, for all arms and depths, with the rate that was chosen."""

    def cell(form, depth):
        found, best = trained(form, depth), measured("deep_graphs", f"{form}, {depth} layers")["best rate"]
        return f"{np.mean(found):.2f} ({min(found):.2f} to {max(found):.2f}), {best:g}"

    return markdown_table(("layers", *TRAINED), [(depth, *(cell(form, depth) for form in TRAINED)) for depth in DEPTHS])


# Predictions

rest_prediction = lesson.prediction(
    "13.P1",
    "After 64 layers all channels of the features look alike: each is nearly a multiple of one pattern over the nodes. Take "
    "this common part out of each channel, and multiply what is left by one large number: it is a few billionths of the "
    "features. The same classifier is fitted to it. How many of the hidden labels does it get right on this graph?",
    {
        "About 0.5: what is left is rounding": "In float32 much of it would be. float64 has 16 digits, and a few billionths "
        "leave seven of them.",
        "About 0.6, as without a layer": "The bare features are long averaged away. What is left is what averaging over "
        "neighbours removes most slowly.",
        "About 0.94, as after 2 layers": right(
            "What is left longest is the pattern that differs between the communities: neighbours are mostly of one "
            "community, so averaging over them hardly changes it."
        ),
    },
    reveal=plot_rest,
)

twins_prediction = lesson.prediction(
    "13.P2",
    "Ten carbon atoms, eleven bonds. All atoms start with the same features. In each layer of a network, an atom's new "
    "features come from its own and from the sum, the mean or the maximum of its neighbours', with any weights; at the "
    "end the network adds up all atoms. How many layers does it take to tell the molecules apart?",
    {
        "1": "In the first layer an atom sees how many neighbours it has. Both molecules have two atoms with three, and "
        "eight with two.",
        "3": "A message does not know where it came from: after three layers atoms know how many neighbours their "
        "neighbours' neighbours have, and that agrees.",
        "5": "On the ring of five a message would be back. But it does not know that it is back: it looks like any other.",
        "No number is enough": right(
            "Atom for atom, both molecules show the same surroundings, however far one looks. Only something that differs "
            "between atoms, such as one mark, breaks the tie."
        ),
    },
    reveal=plot_twins,
)

trained_prediction = lesson.prediction(
    "13.P3",
    "Five kinds of networks of 32 layers are trained on the 20 labels of each of six graphs, each kind at its best rate: "
    "GCN; half kept; start added; common part removed, then rescaled; rescaled only. Which of them still get more than "
    "0.9 of the hidden labels right, on average?",
    {
        "Only common part removed": "Start added holds too: with or without weights, each layer adds what averaging takes.",
        "Common part removed and start added": right(
            "Half kept only delays the end, and rescaling blows up all parts alike, the common one as well."
        ),
        "Common part removed, start added and half kept": "Half kept goes blind later than GCN, and still stands at 16 "
        "layers. At 32 it is blind.",
        "All but GCN": "Rescaling keeps the size of the whole. The rest still shrinks against the common part. Half kept "
        "goes blind later, but before 32 layers.",
        "All five: trained weights bring the rest back": "Weights, random or trained, mix the channels and not the nodes: "
        "the common part stays a pattern over nodes.",
    },
    reveal=plot_trained,
)

FIGURES = lesson.figures
