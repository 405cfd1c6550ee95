"""What learners of lesson 32 answer, and what gives its predictions away."""

import math
from itertools import combinations, product

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "32.P1": [r"(?i)fewest quarrels", r"(?i)changes rooms"],
    "32.P2": [r"0\^2 \\le", r"(?i)completed"],
    "32.P3": [r"(?i)\*other\* squares", r"≈0\.83"],
    "32.P4": [r"(?i)more expensive", r"≈3\.90"],
}


def vector(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def pair_by_pair(matrices):
    n = matrices.shape[-1]
    return sum(any(float(Q[i, j]) != 0 for Q in matrices) for i, j in combinations(range(n), 2))


def by_sizes(matrices):
    return int(torch.count_nonzero(matrices.abs().sum(0).tril(-1)))


def pairs_of(matrix):
    return int(torch.count_nonzero(matrix.triu(1)))


def by_spanning_tree(Q):
    signs, todo = {0: 1.0}, [0]
    while todo:
        i = todo.pop()
        for j in range(len(Q)):
            if j != i and Q[i, j] != 0 and j not in signs:
                signs[j] = -signs[i] * (1 if Q[i, j] > 0 else -1)
                todo.append(j)
    return vector(*(signs[i] for i in range(len(Q))))


def by_trying(Q):
    off = Q - torch.diag(Q.diagonal())
    for signs in product((1.0, -1.0), repeat=len(Q)):
        tau = vector(*signs)
        if (torch.outer(tau, tau) * off).max() <= 0:
            return tau
    return None


def by_one_row(Q):
    return torch.cat([vector(1.0), torch.where(Q[0, 1:] == 0, 1.0, -Q[0, 1:].sign())])


def all_but_its_own(Q):
    """Follows the edges, but forgets the sign of the vertex that it comes from."""
    tau, known = torch.ones(len(Q), dtype=torch.float64), {0}
    while len(known) < len(Q):
        i, j = next((i, j) for i in known for j in range(len(Q)) if j not in known and Q[i, j] != 0)
        tau[j] = -Q[i, j].sign()
        known.add(j)
    return tau


def enemies(rooms, pairs, together):
    return {"rooms": rooms, "pairs": pairs, "together": together}


def numbers(a, b, c):
    return {"a": a, "b": b, "c": c}


def sides(u, odd, *, sizes=range(5)):
    """The left sides of the rules of a square, over sets of pairs of the right parity and of some sizes."""
    return [
        float(u.sum()) + sum(1 - 2 * float(u[k]) for k in chosen)
        for size in sizes
        if size % 2 != odd
        for chosen in combinations(range(4), size)
    ]


def by_parities(u, odd):
    """The least sums over sets of even and of odd size, pair by pair."""
    even, uneven = 0.0, float("inf")
    for share in u.tolist():
        even, uneven = min(even + share, uneven + 1 - share), min(uneven + share, even + 1 - share)
    return even if odd else uneven


ANSWERS = {
    "32.1": [
        ("solved", "fractions", enemies(1, 0, 3 / 4)),
        ("solved", "floats", enemies(1.0, 0.0, 0.75)),
        ("two unhappy", "two in each room", enemies(2, 0, 0.75)),
        ("all three apart", "nobody unhappy", enemies(0, 0, 0.75)),
        ("every t", "t = -1", enemies(1, 0, 0)),
        ("two times t forgotten", "t = 0", enemies(1, 0, 1.5)),
        ("a third", "t = -1/3", enemies(1, 0, 1.0)),
        ("malformed", "a tuple", (1, 0, 0.75)),
    ],
    "32.2": [
        ("solved", "pair by pair", pair_by_pair),
        ("solved", "sizes added up", by_sizes),
        ("objective only", "Q_0", lambda matrices: pairs_of(matrices[0])),
        ("constraints only", "without Q_0", lambda matrices: by_sizes(matrices[1:])),
        ("sum", "a sum of the matrices", lambda matrices: pairs_of(matrices.sum(0))),
        ("both triangles", "both orders", lambda matrices: 2 * by_sizes(matrices)),
        ("diagonal", "with the diagonal", edit(".triu(1)", ".triu()")),
        ("each matrix by itself", "one by one", lambda matrices: sum(pairs_of(Q) for Q in matrices)),
        ("in all", "common to all", lambda matrices: pairs_of(matrices.prod(0))),
        ("wrong", "the largest matrix", lambda matrices: max(pairs_of(Q) for Q in matrices)),
        ("malformed", "the pairs themselves", lambda matrices: matrices.abs().sum(0).triu(1).nonzero()),
    ],
    "32.5": [
        ("solved", "the other signs", numbers(2, -1, 0)),
        ("solved", "halves", numbers(-0.5, 0.5, 0.9)),
        ("the same sign", "both positive", numbers(1, 2, 0)),
        ("a loose condition", "c = 2|b|", numbers(-1, 1, 2)),
        ("nothing left", "c below -2|b|", numbers(1, -1, -2.5)),
        ("a condition that decides", "c = -2|b|", numbers(3, -2, -4)),
        ("wrong", "b is 0", numbers(-1, 0, 1)),
        ("wrong", "a is 0", numbers(0, 1, 1)),
    ],
    "32.3": [
        ("solved", "along a spanning tree", by_spanning_tree),
        ("solved", "all signs tried", by_trying),
        ("solved", "the other solution", lambda Q: -by_spanning_tree(Q)),
        ("first row", "one row", by_one_row),
        ("wrong", "entries made positive along a tree", lambda Q: by_spanning_tree(-Q)),
        ("signs of the row sums", "row sums", lambda Q: torch.where(Q.sum(1) > 0, 1.0, -1.0).double()),
        ("nothing", "ones", lambda Q: torch.ones_like(Q[0])),
        ("wrong", "the sign of the edge alone", all_but_its_own),
        ("malformed", "float32", lambda Q: by_spanning_tree(Q).float()),
    ],
    "32.4": [
        ("solved", "by combinations", lambda u, odd: min(sides(u, odd))),
        ("solved", "pair by pair, both parities", by_parities),
        ("parity exchanged", "sizes that may be", lambda u, odd: min(sides(u, not odd))),
        ("any set", "the cheaper of both", lambda u, odd: float(torch.stack([u, 1 - u]).amin(0).sum())),
        ("empty set only", "the sum", lambda u, odd: float(u.sum())),
        ("one pair only", "one pair", lambda u, odd: min(sides(u, False, sizes=[1]))),
        ("wrong", "sets of at most two pairs", lambda u, odd: min(sides(u, odd, sizes=range(3)))),
        ("malformed", "all sides", lambda u, odd: torch.tensor(sides(u, odd))),
    ],
    "32.6": [
        ("solved", "halved", lambda a, b, x: vector((a + b) / 2, (a - b) / 2, x)),
        ("solved", "other order and signs", lambda a, b, x: vector(a + b, -2 * x, b - a)),
        ("x not doubled", "x once", lambda a, b, x: vector(a + b, a - b, x)),
        ("root two", "the root of 2", lambda a, b, x: vector(a + b, a - b, math.sqrt(2) * x)),
        ("difference in front", "t and u exchanged", lambda a, b, x: vector(a - b, a + b, 2 * x)),
        ("product", "a b in front", lambda a, b, x: vector(a * b, 0, x)),
        ("difference left out", "2 x at most a + b", lambda a, b, x: vector(a + b, 0, 2 * x)),
        ("wrong", "a negative t", lambda a, b, x: vector(-a - b, a - b, 2 * x)),
        ("malformed", "a tuple", lambda a, b, x: (a + b, a - b, 2 * x)),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "32.e1": ("party(name).unhappy(seatings).min()", "party(name).unhappy(seatings[:1]).min()"),
    "32.3": ('guests = party("A")', 'guests = party("B")'),
    "32.4": ("solve(problem, all_pairs(36))", "sdp(problem)"),
    "32.e2": ("X = solve(lattice(6, generator=rng(seed))).completed()", "X = np.eye(36)"),
    "32.e3": ("(odd == 0)", "((signs > 0).sum() == 0)"),
    "32.7": ("in rules(guests, square))", 'in rules(party("A" if name == "B" else "B"), square))'),
    "32.e4": ("bound_by_rules(guests, one_each + others)", "bound_by_rules(guests, one_each + odd)"),
    "32.e5": ("x = seating_of(guests, u)", "x = seating_of(guests, 0 * u)"),
    "32.e10": ("seating = annealed(guests, generator=rng(seed))", "seating = np.ones(40)"),
    "32.9": ("grid_ = limited(limit, radial=False)", "grid_ = limited(0.2, radial=False)"),
}
