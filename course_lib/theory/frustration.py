"""Guests in two rooms: bounds on the pairs that stay unhappy, and the rules of cycles that tighten them (lesson 32).

Guest i gets the room x_i = 1 or -1. A pair of friends (sign -1) wants one room, a pair that quarrels (sign 1) wants two. In
physics this is a spin glass, on the complete graph with quarrels only it is Max-Cut. The number of unhappy pairs on a cycle
is odd where that of its quarrels is: each such parity is forbidden its wrong patterns by linear inequalities, the cycle
inequalities of the cut polytope (Barahona and Mahjoub, 1986), which describe it where no K5 can be contracted out of the
graph, so on every planar one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import dijkstra

from course_lib.theory.sparse_socp import QCQP, sdp, symmetric, wrong_signs

Cycle = tuple[int, ...]
Rule = tuple[Float[np.ndarray, " E"], float]


@dataclass(frozen=True)
class Guests:
    """n guests; `pairs` (E, 2) that know each other, with `signs` (E,), 1 for a quarrel, and `weights` (E,) above 0.

    `squares` names some cycles of the graph, each by its guests in order.

    Raises:
        ValueError: shapes do not fit, a sign is not 1 or -1, a weight is not above 0, or a square walks along no pair.
    """

    n: int
    pairs: Int[np.ndarray, "E 2"]
    signs: Float[np.ndarray, " E1"]
    weights: Float[np.ndarray, " E2"]
    squares: tuple[Cycle, ...] = ()

    def __post_init__(self):
        if not len(self.pairs) == len(self.signs) == len(self.weights):
            raise ValueError(
                f"pairs, signs and weights must be as many, got {len(self.pairs)}, {len(self.signs)}, {len(self.weights)}"
            )
        if not (np.abs(self.signs) == 1).all() or not (self.weights > 0).all():
            raise ValueError("signs must be 1 or -1 and weights above 0")
        places = {frozenset(pair): place for place, pair in enumerate(self.pairs.tolist())}
        object.__setattr__(self, "_places", places)
        for square in self.squares:
            self.around(square)

    def around(self, cycle: Cycle) -> list[int]:
        """The places of the pairs along a cycle."""
        steps = zip(cycle, cycle[1:] + cycle[:1], strict=True)
        try:
            return [self._places[frozenset(step)] for step in steps]
        except KeyError:
            raise ValueError(f"the cycle {cycle} must walk along pairs that know each other") from None

    def unhappy(self, x: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "..."] | float:
        """U(x) = sum over the pairs of w_ij (1 + sign_ij x_i x_j) / 2 (32.1)."""
        i, j = self.pairs.T
        return (1 + self.signs * x[..., i] * x[..., j]) / 2 @ self.weights

    def is_odd(self, cycle: Cycle) -> bool:
        """Whether an odd number of pairs on the cycle quarrel: it is frustrated."""
        return bool((self.signs[self.around(cycle)] > 0).sum() % 2)

    def odd_squares(self) -> list[Cycle]:
        """The squares that are frustrated."""
        return [square for square in self.squares if self.is_odd(square)]

    def problem(self) -> QCQP:
        """U less its constant sum w / 2, as min x^T Q x with x_i^2 <= 1; Q_ij = sign_ij w_ij / 4."""
        units = [sparse.csr_array(([1.0], ([i], [i])), shape=(self.n, self.n)) for i in range(self.n)]
        Q = symmetric(self.n, self.pairs, np.zeros(self.n), self.signs * self.weights / 4)
        return QCQP([Q, *units], np.ones(self.n))


def grid(
    rows: int, columns: int, *, share: float | int = 0.0, equal: bool = True, wrap: bool = False,
    generator: torch.Generator,
) -> Guests:  # fmt: skip
    """Guests on a lattice, of whose pairs a random share quarrel; weights 1, or uniform in (0, 1).

    `wrap` also makes neighbours of both ends of every row and column: a torus, which is not planar.

    Raises:
        ValueError: a lattice that wraps has a side below 3, or share is not in [0, 1].
    """
    if wrap and min(rows, columns) < 3:
        raise ValueError(f"a lattice that wraps must have sides of at least 3, got {rows} x {columns}")
    at = np.arange(rows * columns).reshape(rows, columns)
    right, below = np.roll(at, -1, 1), np.roll(at, -1, 0)
    wide, high = (columns, rows) if wrap else (columns - 1, rows - 1)
    across = np.stack([at, right], -1)[:, :wide].reshape(-1, 2)
    down = np.stack([at, below], -1)[:high].reshape(-1, 2)
    pairs = np.sort(np.concatenate([across, down]), 1)
    faces = np.stack([at, right, np.roll(right, -1, 0), below], -1)[:high, :wide].reshape(-1, 4)
    signs = wrong_signs(rows * columns, pairs, share, generator=generator)
    weights = torch.rand(len(pairs), generator=generator, dtype=torch.float64).numpy()
    return Guests(
        rows * columns,
        pairs,
        signs,
        np.ones(len(pairs)) if equal else weights,
        tuple(map(tuple, faces.tolist())),
    )


def complete(n: int) -> Guests:
    """n guests who all quarrel: the unhappy pairs are those that a maximum cut of the complete graph leaves."""
    pairs = np.stack(np.triu_indices(n, 1), -1)
    return Guests(n, pairs, np.ones(len(pairs)), np.ones(len(pairs)))


def everybody(n: int, *, generator: torch.Generator) -> Guests:
    """n guests who all know each other; each pair quarrels with probability 1/2, weights uniform in (0, 1)."""
    pairs = np.stack(np.triu_indices(n, 1), -1)
    signs = np.where(torch.rand(len(pairs), generator=generator).numpy() < 0.5, 1.0, -1.0)
    return Guests(n, pairs, signs, torch.rand(len(pairs), generator=generator, dtype=torch.float64).numpy())


def best_seating(guests: Guests) -> Float[np.ndarray, " n"]:
    """Rooms with the least U, by trying all with x_1 = 1.

    Raises:
        ValueError: there are more than 20 guests.
    """
    if guests.n > 20:
        raise ValueError(f"at most 20 guests can be seated by trying, got {guests.n}")
    x = 1 - 2 * ((np.arange(2 ** (guests.n - 1), dtype=np.int32)[:, None] >> np.arange(guests.n)) & 1).astype(
        np.int8
    )
    total = np.zeros(len(x))
    for (i, j), sign, weight in zip(guests.pairs, guests.signs, guests.weights, strict=True):
        total += weight * (x[:, i] * x[:, j] == sign)
    return x[total.argmin()].astype(float)


def fewest_unhappy(guests: Guests) -> float:
    """The least U over all seatings, by trying."""
    return float(guests.unhappy(best_seating(guests)))


def fewest_row_by_row(guests: Guests) -> float:
    """The least U of all seatings, by a dynamic programme over the rooms of the last `width` guests.

    No pair may be further apart in the numbering than `width`: one row of a lattice, a layer of one of three dimensions.

    Raises:
        ValueError: some pair is more than 20 apart.
    """
    i, j = np.sort(guests.pairs, 1).T
    width = int((j - i).max())
    if width > 20:
        raise ValueError(f"pairs may be at most 20 apart in the numbering, got {width}")
    room, cost = np.array([1.0, -1.0]), np.zeros((2,) * width)
    along = lambda axis: room.reshape([2 if k == axis else 1 for k in range(width + 1)])  # noqa: E731
    for guest in range(guests.n):
        cost = np.repeat(cost[..., None], 2, -1)  # the last axis is the new guest's room
        for before, sign, weight in zip(
            i[j == guest], guests.signs[j == guest], guests.weights[j == guest], strict=True
        ):
            cost = cost + weight * (1 + sign * along(before - guest + width) * along(width)) / 2
        cost = cost.min(0)  # the guest who leaves the window has no more pairs
    return float(cost.min())


def annealed(
    guests: Guests, *, chains: int = 30, sweeps: int = 300, generator: torch.Generator
) -> Float[np.ndarray, " n"]:
    """The best seating that chains of single moves find, at a temperature that falls from 2 to 0.05 mean weights.

    A search: it may find a best seating, and cannot know.
    """
    i, j = guests.pairs.T
    J = np.zeros((guests.n, guests.n))
    J[i, j] = J[j, i] = guests.signs * guests.weights
    x = torch.randn(chains, guests.n, generator=generator).sign().double().numpy()
    for heat in np.geomspace(2, 0.05, sweeps) * guests.weights.mean():
        bar = (
            heat
            * torch.empty(guests.n, chains, dtype=torch.float64).exponential_(generator=generator).numpy()
        )
        for guest in range(guests.n):
            gain = x[:, guest] * (x @ J[guest])  # what U loses if this guest moves
            x[:, guest] *= np.where(gain > -bar[guest], -1.0, 1.0)
    return x[guests.unhappy(x).argmin()]


# Bounds


def rules(guests: Guests, cycle: Cycle) -> list[Rule]:
    """The inequalities row . u >= right of one cycle (32.7): u_e is the share of pair e that is unhappy.

    For every set F of pairs of the cycle whose size has the parity that its unhappy pairs cannot have:
    sum of u_e outside F + sum of (1 - u_e) inside >= 1. Of an odd cycle the first rule is that with F empty.
    """
    places, found = guests.around(cycle), []
    odd = guests.is_odd(cycle)
    for inside in product((0, 1), repeat=len(places)):
        if sum(inside) % 2 != odd:
            row = np.zeros(len(guests.pairs))
            row[places] = 1 - 2 * np.array(inside)
            found.append((row, 1.0 - sum(inside)))
    return found


def _least(guests: Guests, found: Sequence[Rule]) -> tuple[float, np.ndarray]:
    if not found:
        return 0.0, np.zeros(len(guests.pairs))
    rows, right = map(np.array, zip(*found, strict=True))
    solved = linprog(guests.weights, A_ub=-rows, b_ub=-right, bounds=(0, 1), method="highs")
    return float(solved.fun), solved.x


def bound_by_rules(guests: Guests, found: Iterable[Rule]) -> float:
    """min sum w_e u_e with 0 <= u_e <= 1 and the rules: the cone relaxation with those inequalities, a linear programme.

    The cones leave X_ij anywhere in [-1, 1] once X_ii = 1, and u_e = (1 + sign_e X_e) / 2.
    """
    return _least(guests, list(found))[0]


def every_square(guests: Guests) -> list[Rule]:
    """All eight rules of every square."""
    return [rule for square in guests.squares for rule in rules(guests, square)]


def odd_squares_only(guests: Guests) -> list[Rule]:
    """One rule for each frustrated square: at least one of its pairs is unhappy."""
    return [rules(guests, square)[0] for square in guests.odd_squares()]


def every_cycle(guests: Guests, *, rounds: int = 200) -> tuple[float, Float[np.ndarray, " E"], int]:
    """The bound by the rules of all cycles, the shares u of the pairs that reach it, and how many rules were used.

    Rules are added where they are broken. A cycle with its set F is a walk from (i, 0) to (i, 1) in a graph of two copies
    of the guests: along a pair in one copy it costs u_e or 1 - u_e, between the copies the rest. A walk shorter than 1
    breaks a rule.

    Raises:
        RuntimeError: some rule is still broken after the last round.
    """
    n, (i, j) = guests.n, guests.pairs.T
    found = odd_squares_only(guests)
    for _ in range(rounds):
        value, u = _least(guests, found)
        apart = np.where(guests.signs < 0, u, 1 - u)  # the share of seatings with the pair in two rooms
        ends = (np.concatenate([i, i + n, i, i + n]), np.concatenate([j, j + n, j + n, j]))
        costs = np.concatenate([apart, apart, 1 - apart, 1 - apart]) + 1e-9  # an entry of 0 would be no edge
        shortest, before = dijkstra(
            sparse.csr_array((costs, ends), shape=(2 * n, 2 * n)), directed=False, return_predecessors=True
        )
        broken = [v for v in range(n) if shortest[v, v + n] < 1 - 1e-6]
        if not broken:
            return value, u, len(found)
        for v in broken:
            found.append(_rule_of(guests, before[v], v))
    raise RuntimeError(f"rules of {len(broken)} guests are still broken after {rounds} rounds")


def _rule_of(guests: Guests, before: np.ndarray, start: int) -> Rule:
    n, row, right, here = guests.n, np.zeros(len(guests.pairs)), 1.0, start + len(before) // 2
    while here != start:
        last = int(before[here])
        place = guests._places[frozenset((last % n, here % n))]
        between = (last < n) != (here < n)
        # u_e itself for a friendship inside a copy or a quarrel between them; else 1 - u_e, a member of F
        sign = 1.0 if between == (guests.signs[place] > 0) else -1.0
        row[place] += sign
        right -= sign < 0
        here = last
    return row, right


def semidefinite_bound(guests: Guests, found: Iterable[Rule] = ()) -> float:
    """sum w / 2 + min <Q, X> with X positive semidefinite and X_ii <= 1, and with the rules, which are linear in X."""
    problem, rows, right = guests.problem(), [], []
    for row, least in found:  # row . (1 + sign X) / 2 >= least
        rows.append(symmetric(guests.n, guests.pairs, np.zeros(guests.n), -row * guests.signs / 4))
        right.append(row.sum() / 2 - least)
    with_rules = QCQP([*problem.matrices, *rows], np.concatenate([problem.bounds, right]))
    return float(sdp(with_rules).value + guests.weights.sum() / 2)


def seating_of(guests: Guests, u: Float[np.ndarray, " E"]) -> Float[np.ndarray, " n"]:
    """Rooms read from shares u: along the pairs nearest to 0 or 1 first, each guest where the last one sends him.

    If every u is 0 or 1 and no rule is broken, exactly the pairs with u = 1 are unhappy.
    """
    x, group = np.ones(guests.n), np.arange(guests.n)
    for place in np.argsort(-np.abs(u - 0.5), kind="stable"):
        i, j = guests.pairs[place]
        if group[i] == group[j]:
            continue
        wanted = -guests.signs[place] * (1.0 if u[place] < 0.5 else -1.0)  # x_i x_j
        moved = group == group[j]
        if x[i] * x[j] != wanted:
            x[moved] *= -1
        group[moved] = group[i]
    return x
