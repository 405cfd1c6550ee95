"""Exercises of lesson 31, Hawkes processes by tensor recovery."""

import torch

from course_lib.lessons.hawkes_tensor_recovery.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, uniform


@lesson.exercise(
    "31.1", "The rate of the next bin", difficulty=1, minutes=8,
    prompt="Write `next_rate(base, kernel, counts)`: `base` is $\\mu$, of shape (3,), `kernel` is $A$, of "
    "shape (3, 3, 2), "
    "and `counts` holds all bins so far, the oldest first, one in each row. Return $\\lambda$ of the bin "
    "that comes next.",
    draw=inputs(base=uniform(0.1, 1.0, "3"), kernel=uniform(0.0, 0.5, "3 3 2"),
                counts=lambda generator: torch.randint(0, 4, (5, 3), generator=generator).double()),
    agrees="Each rate should be the base plus what every place's events of the last two bins add, (31.1).",
    hints=(
        "Which bin does lag 1 mean, as a row of `counts`?",
        "`kernel[..., 0]` belongs to lag 1. It maps the events at all $j$ to effects at all $i$.",
        "Two matrix-vector products and the base: negative indices pick the rows.",
    ),
    mistakes=[
        ("lags reversed", edit("counts[-1]", "counts[-2]", "counts[-2]\n", "counts[-1]\n"),
         "The lags are reversed: kernel[..., 0] is lag 1, and belongs to the newest bin."),
        ("oldest bins", edit("counts[-1]", "counts[0]", "counts[-2]", "counts[1]"),
         "You took the oldest bins. The next bin depends on the newest two, the last rows."),
        ("transposed", edit("kernel[..., 0] @ counts[-1]", "counts[-1] @ kernel[..., 0]",
                            "kernel[..., 1] @ counts[-2]", "counts[-2] @ kernel[..., 1]"),
         "You multiplied from the other side. A[i, j] acts from j on i: sum over the second index."),
        ("base left out", edit("base + ", ""), "The base rate is missing: events also come without a cause."),
        ("one lag", edit(" + kernel[..., 1] @ counts[-2]", ""), "Only lag 1 is there. The kernel has two lags."),
        ("summed kernel", edit("kernel[..., 0] @ counts[-1] + kernel[..., 1] @ counts[-2]", "kernel.sum(-1) @ counts[-1]"),
         "You summed the kernel over its lags first. Each lag multiplies its own bin."),
    ],
)
def next_rate(base, kernel, counts):
    """The base, lag 1 times the last bin, lag 2 times the one before."""
    return base + kernel[..., 0] @ counts[-1] + kernel[..., 1] @ counts[-2]


@lesson.exercise(
    "31.2", "The long run", difficulty=2, minutes=8,
    prompt="Write `long_run(base, kernel)`: the events for each bin and place that a stationary process has "
    "on average, "
    "for `base` of shape (3,) and `kernel` of shape (3, 3, 4).",
    draw=inputs(base=uniform(0.1, 1.0, "3"), kernel=uniform(0.0, 0.12, "3 3 4")),
    properties=[
        ("The mean rate should reproduce itself: base plus what mean events cause.",
         lambda base, kernel, answer: close(base + torch.einsum("ijt,j->i", kernel, answer), answer, rtol=1e-5, atol=1e-7)),
    ],
    hints=(
        "Take the mean of (31.1). Which counts have which mean?",
        "All lags multiply the same mean, so only the sum of the kernel over its lags is left.",
        "Solve a 3 x 3 system: the unknown mean stands on both sides.",
    ),
    mistakes=[
        ("base only", edit("torch.linalg.solve(torch.eye(3, dtype=base.dtype) - total, base)", "base + total @ base"),
         "You counted the children of base events, and not their children: the series goes on."),
        ("transposed", edit("- total", "- total.T"), "The kernel is transposed: sum over j, from which events come."),
        ("sign", edit("- total", "+ total"), "The sign is turned: excitation raises the rate above the base."),
        ("identity forgotten", edit("torch.eye(3, dtype=base.dtype) - total", "total"),
         "The identity is missing: the mean stands on both sides of the equation."),
        ("mean over lags", edit("kernel.sum(-1)", "kernel.mean(-1)"),
         "You averaged over lags. An event acts at every lag, so the lags add up."),
        ("first lag", edit("kernel.sum(-1)", "kernel[..., 0]"), "You took one lag. An event acts at all four."),
    ],
)
def long_run(base, kernel):
    """Solve m = base + (sum over lags) m."""
    total = kernel.sum(-1)
    return torch.linalg.solve(torch.eye(3, dtype=base.dtype) - total, base)


lesson.value(
    "31.3", "Two slices of rank two", difficulty=2, minutes=8,
    prompt="A 2 x 2 x 2 kernel has the identity at lag 1 and $\\begin{pmatrix}0&1\\\\1&0\\end{pmatrix}$ at "
    "lag 2. Which rank have "
    "its two DFT slices, and what is its Fourier nuclear norm, with the orthonormal transform of this page? "
    "The answer is a "
    "dictionary with the numbers `first`, `second` (the ranks) and `norm`.",
    answer={"first": 1, "second": 1, "norm": 8**0.5},
    properties=[
        ("A DFT of two numbers is their sum and their difference: look at the ranks again.",
         lambda first, second: first == 1 and second == 1),
        ("Each DFT slice has one singular value; both are alike.", lambda norm: close(norm, 8**0.5, rtol=1e-2)),
    ],
    hints=(
        "With two lags the transform is a sum and a difference, each divided by the same number. Which?",
        "Write both slices down. What are their determinants?",
        "A symmetric matrix of rank 1 has one singular value: the size of its trace. Add the two up.",
    ),
    mistakes=[
        ("ranks in time", {"first": 2, "second": 2, "norm": 4}, "Those are the time slices. Add and "
        "subtract them first.",
         lambda first, second: first == 2 and second == 2),
        ("not orthonormal", {"first": 1, "second": 1, "norm": 4},
         "4 is the sum without the factor 1/√2 of the orthonormal transform (and, by chance, that of the time slices)."),
        ("mean over slices", {"first": 1, "second": 1, "norm": 2},
         "2 is the convention that divides the unnormalised sum by p. This page uses the orthonormal transform."),
        ("one slice", {"first": 1, "second": 1, "norm": 2**0.5}, "That is one slice. The norm adds up both."),
        ("Frobenius", {"first": 1, "second": 1, "norm": 8**0.25},
         "You took a root once more than needed.",
         lambda first, second, norm: first == second == 1 and abs(norm - 8**0.25) < 0.02),
    ],
)


@lesson.exercise(
    "31.4", "Shrink a matrix", difficulty=2, minutes=10,
    prompt="Write `shrink(M, t)`: the matrix $X$ that minimises $\\frac12\\lVert X - M\\rVert^2 + "
    "t\\,\\lVert X\\rVert_*$, for a "
    "real 4 x 3 matrix.",
    draw=inputs(M=normal("4 3"), t=uniform(0.2, 1.5)),
    agrees="Singular values should fall by t, those below t to 0, with the singular vectors kept.",
    hints=(
        "The minimiser has the singular vectors of M. So each singular value has a problem of its own.",
        "Minimise $\\frac12(x - s)^2 + tx$ over $x \\ge 0$.",
        "`torch.linalg.svd(M, full_matrices=False)` returns $V^\\top$ as its third result.",
    ),
    mistakes=[
        ("no floor", edit("(s - t).clamp(min=0)", "(s - t)"),
         "Singular values below t became negative. They stop at 0: that is what lowers the rank."),
        ("hard", edit("(s - t).clamp(min=0)", "s * (s > t)"),
         "You kept large singular values as they are. That minimises t²/2 times the rank; the norm shrinks all of them."),
        ("entries", edit("u, s, vh = torch.linalg.svd(M, full_matrices=False)\n    return (u * (s - "
        "t).clamp(min=0)) @ vh",
                         "return M.sign() * (M.abs() - t).clamp(min=0)"),
         "You shrank the entries. That belongs to the sum of their sizes, not to singular values."),
        ("squares", edit("(s - t)", "(s**2 - t)"), "You took eigenvalues of the Gram matrix: they are squares of s."),
        ("ridge", edit("(s - t).clamp(min=0)", "s / (1 + t)"),
         "That shrinks all by one factor, as ridge does: no rank falls."),
        ("V not transposed", edit("@ vh", "@ vh.T"), "The third result of torch's svd is Vᵀ already."),
    ],
)
def shrink(M, t):
    """Soft-threshold the singular values."""
    u, s, vh = torch.linalg.svd(M, full_matrices=False)
    return (u * (s - t).clamp(min=0)) @ vh


def _whole(*delays):
    return all(delay in (0, 1, 2, 3) for delay in delays)


def _cut(to, away):
    """The 2 x 2 x 4 kernel of the prompt: whatever would come after lag 4 is lost."""
    kernel = torch.zeros(2, 2, 4, dtype=torch.float64)
    for i in (0, 1):
        for j in (0, 1):
            for k, h in enumerate((1.0, 0.5)):
                if to[i] + away[j] + k < 4:
                    kernel[i, j, to[i] + away[j] + k] = h
    return kernel


def _rank(d1, d2, e1, e2):
    to, away = (int(d1), int(d2)), (int(e1), int(e2))
    return int(torch.linalg.matrix_rank(torch.fft.fft(_cut(to, away)).movedim(-1, 0), rtol=1e-6).max())


lesson.flaw(
    "31.5", "Always of rank one", difficulty=3, minutes=10,
    prompt="\"A kernel $A_{ij}(\\tau) = h(\\tau - d_i - e_j)$ has DFT slices of rank 1, whatever its delays.\" Take "
    "two places, a window of $p = 4$ lags, and $h = (1, \\frac12)$, which starts at lag 1 when both delays are 0. Find "
    "delays from 0 to 3 for which a DFT slice has rank 2: a dictionary with the numbers "
    "`d1`, `d2`, `e1` and `e2`.",
    answer={"d1": 0, "d2": 1, "e1": 0, "e2": 2},
    properties=[
        ("Delays should be whole numbers from 0 to 3.", lambda d1, d2, e1, e2: _whole(d1, d2, e1, e2)),
        ("No DFT slice has rank 2 here.", lambda d1, d2, e1, e2: _rank(d1, d2, e1, e2) == 2),
    ],
    hints=(
        "A delay turns phases only if the profile is shifted as a whole. What does the window do to a late one?",
        "Cut off at least one entry. How late is that, with a profile of two numbers and four lags?",
        "A cut alone is not enough: if all rows are equal, or all columns, the rank is 1 nevertheless.",
    ),
    mistakes=[
        ("all fits", {"d1": 0, "d2": 1, "e1": 0, "e2": 1},
         "All of it fits into the window: the latest effect comes at lag 4. Delay it further.",
         lambda d1, d2, e1, e2: _whole(d1, d2, e1, e2) and max(d1, d2) + max(e1, e2) <= 2),
        ("equal rows", {"d1": 2, "d2": 2, "e1": 0, "e2": 3},
         "Something is cut off, but both places receive alike: two equal rows have rank 1.",
         lambda d1, d2, e1, e2: _whole(d1, d2, e1, e2) and d1 == d2 and d1 + max(e1, e2) > 2),
        ("equal columns", {"d1": 0, "d2": 3, "e1": 2, "e2": 2},
         "Something is cut off, but both places send alike: two equal columns have rank 1.",
         lambda d1, d2, e1, e2: _whole(d1, d2, e1, e2) and d1 != d2 and e1 == e2 and max(d1, d2) + e1 > 2),
    ],
)

EXERCISES = lesson.exercises
