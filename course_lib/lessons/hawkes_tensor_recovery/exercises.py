"""Exercises of lesson 31, Hawkes processes by tensor recovery."""

import torch

from course_lib.lessons.hawkes_tensor_recovery.contents import lesson
from course_lib.teaching import close, edit, inputs, uniform, whole


@lesson.exercise(
    "31.1", "The rate of the next hour", difficulty=1, minutes=5,
    prompt="Write `next_rate(base, kernel, counts)`: `base` is $\\mu$, of shape (3,), `kernel` is $A$, of "
    "shape (3, 3, 2), "
    "and `counts` holds all hours so far, the oldest first, one in each row. Return $\\lambda$, by (31.1), of the hour "
    "that comes next.",
    draw=inputs(base=uniform(0.1, 1.0, "3"), kernel=uniform(0.0, 0.5, "3 3 2"),
                counts=lambda generator: torch.randint(0, 4, (5, 3), generator=generator).double()),
    agrees="Each rate should be the base plus what all posts of the last two hours add, (31.1).",
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
        ("base left out", edit("base + ", ""), "The base rate is missing: posts also come without a cause."),
        ("one lag", edit(" + kernel[..., 1] @ counts[-2]", ""), "Only lag 1 is there. The kernel has two lags."),
        ("summed kernel", edit("kernel[..., 0] @ counts[-1] + kernel[..., 1] @ counts[-2]", "kernel.sum(-1) @ counts[-1]"),
         "You summed the kernel over its lags first. Each lag multiplies its own bin."),
    ],
)
def next_rate(base, kernel, counts):
    """The base, lag 1 times the last bin, lag 2 times the one before."""
    return base + kernel[..., 0] @ counts[-1] + kernel[..., 1] @ counts[-2]


lesson.value(
    "31.2", "Three arrows", difficulty=1, minutes=4,
    prompt="A window of $p = 12$ lags, at frequency $f = 2$. The arrows of forums 1, 2 and 3 stand at 50, -10 and 170 "
    "degrees, counted counterclockwise. All three answer one sender with the same profile, and forum 1 has the delay 0. "
    "Delays are 0 to 5. Give a dictionary with the delays `second` and `third`.",
    answer={"second": 1, "third": 4},
    properties=[
        ("Delays are whole numbers from 0 to 5.",
         lambda second, third: all(delay in (0, 1, 2, 3, 4, 5) for delay in (second, third))),
        ("Those delays put an arrow elsewhere.", lambda second, third: second == 1 and third == 4),
    ],
    hints=(
        "By which angle does one bin of delay turn an arrow, at f = 1 and at f = 2?",
        "Which way does a delay turn, and how far is each arrow from the one of forum 1, that way round?",
        "From 50 down to 170 is a long way: full turns of 360 degrees do not show.",
    ),
    mistakes=[
        ("counterclockwise", {"second": 5, "third": 2}, "You turned counterclockwise. A delay turns arrows clockwise."),
        ("frequency one", {"second": 2, "third": 8},
         "A step of 30 degrees belongs to f = 1. At f = 2 one bin turns twice as far.",
         lambda second, third: second == 2 and third == 8),
        ("short way round", {"second": 1, "third": 2},
         "You took the shorter way from 50 to 170. A delay always turns clockwise.",
         lambda second, third: second == 1 and third == 2),
        ("not from forum 1", {"second": 0, "third": 3},
         "You counted from 0 degrees. Angles count from the arrow of forum 1, whose delay is 0.",
         lambda second, third: second == 0 and third == 3),
    ],
)


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
    "31.3", "Always of rank one", difficulty=2, minutes=7,
    prompt="\"A kernel $A_{ij}(\\tau) = h(\\tau - d_i - e_j)$ has DFT slices of rank 1, whatever its delays.\" Take "
    "two forums, a window of $p = 4$ lags, and $h = (1, \\frac12)$, which starts at lag 1 when both delays are 0. Find "
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
         "Something is cut off, but both forums read alike: two equal rows have rank 1.",
         lambda d1, d2, e1, e2: _whole(d1, d2, e1, e2) and d1 == d2 and d1 + max(e1, e2) > 2),
        ("equal columns", {"d1": 0, "d2": 3, "e1": 2, "e2": 2},
         "Something is cut off, but both forums send alike: two equal columns have rank 1.",
         lambda d1, d2, e1, e2: _whole(d1, d2, e1, e2) and d1 != d2 and e1 == e2 and max(d1, d2) + e1 > 2),
    ],
)

def _arrow(size):
    return lambda generator: torch.randn(size, generator=generator, dtype=torch.complex128)


@lesson.exercise(
    "31.4", "Read one delay", difficulty=2, minutes=8,
    prompt="Write `read_delay(arrows, reference, p)`. `arrows` holds one forum's arrows at the frequencies 1, 2 and 3, "
    "`reference` those of a forum with delay 0: complex tensors of shape (3,), in a window of $p$ lags, a whole number. "
    "Turn the arrows back by each delay $s = 0, \\dots, p - 1$, by (31.4), and return the $s$ for which they agree best "
    "with the reference: the largest sum over the three frequencies of arrow times conjugate of the reference, real part.",
    draw=inputs(arrows=_arrow(3), reference=_arrow(3), p=whole(6, 12)),
    properties=[
        ("A delay is a whole number from 0 to p - 1.", lambda p, answer: float(answer) in range(p)),
    ],
    agrees="Another delay turns these arrows nearer to the reference.",
    hints=(
        "Turning back is counterclockwise: multiply the arrow at frequency f by exp(+2 pi i f s / p).",
        "For each s add up the real parts of arrow times turn times conjugate of the reference, over f = 1, 2, 3.",
        "All s at once: a table of turns of shape (p, 3), a product with both vectors, and `argmax`.",
    ),
    mistakes=[
        ("turned on", edit("2j * torch.pi", "-2j * torch.pi"),
         "You turned the arrows further clockwise. To undo a delay, turn them back."),
        ("no conjugate", edit("reference.conj()", "reference"),
         "Without the conjugate the angles of arrow and reference add up. Their difference is wanted."),
        ("one frequency", edit(".real.sum(1)", ".real[:, 0]"),
         "You read the arrow at f = 1 only. All three frequencies know the delay."),
        ("frequencies from zero", edit("torch.arange(1, 4)", "torch.arange(3)"),
         "Your frequencies are 0, 1, 2. The arrows belong to 1, 2, 3."),
        ("angles averaged", edit(".real.sum(1)", ".sgn().real.sum(1)"),
         "You dropped the lengths. A long arrow is less noisy, and counts for more."),
        ("sizes", edit(".real.sum(1)", ".sum(1).abs()"),
         "You took the size of the sum. It is large for arrows that agree with each other, wherever they point."),
    ],
)
def read_delay(arrows, reference, p):
    """Try every delay; the one whose turn, undone, brings the arrows to the reference."""
    turns = torch.exp(2j * torch.pi / p * torch.outer(torch.arange(p), torch.arange(1, 4)))
    return (turns * arrows * reference.conj()).real.sum(1).argmax()


lesson.value(
    "31.5", "Shrink two numbers", difficulty=1, minutes=4,
    prompt="$M$ is a 2 x 2 diagonal matrix with 3 and 0.4 on the diagonal. Which diagonal matrix $X$ minimises "
    "$\\frac12\\lVert X - M\\rVert^2 + \\lVert X\\rVert_*$? (It is the diagonal case of (31.7).) Give a "
    "dictionary with its entries `first` and `second`.",
    answer={"first": 2, "second": 0},
    properties=[
        ("Each entry has a minimum of its own: look at the slope of both terms.",
         lambda first, second: close(first, 2, atol=1e-3) and abs(second) < 1e-3),
    ],
    hints=(
        "The singular values of a diagonal matrix are the sizes of its entries. So each entry has a problem of its own.",
        "Minimise $\\frac12(x - 3)^2 + |x|$, and then the same with 0.4 in place of 3.",
        "For $x > 0$ the slope is $x - 0.4 + 1$. Where is the least value, if that is never 0?",
    ),
    mistakes=[
        ("no floor", {"first": 2, "second": -0.6},
         "A negative entry has a size, too, and is charged for it. The second entry stops at 0.",
         lambda first, second: close(second, -0.6, atol=1e-3)),
        ("hard", {"first": 3, "second": 0},
         "You kept the large entry as it is. The norm charges for it, too, so it gets shorter.",
         lambda first, second: close(first, 3, atol=1e-3) and abs(second) < 1e-3),
        ("ridge", {"first": 1.5, "second": 0.2},
         "That is the answer to half the square of the norm, as in ridge: both are halved.",
         lambda first, second: close(first, 1.5, atol=1e-3) and close(second, 0.2, atol=1e-3)),
        ("unchanged", {"first": 3, "second": 0.4}, "That ignores the norm: it is the minimum of the first term alone."),
    ],
)


@lesson.exercise(
    "31.6", "The long run", difficulty=2, minutes=8,
    prompt="Write `long_run(base, kernel)`: the posts for each hour and forum that a stationary process has "
    "on average, by (31.8), "
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
    "31.7", "Two slices of rank two", difficulty=2, minutes=8,
    prompt="A 2 x 2 x 2 kernel has the identity at lag 1 and $\\begin{pmatrix}0&1\\\\1&0\\end{pmatrix}$ at "
    "lag 2. What are "
    "the ranks of its two DFT slices, and what is its Fourier nuclear norm, with the orthonormal transform of this page? "
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


EXERCISES = lesson.exercises
