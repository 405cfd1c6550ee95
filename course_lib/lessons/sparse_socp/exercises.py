"""Exercises of lesson 32, guests in two rooms and sparse relaxations."""

from itertools import product

import torch

from course_lib.lessons.sparse_socp.contents import lesson
from course_lib.teaching import close, edit, inputs, one_of, uniform

lesson.value(
    "32.1", "Three enemies", difficulty=1, minutes=6,
    prompt="Three guests all quarrel with each other, in two rooms. The number of unhappy pairs, (32.1), is "
    "$\\frac12\\sum(1 + "
    "X_{ij})$ over the three pairs. Give a dictionary with its least value `rooms` over all seatings; `pairs` if each "
    "$X_{ij}$ "
    "may be any number from $-1$ to $1$; and `together` if $X_{11} = X_{22} = X_{33} = 1$, the three $X_{ij}$ are equal "
    "and $X$ has no "
    "negative eigenvalue.",
    answer={"rooms": 1, "pairs": 0, "together": 0.75},
    properties=[
        ("Two rooms for three: how many of the three pairs must share one, at the least?", lambda rooms: close(rooms, 1)),
        ("Nothing but the range from -1 to 1 holds the three numbers back.", lambda pairs: close(pairs, 0)),
        ("With X_ij = t the eigenvalues are 1 - t, twice, and 1 + 2t.", lambda together: close(together, 0.75, rtol=1e-3)),
    ],
    hints=(
        "Seat the three: some pair has to share a room.",
        "The matrix with 1 on the diagonal and $t$ elsewhere is $(1 - t)I + t\\,\\mathbb 1\\mathbb 1^\\top$.",
        "The vector of ones has the eigenvalue $1 + 2t$. How low may $t$ be?",
    ),
    mistakes=[
        ("two unhappy", {"rooms": 2, "pairs": 0, "together": 0.75},
         "Two in one room and one in the other: only one pair shares a room.", lambda rooms: close(rooms, 2)),
        ("all three apart", {"rooms": 0, "pairs": 0, "together": 0.75},
         "There are two rooms: of three guests two share one.", lambda rooms: close(rooms, 0)),
        ("every t", {"rooms": 1, "pairs": 0, "together": 0},
         "With t = -1 the vector of ones has the eigenvalue 1 + 2t = -1, which is negative.",
         lambda together: close(together, 0)),
        ("two times t forgotten", {"rooms": 1, "pairs": 0, "together": 1.5},
         "You took t = 0. It may go down until 1 + 2t is 0.", lambda together: close(together, 1.5)),
        ("a third", {"rooms": 1, "pairs": 0, "together": 1},
         "t = -1/3 is the limit for four guests. For three it is 1 + 2t = 0.",
         lambda together: close(together, 1)),
    ],
)


def _patterns(generator):
    """Three symmetric matrices, the first two of which cancel on one edge in a sum."""
    draw = torch.randint(-2, 3, (3, 4, 4), generator=generator).double()
    draw = (draw * (torch.rand(3, 4, 4, generator=generator) < 0.4)).triu()
    draw[0, 0, 1], draw[1, 0, 1], draw[2, 0, 1] = 1, -1, 0
    draw[:, 2, 3] = torch.tensor([0.0, 0.0, 2.0])
    return draw + draw.triu(1).mT


@lesson.exercise(
    "32.2", "Which pairs need a condition", difficulty=1, minutes=6,
    prompt="Write `count_conditions(matrices)` for a problem (32.2): `matrices` is a tensor $(m + 1, n, n)$ of the "
    "symmetric matrices $Q_0$ (the "
    "objective) to $Q_m$. A pair needs its condition if any of the matrices has an entry there. "
    "Return how many pairs that are.",
    draw=inputs(matrices=lambda generator: _patterns(generator)),
    agrees="Each pair of different unknowns counts once if any of the matrices has an entry there.",
    hints=(
        "A pair counts if at least one matrix has an entry there, whatever the others have.",
        "Entries may cancel in a sum of matrices. What cannot cancel?",
        "Which part of the table of true and false should be counted, so that each pair counts once and the diagonal never?",
    ),
    mistakes=[
        ("objective only", edit("(matrices != 0).any(0)", "(matrices[0] != 0)"),
         "You looked at the objective alone. An entry of a constraint counts too."),
        ("constraints only", edit("(matrices != 0).any(0)", "(matrices[1:] != 0).any(0)"),
         "You left the objective out: its entries count too."),
        ("sum", edit("(matrices != 0).any(0)", "(matrices.sum(0) != 0)"),
         "Entries of different matrices can cancel in a sum, here on the pair (1, 2). The pair still matters."),
        ("both triangles", edit(".triu(1)", ".fill_diagonal_(False)"), "You counted (i, j) and (j, i): halve it."),
        ("diagonal", edit(".triu(1)", ".triu()"), "Entries of the diagonal are no pairs."),
        ("each matrix by itself", edit("(matrices != 0).any(0)", "(matrices != 0)"),
         "You added up the edges of the matrices one by one: an edge of several matrices counts once."),
        ("in all", edit(".any(0)", ".all(0)"), "You took the pairs that *all* matrices have. One matrix is enough."),
    ],
)
def count_conditions(matrices):
    """Pairs above the diagonal where some matrix is not 0."""
    return int((matrices != 0).any(0).triu(1).sum())


def _balanced(generator):
    """A symmetric matrix on a connected graph of six vertices whose positive entries can be switched away."""
    near = torch.rand(6, 6, generator=generator) < 0.3
    for v in range(1, 6):
        near[int(torch.randint(v, (), generator=generator)), v] = True
    s = torch.randint(0, 2, (6,), generator=generator).double() * 2 - 1
    size = (0.1 + torch.rand(6, 6, generator=generator).double()) * near
    Q = -(size.triu(1) + size.triu(1).mT) * torch.outer(s, s)
    return Q + torch.diag(torch.randn(6, generator=generator).double())


@lesson.exercise(
    "32.3", "Switch the quarrels away", difficulty=3, minutes=8,
    prompt="Write `switch(Q)`: `Q` is symmetric; its entries off the diagonal connect all unknowns, and some choice of "
    "signs "
    "serves them all. Return a float64 tensor $\\tau$ of signs $\\pm1$ with $\\tau_i\\tau_jQ_{ij} \\le 0$ for all "
    "$i \\ne j$. Either of the two solutions is right.",
    draw=inputs(Q=lambda generator: _balanced(generator)),
    properties=[
        ("All entries should be -1 or 1.", lambda Q, answer: bool((answer.abs() == 1).all())),
        ("τ_i τ_j Q_ij should be at most 0 for all i ≠ j.",
         lambda Q, answer: bool(((torch.outer(answer, answer) * Q).fill_diagonal_(0) <= 0).all())),
    ],
    same=lambda one, other: close(one, other) or close(one, -other),
    hints=(
        "Set $\\tau_1 = 1$. What does an entry $Q_{1j}$ say about $\\tau_j$?",
        "Go on from the vertices that are known to their neighbours, until all are known.",
        "From a known $i$ to a neighbour $j$: $\\tau_j = -\\tau_i\\,\\mathrm{sign}\\,Q_{ij}$. Repeat until all are known.",
    ),
    mistakes=[
        ("first row", edit("for _ in range(len(Q)):", "for _ in range(1):", "for i in range(len(Q)):", "for i in range(1):"),
         "You only looked at the neighbours of the first vertex. Others are reached along several edges."),
        ("sign", edit("-s[i] * torch.sign", "s[i] * torch.sign"),
         "You made the entries positive where you could: τ_j should be *minus* τ_i times the sign of the entry."),
        ("signs of the row sums", lambda Q: torch.where(Q.sum(1) > 0, 1.0, -1.0).double(),
         "The sign of a row's sum mixes its entries with the diagonal. Follow the edges one by one."),
        ("nothing", lambda Q: torch.ones(len(Q), dtype=torch.float64), "All ones leave the positive entries positive."),
    ],
)
def switch(Q):
    """Follow the edges from the first vertex on."""
    s = torch.zeros(len(Q), dtype=torch.float64)
    s[0] = 1
    for _ in range(len(Q)):
        for i in range(len(Q)):
            for j in range(len(Q)):
                if i != j and Q[i, j] != 0 and s[i] != 0 and s[j] == 0:
                    s[j] = -s[i] * torch.sign(Q[i, j])
    return torch.where(s == 0, 1.0, s)


def _least_side(u, odd):
    """The least left side of (32.7) over all sets F, by trying."""
    return min(
        sum((1 - s) if inside else s for s, inside in zip(u.tolist(), chosen, strict=True))
        for chosen in product((0, 1), repeat=len(u))
        if sum(chosen) % 2 != odd
    )


@lesson.exercise(
    "32.4", "Is a rule broken?", difficulty=2, minutes=7,
    prompt="Write `least_side(u, odd)`: `u` is a tensor of four numbers from 0 to 1, the shares of the four pairs of a "
    "square, and `odd` says whether an odd number of them quarrel. For each set $F$ of pairs that (32.7) is stated for, its "
    "left side is the sum of $u_e$ outside $F$ and of $1 - u_e$ inside. Return the smallest of them, a number. A rule is "
    "broken if it is "
    "below 1.",
    draw=inputs(u=uniform(0, 1, "4"), odd=one_of(True, False)),
    agrees="The smallest sum over all F of the right parity: F has an even size if odd, and an odd size if not.",
    hints=(
        "If an odd number of pairs quarrel, an odd number are unhappy. Which sizes of $F$ are then impossible?",
        "There are 16 sets of four pairs: try those of the right size.",
        "Loop over `itertools.product((0, 1), repeat=4)` and keep the choices whose sum is even if `odd`, odd otherwise.",
    ),
    mistakes=[
        ("parity exchanged", lambda u, odd: _least_side(u, not odd),
         "You took the patterns that the square *may* have. F is a pattern that it cannot have: of even size if odd."),
        ("any set", lambda u, odd: float(torch.minimum(u, 1 - u).sum()),
         "You chose the cheaper of u and 1 - u for each pair. The size of F must have the right parity, too."),
        ("empty set only", lambda u, odd: float(u.sum()),
         "That is F empty. Other sets count too, and for a square that is not odd F is never empty."),
        ("one pair only", lambda u, odd: float((u.sum() + 1 - 2 * u).min()),
         "You tried sets of one pair only. That is the wrong parity if odd, and otherwise three pairs are a set, too."),
    ],
)
def least_side(u, odd):
    """Try every F whose size has the parity that the unhappy pairs cannot have."""
    sides = []
    for chosen in product((0, 1), repeat=len(u)):
        if sum(chosen) % 2 != odd:
            sides.append(sum(float(1 - s) if inside else float(s) for s, inside in zip(u, chosen, strict=True)))
    return min(sides)


def _stated(a, b, c):
    return a != 0 and b != 0


def _possible(a, b, c):
    return c >= -2 * abs(b)


lesson.flaw(
    "32.5", "Signs that are wrong apart", difficulty=2, minutes=5,
    prompt="\"If the signs of each matrix can be made right by a change of signs, the bound is the minimum.\" Give a "
    "counterexample with two unknowns: minimise $2ax_1x_2$ with $x_1^2 = x_2^2 = 1$ and $2bx_1x_2 \\le c$. The bound is "
    "that "
    "of (32.3), where $X_{12}$ is any number from $-1$ to $1$ with $2bX_{12} \\le c$. Answer with a dictionary of the "
    "numbers "
    "`a`, `b`, `c`; neither `a` nor `b` is 0, and some $x$ must be allowed.",
    answer={"a": -1, "b": 1, "c": 1},
    properties=[
        ("Neither a nor b should be 0.", _stated),
        ("Some x should satisfy the condition.", _possible),
        ("Here the bound is the minimum.",
         lambda a, b, c: a * b < 0 and -2 * abs(b) < c < 2 * abs(b)),
    ],
    hints=(
        "The objective wants $X_{12}$ at one end of its range. When does the condition keep it from there?",
        "With $a < 0$ the objective wants $X_{12} = 1$. Which sign of $b$ forbids that?",
        "If $X_{12} = 1$ is forbidden and $-1$ allowed, the true minimum is at $-1$. Where is the bound's $X_{12}$?",
    ),
    mistakes=[
        ("the same sign", {"a": -1, "b": -1, "c": 1},
         "a and b have one sign: what the objective wants is what the condition allows.",
         lambda a, b, c: _stated(a, b, c) and _possible(a, b, c) and a * b > 0),
        ("a loose condition", {"a": -1, "b": 1, "c": 3},
         "The condition forbids nothing: c is at least 2|b|, and the objective gets what it wants.",
         lambda a, b, c: _stated(a, b, c) and a * b < 0 and c >= 2 * abs(b)),
        ("nothing left", {"a": -1, "b": 1, "c": -3},
         "No x is allowed: 2b x1 x2 is at least -2|b|.", lambda a, b, c: _stated(a, b, c) and not _possible(a, b, c)),
        ("a condition that decides", {"a": -1, "b": 1, "c": -2},
         "With c = -2|b| the condition leaves X12 one value only, and x reaches it.",
         lambda a, b, c: _stated(a, b, c) and a * b < 0 and c == -2 * abs(b)),
    ],
)


@lesson.exercise(
    "32.6", "A minor as a cone", difficulty=2, minutes=8,
    prompt="A solver takes cones of the form $\\sqrt{u^2 + v^2} \\le t$. Write `cone(a, b, x)` for numbers `a`, `b`, `x` "
    "that stand for $X_{ii}$, $X_{jj}$ and $X_{ij}$: return a tensor with $t$, $u$ and $v$, each *linear* in `a`, `b` and "
    "`x`, such that the cone says exactly $a, b \\ge 0$ and $x^2 \\le ab$. One answer is (32.10).",
    draw=inputs(a=uniform(-2, 3), b=uniform(-2, 3), x=uniform(-3, 3)),
    properties=[
        ("t² - u² - v² should be a positive multiple of ab - x², the same for all inputs, with t a sum of a and b.",
         lambda a, b, x, answer: _is_cone(a, b, x, answer)),
    ],
    same=lambda one, other: close(one.abs(), other.abs()),
    hints=(
        "$(a + b)^2$ and $(a - b)^2$ differ by a multiple of $ab$. Of which number?",
        "$x^2 \\le ab$ means $(2x)^2 \\le 4ab$.",
        "Write $4ab = (a + b)^2 - (a - b)^2$ and move the last square to the other side.",
    ),
    mistakes=[
        ("x not doubled", edit("2 * x]", "x]"),
         "x is to be doubled: (a + b)² - (a - b)² is 4ab, so you asked for x² ≤ 4ab."),
        ("root two", edit("2 * x]", "2**0.5 * x]"), "The factor of x is 2, not √2: (a + b)² - (a - b)² is 4ab."),
        ("difference in front", edit("[a + b, a - b, 2 * x]", "[a - b, a + b, 2 * x]"),
         "The sum has to be the larger side, t; the difference stands under the root."),
        ("product", edit("[a + b, a - b, 2 * x]", "[a * b, 0 * a, x]"), "t = ab is not linear, and x ≤ ab is not x² ≤ ab."),
        ("difference left out", edit("[a + b, a - b, 2 * x]", "[a + b, 0 * a, 2 * x]"),
         "Without a - b the cone says 2|x| ≤ a + b, which allows a = 0 "
         "and x = b/2."),
    ],
)
def cone(a, b, x):
    """|(a - b, 2 x)| <= a + b."""
    return torch.tensor([a + b, a - b, 2 * x], dtype=torch.float64)


def _is_cone(a, b, x, answer):
    t, u, v = answer.tolist()
    if a + b == 0:  # t says nothing of its scale there, and ab - x² is negative unless all three are 0
        return t == 0 and (u * u + v * v > 0) == (a != 0 or x != 0)
    scale = t / (a + b)
    return scale > 0 and close(t * t - u * u - v * v, 4 * scale * scale * (a * b - x * x), rtol=1e-4, atol=1e-6)


EXERCISES = lesson.exercises
