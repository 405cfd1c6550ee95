"""Exercises of lesson 32, sparsity in conic relaxations."""

import torch

from course_lib.lessons.sparse_socp.contents import lesson
from course_lib.teaching import close, edit, inputs, uniform


@lesson.exercise(
    "32.1", "A minor as a cone", difficulty=1, minutes=8,
    prompt="A solver takes cones of the form $\\sqrt{u^2 + v^2} \\le t$. Write `cone(a, b, x)` for numbers `a`, `b`, `x` "
    "that stand for $X_{ii}$, $X_{jj}$ and $X_{ij}$: return a tensor with $t$, $u$ and $v$, each *linear* in `a`, `b` and "
    "`x`, such that the cone says exactly $a, b \\ge 0$ and $x^2 \\le ab$.",
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


lesson.value(
    "32.2", "Cones of a lattice", difficulty=1, minutes=5,
    prompt="How many cones has the relaxation of a lattice of $12 \\times 12$ unknowns, without linear terms: with one cone "
    "for each aggregate edge, and with one for each pair? The answer is a dictionary with the numbers `sparse` and `dense`.",
    answer={"sparse": 264, "dense": 10296},
    properties=[
        ("There is one cone for each edge, and each row and each column has 11 of them.",
         lambda sparse, dense: close(sparse, 264)),
        ("There is one cone for each pair of 144 unknowns.", lambda sparse, dense: close(dense, 10296)),
    ],
    hints=(
        "How many edges has one row of 12 vertices? How many rows, how many columns are there?",
        "The dense relaxation has a cone for each pair of different unknowns, once.",
        "There are $n = 144$ unknowns and $n(n-1)/2$ pairs.",
    ),
    mistakes=[
        ("both ends", {"sparse": 528, "dense": 20592}, "You counted each pair twice, as (i, j) and as (j, i).",
         lambda sparse, dense: close(sparse, 528)),
        ("border forgotten", {"sparse": 288, "dense": 10296},
         "A row of 12 vertices has 11 edges: those at the border have fewer neighbours.",
         lambda sparse, dense: close(sparse, 288)),
        ("rows only", {"sparse": 132, "dense": 10296}, "You counted one direction. Columns have edges too.",
         lambda sparse, dense: close(sparse, 132)),
        ("twelve unknowns", {"sparse": 264, "dense": 66}, "A lattice of side 12 has 144 unknowns.",
         lambda sparse, dense: close(dense, 66)),
        ("diagonal", {"sparse": 264, "dense": 10440}, "A pair has two different unknowns: the diagonal has no cone.",
         lambda sparse, dense: close(dense, 10440)),
        ("all entries", {"sparse": 264, "dense": 20736},
         "You counted all entries of X: it is symmetric, and has no cone on its diagonal.",
         lambda sparse, dense: close(dense, 20736)),
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
    "32.3", "The aggregate edges", difficulty=2, minutes=8,
    prompt="Write `count_cones(matrices)`: `matrices` is a tensor $(m + 1, n, n)$ of the symmetric matrices $Q_0$ (the "
    "objective) to $Q_m$. Return how many cones the sparse relaxation has.",
    draw=inputs(matrices=lambda generator: _patterns(generator)),
    agrees="Each pair of different unknowns counts once if any of the matrices has an entry there.",
    hints=(
        "A pair counts if at least one matrix has an entry there, whatever the others have.",
        "Entries may cancel in a sum of matrices. What cannot cancel?",
        "Which part of the table of true and false should be counted, so that each pair counts once and the diagonal never?",
    ),
    mistakes=[
        ("objective only", edit("(matrices != 0).any(0)", "(matrices[0] != 0)"),
         "You looked at the objective alone. An entry of a constraint needs its cone too."),
        ("constraints only", edit("(matrices != 0).any(0)", "(matrices[1:] != 0).any(0)"),
         "You left the objective out: its entries need cones too."),
        ("sum", edit("(matrices != 0).any(0)", "(matrices.sum(0) != 0)"),
         "Entries of different matrices can cancel in a sum, here on the pair (1, 2). The pair still matters."),
        ("both triangles", edit(".triu(1)", ".fill_diagonal_(False)"), "You counted (i, j) and (j, i): halve it."),
        ("diagonal", edit(".triu(1)", ".triu()"), "Entries of the diagonal are no pairs."),
        ("each matrix by itself", edit("(matrices != 0).any(0)", "(matrices != 0)"),
         "You added up the edges of the matrices one by one: an edge of several matrices counts once."),
        ("in all", edit(".any(0)", ".all(0)"), "You took the pairs that *all* matrices have. One matrix is enough."),
    ],
)
def count_cones(matrices):
    """Pairs above the diagonal where some matrix is not 0."""
    return int((matrices != 0).any(0).triu(1).sum())


def _edges(a, b, c, d):
    return all(e != 0 for e in (a, b, c, d))


lesson.flaw(
    "32.4", "Every wrong sign costs", difficulty=2, minutes=6,
    prompt="\"As soon as an off-diagonal entry is positive, the bound by cones lies below the minimum.\" Give a "
    "counterexample on a cycle of four: $Q_0$ has the entries $a$ at (1, 2), $b$ at (2, 3), $c$ at (3, 4) and $d$ at "
    "(4, 1), none of them 0, and zeros else; the constraints are $x_i^2 \\le 1$. Answer with a dictionary of the numbers "
    "`a`, `b`, `c` and `d`.",
    answer={"a": 1, "b": 1, "c": -1, "d": -1},
    properties=[
        ("None of the four numbers should be 0.", _edges),
        ("At least one should be positive.", lambda a, b, c, d: max(a, b, c, d) > 0),
        ("On this cycle the bound does lie below the minimum.",
         lambda a, b, c, d: sum(e > 0 for e in (a, b, c, d)) % 2 == 0),
    ],
    hints=(
        "The bound is reached if some signs of $x$ make every product $\\sigma_{ij}x_ix_j$ negative.",
        "Go round the cycle: at a negative entry $x$ should keep its sign, at a positive one it should change it.",
        "After the whole round $x_1$ has to be $x_1$ again. How many changes may there be?",
    ),
    mistakes=[
        ("none positive", {"a": -1, "b": -1, "c": -1, "d": -1}, "The bound is reached, but no entry is positive here.",
         lambda a, b, c, d: _edges(a, b, c, d) and max(a, b, c, d) < 0),
        ("one positive", {"a": 1, "b": -1, "c": -1, "d": -1}, "One change of sign on the way round: x would "
         "have to come back with the other sign. The cycle is frustrated.",
         lambda a, b, c, d: _edges(a, b, c, d) and sum(e > 0 for e in (a, b, c, d)) == 1),
        ("three positive", {"a": 1, "b": 1, "c": 1, "d": -1}, "Three changes of sign: an odd number again, as with one.",
         lambda a, b, c, d: _edges(a, b, c, d) and sum(e > 0 for e in (a, b, c, d)) == 3),
        ("no cycle", {"a": 1, "b": -1, "c": -1, "d": 0}, "Without one of its edges this is no cycle any more; each of the "
         "four numbers has to differ from 0.", lambda a, b, c, d: not _edges(a, b, c, d)),
    ],
)


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
    "32.5", "Switch the signs away", difficulty=3, minutes=15,
    prompt="Write `switch(Q)`: `Q` is symmetric, its graph is connected and no cycle is frustrated. Return a float64 tensor "
    "$\\tau$ of signs $\\pm1$ with $\\tau_i\\tau_jQ_{ij} \\le 0$ for all $i \\ne j$. Either of the two solutions is right.",
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


EXERCISES = lesson.exercises
