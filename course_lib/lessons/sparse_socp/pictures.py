"""Figures, explorer and predictions of lesson 32, sparsity in conic relaxations."""

from dataclasses import replace
from functools import cache
from time import perf_counter

import numpy as np
import torch

from course_lib.lessons.sparse_socp.contents import lesson
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED
from course_lib.theory import power_flow as flow
from course_lib.theory import sparse_socp as cones
from course_lib.theory.sparse_socp import QCQP, all_pairs, cycle_edges, lattice, lattice_edges, sdp, signed_graph, socp

GREY = "0.55"
solve = socp


def rng(seed: int) -> torch.Generator:
    """Return a generator with this seed."""
    return torch.Generator().manual_seed(seed)


def best_found(problem: QCQP, tries: int = 2) -> float:
    """Return the lowest value that a local solver finds from several random starts."""
    starts = torch.randn(tries, problem.n, generator=rng(0), dtype=torch.float64).numpy()
    return min(float(problem.forms(cones.local_minimum(problem, 0.3 * start))[0]) for start in starts)


@lesson.figure(
    "Twenty problems of 16 unknowns: how good is the bound?", "problem", "(best value found − bound) / |bound|",
    yscale="log", ylim=(1e-9, 1), xticks=range(1, 11), legend="center right", size=(7.0, 3.9),
)  # fmt: skip
def plot_question(axes):
    """Draw the gap of the bound for ten problems of each of two kinds."""
    for wrong, look, name in (
        (0.0, {"color": BLUE, "marker": "o"}, "kind A"),
        (0.5, {"color": RED, "marker": "s"}, "kind B"),
    ):
        problems = [lattice(4, wrong=wrong, generator=rng(seed)) for seed in range(10)]
        bounds = np.array([solve(problem).value for problem in problems])
        gaps = (np.array([best_found(problem) for problem in problems]) - bounds) / np.abs(bounds)
        axes.plot(range(1, 11), np.maximum(gaps, 2e-9), label=name, linestyle="none", markersize=8, **look)
    return (
        "Twenty problems with 16 unknowns, ten of each of two kinds, and by how much the best value that was found lies "
        "above the bound, on a logarithmic axis. For kind A at most about a millionth: the bound is reached. For kind B "
        "some 2 to 20 per cent."
    )


# Which cones


@lesson.figure(
    ["all pairs: 300 cones", "pairs with an entry: 40", "chordal: 77 pairs"], "unknown j", "unknown i",
    grid=(1, 3), size=(10.5, 3.9), xlim=(-0.5, 24.5), ylim=(24.5, -0.5), aspect="equal", xticks=(0, 8, 16, 24),
    yticks=(0, 8, 16, 24),
    legend={"loc": "lower left", "fontsize": 9},
)  # fmt: skip
def plot_patterns(*axes):
    """Draw the pairs that dense cones, sparse cones and a semidefinite completion need on the 5 x 5 lattice."""
    n, own = 25, lattice_edges(5)
    shown = ((all_pairs(n), None), (own, None), (own, cones.chordal_fill(n, own)))
    for one, (pairs, fill) in zip(axes, shown, strict=True):
        one.grid(False)
        one.plot(range(n), range(n), "s", color=GREY, markersize=3.5)
        one.plot(*pairs.T[::-1], "s", color=BLUE, markersize=4.5, label="cone" if fill is None else "entry")
        if fill is not None:
            one.plot(*fill.T[::-1], "x", color=RED, markersize=5, label="fill")
    return (
        "Three upper triangles of a 25 x 25 matrix, the lattice of 5 x 5 unknowns. Left all 300 pairs are marked. In the "
        "middle the 40 pairs of neighbours. Right these 40 and 37 red ones between them, which make the graph chordal, "
        "as a semidefinite completion needs."
    )


@lesson.figure(
    "Every missing entry may be 0", "pair of unknowns, by √(X_ii X_jj)", "X_ij", legend="upper left", size=(7.4, 3.8),
)  # fmt: skip
def plot_completion(axes):
    """Draw what every cone allows on the 4 x 4 lattice, and the entries after completion."""
    found = solve(lattice(4, generator=rng(1)))
    X, pairs = found.completed(), all_pairs(16)
    most = np.sqrt(X[pairs[:, 0], pairs[:, 0]] * X[pairs[:, 1], pairs[:, 1]])
    order = np.argsort(most, kind="stable")
    entries = X[pairs[:, 0], pairs[:, 1]][order]
    axes.vlines(range(120), -most[order], most[order], color=GREY, linewidth=2, alpha=0.6, label="allowed by the cone")
    on = np.isin(pairs @ [16, 1], found.pairs @ [16, 1])[order]
    axes.plot(np.flatnonzero(on), entries[on], "o", color=RED, markersize=6, label="pair with an entry")
    axes.plot(np.flatnonzero(~on), entries[~on], ".", color=BLUE, markersize=5, label="other pair: set to 0")
    return (
        "One vertical bar for each of the 120 pairs of 16 unknowns, from minus to plus the root of X_ii X_jj. On the 24 "
        "pairs with an entry, red dots lie at the upper ends of the bars. On all others a blue dot lies at 0, the middle "
        "of its bar."
    )


@cache
def sizes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lattice sizes, bounds with sparse and with dense cones, and numbers of both cones."""
    ks = np.arange(3, 8)
    found = []
    for k in ks:
        problem = lattice(int(k), generator=rng(1))
        found.append((solve(problem), solve(problem, all_pairs(problem.n))))
    return ks, np.array([[r.value for r in row] for row in found]), np.array([[r.cones for r in row] for row in found])


@lesson.figure(
    ["the bounds are the same", "the numbers of cones are not"], "side k of the lattice", ["bound", "cones"], grid=(1, 2),
    yscale=["linear", "log"], legend=["upper right", "upper left"], xticks=range(3, 8),
)  # fmt: skip
def plot_sizes(left, right):
    """Draw bound and number of cones against the side of the lattice."""
    ks, values, counts = sizes()
    for axes, data in ((left, values), (right, counts)):
        axes.plot(ks, data[:, 1], "-", color=GREY, linewidth=5, label="all pairs")
        axes.plot(ks, data[:, 0], "o", color=BLUE, markersize=7, label="pairs with an entry")
    return (
        "Against the side k of the lattice. Left the bounds: dots for the pairs with an entry lie on the line for all "
        "pairs. Right the number of cones, logarithmic: with an entry there are ever fewer than all pairs, from "
        f"{counts[0, 0]} against {counts[0, 1]} to {counts[-1, 0]} against {counts[-1, 1]:,}."
    )


@lesson.figure(
    "Time of one solve", "unknowns n", "seconds", xscale="log", yscale="log", legend="lower right", size=(6.6, 4.2),
)  # fmt: skip
def plot_times(axes):
    """Measure and draw the time of the three relaxations against the number of unknowns, on this machine."""
    sides = {
        "all X positive semidefinite": (sdp, (3, 4, 5, 6)),
        "cones on all pairs": (lambda p: socp(p, all_pairs(p.n)), (3, 4, 6, 8, 10)),
        "cones on pairs with an entry": (socp, (3, 4, 6, 8, 10, 16, 24, 32)),
    }
    for place, (name, (solver, ks)) in enumerate(sides.items()):
        seconds = []
        for k in ks:
            problem, start = lattice(k, generator=rng(0)), perf_counter()
            solver(problem)
            seconds.append(perf_counter() - start)
        lines(axes, [k * k for k in ks], {name: seconds}, first=place, marker="o", markersize=4)
    return (
        "Seconds against unknowns, both logarithmic, measured when the page is run. The semidefinite relaxation rises "
        "most steeply and ends at 36 unknowns, cones on all pairs end at 100, and cones on pairs with an entry, the lowest, "
        "go on to 1,024."
    )


# Signs


@lesson.figure(
    ["cycle of 4", "cycle of 5"], "edges with a positive sign", "value", grid=(1, 2), legend=["upper left", None],
    ylim=(-11, 1),
)  # fmt: skip
def plot_cycles(*axes):
    """Draw the three values on a cycle against the number of positive signs."""
    for one, k in zip(axes, (4, 5), strict=True):
        found = []
        for positive in range(k + 1):
            wrong = positive % 2
            signs = np.where(np.arange(k) < positive, 1.0, -1.0)
            least = cones.least_by_signs(signed_graph(k, cycle_edges(k), signs))
            found.append((least, -2 * k * np.cos(np.pi / k) if wrong else -2.0 * k, -2.0 * k))
        names = ["best signs of x", "semidefinite bound", "cone bound"]
        lines(one, range(k + 1), dict(zip(names, np.array(found).T, strict=True)), marker="o")
        one.set_xticks(range(k + 1))
    return (
        "Three values on a cycle of four and of five unknowns against the number of positive signs. The cone bound stays at "
        "-8 and -10. The optimum equals it for even numbers of positive signs and lies 4 higher for odd ones; the "
        "semidefinite bound lies between."
    )


FACES = ((0, 1, 4, 3), (1, 2, 5, 4), (3, 4, 7, 6), (4, 5, 8, 7))
EDGES = np.array(  # numbered for the sliders: the border first, then the four inner ones
    [[0, 1], [1, 2], [2, 5], [5, 8], [7, 8], [6, 7], [3, 6], [0, 3], [1, 4], [4, 5], [4, 7], [3, 4]]
)
# The semidefinite bound of the 3 x 3 lattice by which of its squares are frustrated, up to turning; see the lesson's cell.
SDP_VALUES = {
    "": -24.0,
    "1": -21.27366,
    "2 side by side": -20.28620,
    "2 across": -19.31371,
    "3": -18.31598,
    "4": -17.88854,
}


def frustrated_faces(signs: np.ndarray) -> tuple[bool, ...]:
    """Return which of the four squares have an odd number of positive edges."""
    positive = {frozenset(pair) for pair, sign in zip(EDGES.tolist(), signs, strict=True) if sign > 0}
    around = lambda face: zip(face, face[1:] + face[:1], strict=True)  # noqa: E731
    return tuple(sum(frozenset(pair) in positive for pair in around(face)) % 2 == 1 for face in FACES)


def face_class(faces: tuple[bool, ...]) -> str:
    """Return the key of SDP_VALUES."""
    count = sum(faces)
    if count == 2:
        return "2 across" if faces[0] == faces[3] else "2 side by side"
    return str(count or "")


@lesson.explorer
class SignExplorer(Explorer):
    """Turn signs of a 3 x 3 lattice, and look at where a gap opens."""

    title = "Signs on a lattice"
    summary = (
        "Left nine unknowns in a square. Solid blue lines are edges with a negative sign, dashed red ones with a positive "
        "sign. Vertices show the best x: filled for +1, open for -1; orange crosses mark frustrated squares, and triangles "
        "edges that the best x leaves unsatisfied. Right the optimum and both bounds."
    )
    first = Slider("first edge turned", "a", "The number of an edge whose sign turns; 0 for none", 3, 0, 12, 1)
    second = Slider("second edge turned", "b", "The number of another edge whose sign turns; 0 for none", 0, 0, 12, 1)
    vertex = Slider("vertex switched", "v", "All edges at this vertex turn; 0 for none", 0, 0, 9, 1)
    together = ("first", "second")
    size = (8.8, 3.9)
    layout = panels(
        ["signs of the edges", "the optimum and two bounds"], ["column", "bound by cones, by a semidefinite X, best x"],
        ["row", "value"], grid=(1, 2), legend=None, xlim=[(-0.4, 2.4), (-0.6, 2.6)], ylim=[(-2.4, 0.4), (-25.5, -14.5)],
        xticks=[(), (0, 1, 2)], xticklabels=[(), ("cones", "semidefinite", "best x")],
        yticks=[(), tuple(range(-24, -15, 2))],
    )  # fmt: skip
    at = np.stack([np.arange(9) % 3, -(np.arange(9) // 3)], -1).astype(float)

    def compute(self, *, first, second, vertex):
        """Return signs, the best x and the three values."""
        signs = -np.ones(12)
        for edge in (first, second):
            if edge:
                signs[edge - 1] *= -1
        if vertex:
            signs[(vertex - 1 == EDGES).any(1)] *= -1
        faces = frustrated_faces(signs)
        x = 1 - 2.0 * ((np.arange(256)[:, None] >> np.arange(9)) & 1)[:, ::-1]  # all with x_1 = 1
        costs = 2 * (x[:, EDGES[:, 0]] * x[:, EDGES[:, 1]]) @ signs
        best = x[costs.argmin()]
        ends = self.at[EDGES]
        nothing = (np.zeros(0), np.zeros(0))
        failed = signs * best[EDGES[:, 0]] * best[EDGES[:, 1]] > 0
        centres = np.array([self.at[list(face)].mean(0) for face in FACES])
        values = (-24.0, SDP_VALUES[face_class(faces)], float(costs.min()))
        return {
            "good": [tuple(end.T) if sign < 0 else nothing for end, sign in zip(ends, signs, strict=True)],
            "wrong": [tuple(end.T) if sign > 0 else nothing for end, sign in zip(ends, signs, strict=True)],
            "plus": tuple(self.at[best > 0].T),
            "minus": tuple(self.at[best < 0].T),
            "crosses": tuple(centres[list(faces)].T),
            "failed": tuple(ends[failed].mean(1).T),
            "dots": np.array(values),
            "labels": [(k, v + 0.5, f"{v:.2f}") for k, v in enumerate(values)],
            "said": (int((signs > 0).sum()), sum(faces), values),
            "turned": [f"edge {e}" for e in (first, second) if e] + [f"all edges at v{v}" for v in (vertex,) if v],
        }

    def draw(self, left, right):
        """Draw edges, vertices and values, empty."""
        left.set_aspect("equal")
        left.grid(False)
        for k, (x, y) in enumerate(self.at[EDGES].mean(1)):
            left.text(x + 0.06, y + 0.06, str(k + 1), fontsize=8, color=GREY)
        for k, (x, y) in enumerate(self.at):
            left.text(x - 0.2, y + 0.13, f"v{k + 1}", fontsize=9)
        empty = lambda style, **look: left.plot([], [], style, **look)[0]  # noqa: E731
        return {
            "good": [empty("-", color=BLUE, linewidth=2.5) for _ in EDGES],
            "wrong": [empty("--", color=RED, linewidth=3) for _ in EDGES],
            "plus": empty("o", color=BLACK, markersize=11, zorder=5),
            "minus": empty("o", color=BLACK, markersize=11, markerfacecolor="white", zorder=5),
            "crosses": empty("X", color=ORANGE, markersize=15),
            "failed": empty("^", color=BLACK, markersize=8, zorder=6),
            "dots": right.plot(range(3), [0] * 3, "D", color=BLUE, markersize=10)[0],
            "labels": [right.text(0, 0, "", ha="center", fontsize=11) for _ in range(3)],
        }

    def words(self, state):
        """Say how many signs and squares are wrong, and how large the gap is."""
        positive, faces, (bound, semidefinite, best) = state["said"]
        return (
            f"Turned: {', '.join(state['turned']) or 'nothing'}. {positive} of 12 signs are positive and {faces} of 4 "
            f"squares frustrated. Bound by cones {bound:.2f}, by the semidefinite matrix {semidefinite:.2f}; the best x has "
            f"{best:.2f}. " + ("No gap." if best == bound else f"The gap of the cones is {best - bound:.2f}.")
        )


SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5)


@cache
def share_gaps() -> tuple[np.ndarray, np.ndarray]:
    """Return (semidefinite - cone bound) / |cone bound|, (6 shares, 5 seeds); and for vertices switched at random, (5,)."""
    relative = lambda p: (sdp(p).value - (low := socp(p).value)) / abs(low)  # noqa: E731
    gaps = [[relative(lattice(4, wrong=share, generator=rng(seed))) for seed in range(5)] for share in SHARES]
    switched = []
    for seed in range(5):
        s, pairs = np.sign(torch.randn(16, generator=rng(100 + seed)).numpy()).astype(float), lattice_edges(4)
        signs = -s[pairs[:, 0]] * s[pairs[:, 1]]
        switched.append(relative(cones.random_problem(16, pairs, signs=signs, generator=rng(seed))))
    return np.array(gaps), np.array(switched)


@lesson.figure(
    "Wrong signs, and wrong signs that can be switched away", "share of positive signs", "gap to the semidefinite bound",
    legend="upper left", size=(7.0, 4.0), ylim=(-0.01, 0.2),
)  # fmt: skip
def plot_shares(axes):
    """Draw the relative gap against the share of wrong signs, with the switched control."""
    gaps, switched = share_gaps()
    (line,) = lines(axes, SHARES, {"edges chosen at random": gaps.mean(1)}, marker="o")
    axes.fill_between(SHARES, gaps.min(1), gaps.max(1), color=line.get_color(), alpha=0.15)
    axes.plot(
        [0.5] * 5, switched, "s", color=GREEN, markersize=9, markerfacecolor="none", label="vertices switched at random"
    )
    return (
        "The gap between the semidefinite and the cone bound, relative, against the share of positive signs: mean and range "
        "of five lattices of 16 unknowns. It rises from 0 to about 7 per cent at a share of 0.2 and stays near that. Open "
        "squares at about a half: lattices whose positive signs come from switching vertices; their gap is 0."
    )


# Power flow

PLACES = np.array([[0, 1], [1, 2], [1, 0], [2, 0.9], [2, 2], [2, 0], [3, 1]], dtype=float)
LOOPS = ([0, 1, 3, 2], [0, 1, 4, 6, 5, 2])
LIMITS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)


def limited(limit: float | int, *, radial: bool) -> flow.Network:
    """Return the seven buses with another limit on the line 0-1."""
    network = flow.seven_buses(radial=radial)
    return replace(network, limit=np.where(np.arange(len(network.lines)) == 0, limit, network.limit))


@cache
def flow_costs(radial: bool) -> np.ndarray:
    """Return the bound by cones and the cost of a local solution for each of LIMITS, (10, 2)."""
    networks = [limited(limit, radial=radial) for limit in LIMITS]
    return np.array([[flow.flow_socp(network).value, flow.flow_local(network)[0]] for network in networks])


@lesson.figure(
    "Seven buses", bare=True, size=(7.0, 3.9), xlim=(-0.5, 3.5), ylim=(-0.5, 2.7), legend="upper right",
)  # fmt: skip
def plot_network(axes):
    """Draw buses and lines of the network."""
    network = flow.seven_buses(radial=False)
    for place, (i, j) in enumerate(network.lines):
        style = {"color": RED, "linestyle": "--"} if place > 5 else {"color": BLUE, "linestyle": "-"}
        label = {0: "radial network", 6: "closes a loop"}.get(place)
        axes.plot(*PLACES[[i, j]].T, linewidth=2.5, zorder=1, label=label, **style)
    for bus, (x, y) in enumerate(PLACES):
        generates, demand = network.p_most[bus] > 0, network.demand[bus].real
        axes.plot(x, y, "s" if generates else "o", color=BLACK, markersize=18, markerfacecolor="white", zorder=2)
        axes.text(x, y, str(bus), ha="center", va="center", zorder=3)
        said = f"price {network.cost[bus]:g}" if generates else ""
        said += (", " if said and demand else "") + (f"load {demand:g}" if demand else "")
        axes.text(x, y + (0.22 if y > 1.5 else -0.3), said, ha="center", fontsize=9)
    return (
        "Seven buses. Generators, squares, at 0 with price 1, at 5 with price 2, at 4 with price 3 and a load of 0.4. Loads "
        "of 0.3 at bus 1, 0.5 at 3, 0.4 at 6. Six solid lines make a tree: 0-1, 0-2, 1-4, 2-3, 2-5, 5-6. Two dashed lines, "
        "1-3 and 4-6, close loops."
    )


@lesson.figure(
    ["radial: six lines", "meshed: eight lines"], "limit of the line 0-1", "cost", grid=(1, 2),
    legend=["upper right", None], ylim=(1.5, 4.1),
)  # fmt: skip
def plot_flows(*axes):
    """Draw the bound and the cost of a local solution against a line's limit."""
    for one, radial in zip(axes, (True, False), strict=True):
        bound, cost = flow_costs(radial).T
        lines(one, LIMITS, {"local solution": cost, "bound by cones": bound}, marker="o")
    return (
        "Cost against the limit of line 0-1. Left the radial network: the bound lies on the local solution everywhere. "
        "Right the meshed one: they agree for limits of 1 and above; below, the bound hardly rises and the cost does, up to "
        "more than twice the bound at 0.2."
    )


# Predictions

pairs_prediction = lesson.prediction(
    "32.P1",
    "A lattice of 10 x 10 unknowns has 4,950 pairs. Matrices have entries on 180 of them, the neighbours. One condition for "
    "every pair gives a lower bound on the minimum. Now 4,770 of the conditions are dropped: only those of the 180 "
    "neighbours stay. What becomes of the bound?",
    {
        "It falls far: most conditions are gone": "A condition only counts if something depends on its entry X_ij.",
        "It falls a little: far pairs matter less": "They do not matter at all: nothing else in the problem sees their "
        "entries, and 0 always satisfies their condition.",
        "It stays exactly as it is": "The entries of the dropped pairs can be set to 0 afterwards, and then satisfy their "
        "conditions. So whatever the smaller problem reaches, the larger one reaches too.",
        "It rises": "Fewer conditions allow more, so the minimum can only fall or stay.",
    },
    answer="It stays exactly as it is",
    reveal=plot_sizes,
)

signs_prediction = lesson.prediction(
    "32.P2",
    "Four unknowns in a cycle, each between -1 and 1: minimise $2(\\sigma_1x_1x_2 + \\sigma_2x_2x_3 + \\sigma_3x_3x_4 + "
    "\\sigma_4x_4x_1)$. With all signs $\\sigma = -1$ the bound is reached by $x = (1, 1, 1, 1)$. Which change of signs "
    "opens a gap between the bound and the minimum?",
    {
        "One sign becomes +1": "Then no choice of signs of x serves all four edges: going round the cycle, an odd number of "
        "edges ask for a change of sign.",
        "Two signs become +1": "Two changes of sign on the way round bring x back to its beginning: some x serves all four.",
        "All four become +1": "x = (1, -1, 1, -1) serves all four edges: the number of changes is even.",
        "Any of these": "Only an odd number does it. With two or four, some signs of x serve every edge.",
    },
    answer="One sign becomes +1",
    reveal=plot_cycles,
)

FIGURES = lesson.figures
