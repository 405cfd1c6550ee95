"""Figures, explorer and predictions of lesson 32, guests in two rooms and sparse relaxations."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown

from course_lib.lessons.sparse_socp.contents import lesson
from course_lib.teaching import Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY
from course_lib.theory import power_flow as flow
from course_lib.theory.frustration import (
    Guests,
    best_seating,
    bound_by_rules,
    every_cycle,
    every_square,
    fewest_row_by_row,
    grid,
    odd_squares_only,
    rules,
    seating_of,
    semidefinite_bound,
)
from course_lib.theory.sparse_socp import all_pairs, lattice, socp

GREY = "0.55"
solve = socp


def rng(seed: int) -> torch.Generator:
    """Return a generator with this seed."""
    return torch.Generator().manual_seed(seed)


# Nine guests

EDGES = np.array(  # numbered for the sliders: the border first, then the four inner ones
    [[0, 1], [1, 2], [2, 5], [5, 8], [7, 8], [6, 7], [3, 6], [0, 3], [1, 4], [4, 5], [4, 7], [3, 4]]
)
FACES = ((0, 1, 4, 3), (1, 2, 5, 4), (3, 4, 7, 6), (4, 5, 8, 7))
PARTIES = {"A": (9,), "B": (9, 10, 11, 12), "C": (1, 2, 4, 5, 6, 7, 9)}  # the pairs that quarrel, by their numbers
# The semidefinite bound for nine guests by which of the squares are odd, up to turning; a test computes them.
SDP_BOUNDS = {
    "": 0.0, "1": 0.68158, "2 side by side": 0.92845, "2 across": 1.17157, "3": 1.42101, "4": 1.52786,
}  # fmt: skip


def nine(signs: np.ndarray) -> Guests:
    """Return nine guests with these twelve signs and weights 1."""
    return Guests(9, EDGES, signs, np.ones(12), FACES)


def party(name: str) -> Guests:
    """Return party A, B or C of the hook."""
    return nine(np.where(np.isin(np.arange(1, 13), PARTIES[name]), 1.0, -1.0))


def squares_of(guests: Guests) -> str:
    """Return the key of SDP_BOUNDS."""
    odd = [guests.is_odd(face) for face in FACES]
    if sum(odd) == 2:
        return "2 across" if odd[0] == odd[3] else "2 side by side"
    return str(sum(odd) or "")


def _places(rows: int, columns: int) -> np.ndarray:
    at = np.arange(rows * columns)
    return np.stack([at % columns, -(at // columns)], -1).astype(float)


def _draw_party(axes, guests: Guests, columns: int, *, seats=None, size: float | int = 13, wide=2.5):
    """Draw friends and quarrels; with seats also rooms and the pairs that are unhappy."""
    at = _places(guests.n // columns, columns)
    axes.grid(False)
    axes.set_aspect("equal")
    for sign, look, name in (
        (-1, {"color": GREY, "linestyle": "-"}, "friends"),
        (1, {"color": RED, "linestyle": "--"}, "quarrel"),
    ):
        ends = at[guests.pairs[guests.signs == sign]]
        widths = np.broadcast_to(wide, len(guests.pairs))[guests.signs == sign]
        for place, (end, width) in enumerate(zip(ends, widths, strict=True)):
            axes.plot(*end.T, linewidth=width, zorder=1, label=None if place else name, **look)
    if seats is None:
        axes.plot(*at.T, "o", color=BLACK, markersize=size, markerfacecolor="white", zorder=3)
        return
    for room, look, fill in ((1, "o", BLACK), (-1, "s", "white")):
        label = {1: "in one room", -1: "in the other"}[room]
        axes.plot(*at[seats == room].T, look, color=BLACK, markersize=size, markerfacecolor=fill, zorder=3, label=label)
    i, j = guests.pairs[guests.signs * seats[guests.pairs[:, 0]] * seats[guests.pairs[:, 1]] > 0].T
    if len(i):
        axes.plot(*((at[i] + at[j]) / 2).T, "^", color=PURPLE, markersize=0.75 * size, zorder=4, label="unhappy pair")


@lesson.figure(
    ["party A: one quarrel", "party B: four quarrels", "party C: seven quarrels"], bare=True, grid=(1, 3), size=(9.6, 4.5),
    xlim=(-0.4, 2.4), ylim=(-3.1, 0.4), legend=[{"loc": "lower center", "ncols": 2}, None, None],
)  # fmt: skip
def plot_question(*axes):
    """Draw the three parties."""
    for one, name in zip(axes, PARTIES, strict=True):
        _draw_party(one, party(name), 3)
    return "Three parties of nine guests, with one, four and seven quarrels."


@lesson.figure(
    ["party A: one unhappy pair", "party B: nobody unhappy", "party C: nobody unhappy"], bare=True, grid=(1, 3),
    size=(9.6, 4.9), xlim=(-0.4, 2.4), ylim=(-3.3, 0.4),
    legend=[{"loc": "lower center", "ncols": 2, "fontsize": 9}, None, None],
)  # fmt: skip
def plot_seatings(*axes):
    """Draw the three parties with their best seatings."""
    for one, name in zip(axes, PARTIES, strict=True):
        guests = party(name)
        seats = best_seating(guests)
        _draw_party(one, guests, 3, seats=seats * np.sign(seats.sum()))  # most guests filled
    return "A best seating of each party; one guest in B, and three in C, sit in the other room."


@lesson.explorer
class SeatingExplorer(Explorer):
    """Let pairs of nine guests quarrel, and compare the best seating with two bounds."""

    title = "Nine guests, two rooms"
    summary = (
        "Left nine guests in a square, in a best seating: filled in one room, open in the other. Solid grey lines join "
        "friends, dashed ones a pair that quarrels; purple triangles mark unhappy pairs, and crosses, on request, some "
        "squares. Right the number of unhappy pairs, and two bounds below it."
    )
    first = Slider("pair that turns", "a", "Number of a pair: friends begin to quarrel; 0 for none", 9, 0, 12, 1)
    second = Slider("another pair that turns", "b", "Number of another pair that turns; 0 for none", 0, 0, 12, 1)
    vertex = Slider("guest whose pairs turn", "v", "All pairs of this guest turn; 0 for none", 0, 0, 9, 1)
    marked = Switch("mark some squares", "Mark the squares that the text calls odd further down")
    together = ("first", "second")
    stills = ({"first": 9}, {"first": 0, "vertex": 5}, {"first": 9, "second": 10})
    strip_dpi = 90
    size = (9.0, 4.0)
    layout = panels(
        ["a best seating", "unhappy pairs"], ["column", "two bounds and the best seating"],
        ["row", "number of pairs"], grid=(1, 2), legend=None, xlim=[(-0.45, 2.45), (-0.6, 2.6)],
        ylim=[(-2.45, 0.45), (-0.2, 2.5)], xticks=[(), (0, 1, 2)],
        xticklabels=[(), ("pair by pair", "all together", "best seating")], yticks=[(), (0, 1, 2)],
    )  # fmt: skip
    at = _places(3, 3)

    def compute(self, *, first, second, vertex, marked):
        """Return the signs, a best seating and the three values."""
        signs = -np.ones(12)
        for edge in (first, second):
            if edge:
                signs[edge - 1] *= -1
        if vertex:
            signs[(vertex - 1 == EDGES).any(1)] *= -1
        guests = nine(signs)
        best = best_seating(guests)
        ends = self.at[EDGES]
        nothing = (np.zeros(0), np.zeros(0))
        failed = signs * best[EDGES[:, 0]] * best[EDGES[:, 1]] > 0
        centres = np.array([self.at[list(face)].mean(0) for face in FACES])
        odd = np.array([guests.is_odd(face) for face in FACES])
        values = (0.0, SDP_BOUNDS[squares_of(guests)], float(guests.unhappy(best)))
        return {
            "friends": [tuple(end.T) if sign < 0 else nothing for end, sign in zip(ends, signs, strict=True)],
            "quarrels": [tuple(end.T) if sign > 0 else nothing for end, sign in zip(ends, signs, strict=True)],
            "filled": tuple(self.at[best > 0].T),
            "open": tuple(self.at[best < 0].T),
            "crosses": tuple(centres[odd].T) if marked else nothing,
            "failed": tuple(ends[failed].mean(1).T),
            "dots": np.array(values),
            "labels": [(k, v + 0.1, f"{v:.2f}" if k < 2 else f"{v:.0f}") for k, v in enumerate(values)],
            "said": (int((signs > 0).sum()), int(odd.sum()) if marked else None, values),
            "turned": [f"pair {e}" for e in (first, second) if e] + [f"all pairs of guest {v}" for v in (vertex,) if v],
        }

    def draw(self, left, right):
        """Draw pairs, guests and values, empty."""
        left.set_aspect("equal")
        left.grid(False)
        for k, (x, y) in enumerate(self.at[EDGES].mean(1)):
            shift = (0.06, -0.03) if x == round(x) else (-0.05, -0.19)
            left.text(x + shift[0], y + shift[1], str(k + 1), fontsize=9, color="0.35")
        for k, (x, y) in enumerate(self.at):
            left.text(x - 0.3, y + 0.13, f"g{k + 1}", fontsize=9)
        empty = lambda style, **look: left.plot([], [], style, **look)[0]  # noqa: E731
        return {
            "friends": [empty("-", color=GREY, linewidth=2.5) for _ in EDGES],
            "quarrels": [empty("--", color=RED, linewidth=3) for _ in EDGES],
            "filled": empty("o", color=BLACK, markersize=11, zorder=5),
            "open": empty("s", color=BLACK, markersize=11, markerfacecolor="white", zorder=5),
            "crosses": empty("X", color=SKY, markersize=15),
            "failed": empty("^", color=PURPLE, markersize=9, zorder=6),
            "dots": right.plot(range(3), [0] * 3, "D", color=BLACK, markersize=9)[0],
            "labels": [right.text(0, 0, "", ha="center", fontsize=11) for _ in range(3)],
        }

    def words(self, state):
        """Say how many pairs quarrel and are unhappy, and both bounds."""
        quarrels, odd, (pairwise, together, best) = state["said"]
        many = "1 pair quarrels" if quarrels == 1 else f"{quarrels} pairs quarrel"
        said = (
            f"Turned: {', '.join(state['turned']) or 'nothing'}. {many}. The best seating leaves "
            f"{'nobody' if best == 0 else '1 pair' if best == 1 else f'{best:.0f} pairs'} unhappy. The bound pair by pair "
            f"is {pairwise:.0f}, that of all together {together:.2f}."
        )
        return said if odd is None else f"{said} Marked: {odd} of 4 squares; half, rounded up: {(odd + 1) // 2}."


# One triangle, one condition


@lesson.figure(
    "Three enemies: what each bound allows where X_13 = X_23", "X_13 = X_23", "X_12",
    legend={"loc": "upper left", "bbox_to_anchor": (1.02, 1)},
    size=(8.4, 4.6), xlim=(-1.5, 1.25), ylim=(-1.4, 1.25), aspect="equal",
)  # fmt: skip
def plot_three_enemies(axes):
    """Draw the slice X_13 = X_23 of what cones, a semidefinite matrix and seatings allow for three guests."""
    u = np.linspace(-1, 1, 201)
    axes.fill([-1, 1, 1, -1], [-1, -1, 1, 1], color=ORANGE, alpha=0.2)
    axes.plot([-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1], "--", color=ORANGE, linewidth=2, label="pair by pair")
    axes.fill_between(u, 2 * u**2 - 1, 1, color=BLUE, alpha=0.2)
    axes.plot(u, 2 * u**2 - 1, "-.", color=BLUE, linewidth=2, label="all together")
    axes.fill([-1, 0, 1], [1, -1, 1], color=GREEN, alpha=0.35)
    axes.plot([-1, 0, 1, -1], [1, -1, 1, 1], "-", color=GREEN, linewidth=2.5, label="seatings and averages")
    axes.plot([-1, 1], [1, 1], "o", color=BLACK, markersize=9, zorder=5, label="a seating")
    axes.plot(
        [0], [-1], "s", color=BLACK, markerfacecolor="white", markersize=9, zorder=5, label="average of two seatings"
    )
    look = {"fontsize": 10, "ha": "center", "zorder": 6}
    axes.plot([-1], [-1], "D", color=ORANGE, markersize=9, zorder=5)
    axes.text(-1, -1.2, "0 unhappy", **look)
    axes.plot([-0.5], [-0.5], "D", color=BLUE, markersize=9, zorder=5)
    axes.text(-0.7, -0.54, "0.75", **look)
    axes.text(0.18, -1.2, "1 unhappy", **look)
    axes.text(-0.95, 1.09, "1 unhappy", **look)
    return (
        "A square (pair by pair) contains the region above a parabola (all together), which contains a triangle "
        "(seatings). Fewest unhappy: 0, 0.75 and 1."
    )


# Which pairs matter


@lesson.figure(
    "Every missing entry may be 0", "pair of unknowns, by √(X_ii X_jj)", "X_ij", legend="upper left", size=(7.4, 3.8),
)  # fmt: skip
def plot_completion(axes):
    """Draw what every cone allows on the 4 x 4 lattice, and the entries after completion."""
    found = solve(lattice(4, wrong=0.5, generator=rng(1)))
    X, pairs = found.completed(), all_pairs(16)
    most = np.sqrt(X[pairs[:, 0], pairs[:, 0]] * X[pairs[:, 1], pairs[:, 1]])
    order = np.argsort(most, kind="stable")
    entries = X[pairs[:, 0], pairs[:, 1]][order]
    axes.vlines(
        range(120), -most[order], most[order], color=GREY, linewidth=2, alpha=0.6, label="allowed by its condition"
    )
    on = np.isin(pairs @ [16, 1], found.pairs @ [16, 1])[order]
    axes.plot(np.flatnonzero(on), entries[on], "o", color=BLACK, markersize=6, label="pair with an entry")
    axes.plot(np.flatnonzero(~on), entries[~on], ".", color="0.25", markersize=4, label="other pair: set to 0")
    return "Bars: the range each condition leaves. Pairs with an entry lie at ends of bars, upper or lower, the others at 0."


# Signs


@lesson.figure(
    ["two quarrels: the walk closes", "one quarrel: it comes back wrong"], bare=True, grid=(1, 2), size=(8.4, 3.7),
    xlim=(-0.75, 1.75), ylim=(-0.6, 1.6), legend=[{"loc": "center"}, None],
)  # fmt: skip
def plot_walk(*axes):
    """Draw a walk around a square on which every pair is to be happy."""
    corners = np.array([[0, 0], [0, 1], [1, 1], [1, 0]], dtype=float)
    for one, quarrels in zip(axes, ((1, 2), (1,)), strict=True):
        one.set_aspect("equal")
        one.grid(False)
        room, rooms = 1, [1]
        for step in range(4):
            a, b = corners[step], corners[(step + 1) % 4]
            look = {"color": RED, "linestyle": "--"} if step in quarrels else {"color": GREY, "linestyle": "-"}
            first = step == (1 if step in quarrels else 0)
            label = ("quarrel" if step in quarrels else "friends") if first else None
            one.plot(*np.stack([a, b]).T, linewidth=3, zorder=1, label=label, **look)
            middle = (a + b) / 2
            one.annotate(
                "",
                middle + 0.12 * (b - a),
                middle - 0.12 * (b - a),
                arrowprops={"arrowstyle": "->", "color": BLACK, "lw": 1.8},
            )
            room = -room if step in quarrels else room
            rooms.append(room)
        for room, look, fill in ((1, "o", BLACK), (-1, "s", "white")):
            at = corners[[r == room for r in rooms[:4]]]
            one.plot(*at.T, look, color=BLACK, markersize=17, markerfacecolor=fill, zorder=3)
        one.text(-0.12, -0.42, "start: filled", ha="center", fontsize=10)
        back = rooms[-1] == 1
        one.text(
            1.0, -0.42, "back: filled" if back else "back: should be open", ha="center", fontsize=10,
            color=BLACK if back else PURPLE,
        )  # fmt: skip
    return (
        "Two walks clockwise around four guests. With two quarrels the walk returns to a filled guest; with one it asks for "
        "an open one."
    )


# Rules of squares

SHARES = (0.1, 0.25, 0.5)
FAMILIES = {
    "plane 4 × 4": {"rows": 4, "columns": 4},
    "plane 4 × 5": {"rows": 4, "columns": 5},
    "plane 6 × 6": {"rows": 6, "columns": 6},
    "plane 10 × 10": {"rows": 10, "columns": 10},
    "torus 4 × 4": {"rows": 4, "columns": 4, "wrap": True},
}
BOUNDS = {  # as the picture names them
    "together": "all\ntogether",
    "odd squares": "one rule\nof odd ones",
    "all of odd": "all rules\nof odd ones",
    "every square": "rules of\nevery square",
}


@cache
def found_bounds(family: str, equal: bool, seeds: tuple[int, ...] = (0, 1, 2, 3, 4)) -> dict[str, np.ndarray]:
    """Return the least number of unhappy pairs and each bound on it, (3 shares, seeds); semidefinite ones to 20 guests."""
    found: dict[str, list] = {}
    for share in SHARES:
        for seed in seeds:
            guests = grid(share=share, equal=equal, generator=rng(seed), **FAMILIES[family])
            odd, every = odd_squares_only(guests), every_square(guests)
            row = {"truth": fewest_row_by_row(guests), "odd squares": bound_by_rules(guests, odd)}
            row["all of odd"] = bound_by_rules(
                guests, [rule for one in guests.odd_squares() for rule in rules(guests, one)]
            )
            row["every square"], row["all cycles"] = bound_by_rules(guests, every), every_cycle(guests)[0]
            if equal:
                row["half"] = len(odd) / 2
            if guests.n <= 20:
                row["together"] = semidefinite_bound(guests)
                row["together, odd"] = semidefinite_bound(guests, odd)
                reached = row["every square"] > row["truth"] - 1e-6  # then nothing is left for a semidefinite X
                row["together, every"] = row["every square"] if reached else semidefinite_bound(guests, every)
            for name, value in row.items():
                found.setdefault(name, []).append(value)
    return {name: np.array(values).reshape(len(SHARES), len(seeds)) for name, values in found.items()}


def shares_closed(family: str, equal: bool, *, rounded: bool = False) -> dict[str, np.ndarray]:
    """Return each bound over the truth, (15,); rounded, each is the next whole number."""
    found = found_bounds(family, equal)
    up = (lambda bound: np.ceil(bound - 1e-4)) if rounded else (lambda bound: bound)
    return {name: (up(bound) / found["truth"]).ravel() for name, bound in found.items() if name != "truth"}


@lesson.figure(
    ["weights all 1", "weights from 0 to 1"], "bound", "bound / least unhappy weight", grid=(1, 2), size=(9.6, 4.0),
    ylim=(-0.05, 1.1), xlim=(-0.6, 3.6), xticks=range(4), legend=[None, "lower right"],
)  # fmt: skip
def plot_closing(*axes):
    """Draw each bound over the truth for fifteen lattices of 4 x 4."""
    for one, equal in zip(axes, (True, False), strict=True):
        closed = shares_closed("plane 4 × 4", equal, rounded=equal)
        for place, name in enumerate(BOUNDS):
            spread = np.linspace(-0.3, 0.3, 15)
            for part, (look, share) in enumerate(zip("os^", SHARES, strict=True)):
                cut = slice(5 * part, 5 * part + 5)
                one.plot(
                    place + spread[cut], closed[name][cut], look, color=(BLACK, "0.35", "0.55")[part], markersize=5,
                    markerfacecolor="none", label=f"{share:.0%} quarrel" if place == 0 else None,
                )  # fmt: skip
        one.axhline(1, color=GREY, linewidth=1)
        one.set_xticklabels(BOUNDS.values(), fontsize=9)
    return (
        "Fifteen lattices of 4 x 4. Weights 0 to 1: one rule and all rules of the odd squares scatter alike; those of every "
        "square stand at 1."
    )


def closing_table() -> Markdown:
    """Return the median share of the truth of each bound on three kinds of lattices, and how often of 15 it is reached."""
    header = {
        "half": "half the odd squares",
        "odd squares": "odd squares, one rule",
        "every square": "every square",
        "all cycles": "all cycles",
        "together": "together",
        "together, odd": "together and odd squares",
        "together, every": "together and every square",
    }
    rows = []
    for family in ("plane 6 × 6", "plane 10 × 10", "torus 4 × 4"):
        for equal in (True, False):
            closed = shares_closed(family, equal, rounded=equal)
            cells = [
                f"≈{np.median(closed[name]):.2f} ({int((closed[name] > 1 - 1e-5).sum())})" if name in closed else ""
                for name in header
            ]
            rows.append([f"{family}, weights {'1' if equal else '0 to 1'}", *cells])
    return markdown_table(["lattice", *header.values()], rows)


# A hundred guests


@cache
def hundred(seed: int) -> tuple[Guests, float, np.ndarray]:
    """Return a party of 10 x 10 with weights, a quarter of whose pairs quarrel, its bound and the seating read from it."""
    guests = grid(10, 10, share=0.25, equal=False, generator=rng(seed))
    bound, u, _ = every_cycle(guests)
    return guests, bound, seating_of(guests, u)


@lesson.figure(
    "A best seating of a hundred guests", bare=True, size=(9.4, 6.2), xlim=(-0.6, 9.6), ylim=(-9.6, 0.6),
    legend={"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)},
)  # fmt: skip
def plot_hundred(axes):
    """Draw the seating of a hundred guests that reaches its bound, with its odd squares."""
    guests, _, seats = hundred(0)
    _draw_party(axes, guests, 10, seats=seats, size=8, wide=6 * guests.weights)
    at = _places(10, 10)
    centres = np.array([at[list(square)].mean(0) for square in guests.odd_squares()])
    axes.plot(*centres.T, "X", color=SKY, markersize=12, zorder=2, label="odd square")
    i, j = guests.pairs.T
    chain = guests.signs * seats[i] * seats[j] > 0
    first = True
    for start, end in at[guests.pairs[chain]]:
        across = (end - start)[::-1] * np.array([1, -1]) / 2  # from the middle of one square to that of the other
        middle = (start + end) / 2
        axes.plot(
            *np.stack([middle - across, middle + across]).T, ":", color=PURPLE, linewidth=2.2, zorder=2,
            label="joins two squares" if first else None,
        )  # fmt: skip
        first = False
    return (
        "Lines as thick as their weight. From every odd square a dotted chain leads over unhappy pairs to another one, or "
        "over the border."
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
        "Seven buses. Generators, squares, at 0 with price 1, at 5 with price 2, at 4 with price 3. Loads at 1, 3, 4 and 6. "
        "Six solid lines make a tree; dashed lines 1-3 and 4-6 close loops."
    )


@lesson.figure(
    ["radial: six lines", "meshed: eight lines"], "limit of the line 0-1", "cost", grid=(1, 2),
    legend=["upper right", None], ylim=(1.5, 4.1),
)  # fmt: skip
def plot_flows(*axes):
    """Draw the bound and the cost of a local solution against a line's limit."""
    for one, radial in zip(axes, (True, False), strict=True):
        bound, cost = flow_costs(radial).T
        lines(one, LIMITS, {"cost": cost, "bound by cones": bound}, marker="o")
    return (
        "Cost against the limit of line 0-1. Left, radial: the bound lies on the cost. Right, meshed: they agree from 1 on, "
        "up to 0.006; at 0.2 the cost is more than twice the bound."
    )


# Predictions

ask_parties = lesson.prediction(
    "32.P1",
    "You seat the nine guests of each party as well as you can. In which parties does every seating leave some pair "
    "unhappy?",
    {
        "In A alone": right(
            "In B the middle guest sits in the other room, in C three guests do. A has no such way out."
        ),
        "In C alone": "In C three guests in the other room make everybody happy. Try A by hand.",
        "In B and C": "B is easy: the middle guest sits alone in the other room.",
        "In all three": "B and C are easy: in B the middle guest sits alone in the other room.",
    },
    reveal=plot_seatings,
)

ask_pairs = lesson.prediction(
    "32.P2",
    "A random problem (32.2) has 100 unknowns in a square of 10 by 10, and five constraints. Its matrices have entries of "
    "both signs on the 180 pairs of neighbours. The bound (32.3) has one condition for each of all 4,950 pairs. We drop the "
    "conditions of the other 4,770. What does the bound do?",
    {
        "It falls far.": "Most conditions are gone, but nothing depends on the entries that they held.",
        "It falls, by a few per cent.": "Far pairs matter not a little but not at all: nothing else in the problem sees "
        "their entries.",
        "It stays if no entry is positive, and falls otherwise.": "The signs decide later whether the bound is the minimum. "
        "Here they do not matter.",
        "It stays, whatever the entries are.": right(
            "The entries of the dropped pairs can be set to 0, and satisfy everything."
        ),
    },
    reveal=plot_completion,
)

ask_rules = lesson.prediction(
    "32.P3",
    "Lattices of 4 by 4 guests; the weights of the pairs are random numbers from 0 to 1. You may add rules (32.7) "
    "of one kind to the one rule of each odd square. Which bring the bound nearer to the least weight of unhappy pairs, on "
    "average?",
    {
        "the other seven rules of each odd square": "They seldom change anything: one unhappy pair is what a cheap solution "
        "has there anyway.",
        "the eight rules of each other square": right(
            "If a pair of a square that is not odd is unhappy, a second one must be. Without these rules that costs nothing."
        ),
        "both about equally": "One kind changes next to nothing, the other nearly all.",
        "neither: one rule of each odd square says all": "With weights, the cheapest pair of an odd square is made unhappy, "
        "as if its other square did not mind.",
    },
    reveal=plot_closing,
)

ask_lines = lesson.prediction(
    "32.P4",
    "The line from 0 to 1 carries at most 0.2. Now the two dashed lines are added; nothing else changes. The least cost of "
    "serving all loads was 2.65. What is it now?",
    {
        "1.7": "That is what the bound by cones says, and no voltages reach it.",
        "2.4": "More lines are more ways, but nobody can send power along a way of his choice.",
        "2.65, as before": "New lines change how power divides, also over the old ones.",
        "3.9": right(
            "Power divides over all paths. That of bus 5 alone then fills the line, and the cheap generator stops."
        ),
    },
    reveal=plot_flows,
)

FIGURES = lesson.figures
