"""Exercises of lesson 08, newton_schulz_and_muon."""

import math

import torch

from course_lib.lessons.newton_schulz_and_muon.contents import lesson
from course_lib.lessons.newton_schulz_and_muon.pictures import compose, count_flops
from course_lib.optimization.newton_schulz import CUBIC, odd_polynomial
from course_lib.teaching import edit, inputs, normal, uniform, whole


def _moves_values_only(matrix, steps, answer):
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return torch.allclose(answer, left * compose(values / values.norm(), [CUBIC] * steps) @ right, atol=1e-8)


@lesson.exercise(
    "08.1", "Newton-Schulz in four lines", difficulty=1, minutes=6,
    prompt="Write `cubic_orthogonalize(matrix, steps)`: divide by the Frobenius norm as in (08.2), then apply "
    "$X \\leftarrow \\frac12(3X - XX^\\top X)$ `steps` times. `matrix` is a float64 matrix of any shape, not zero; return a "
    "matrix of that shape.",
    draw=inputs(rows=whole(2, 4), columns=whole(2, 4), noise=normal("rows columns"), steps=whole(1, 4),
                matrix=lambda noise: noise + 3 * torch.eye(*noise.shape, dtype=noise.dtype)),  # never the zero matrix
    properties=[
        ("Each singular value s of the normalised matrix should become p(...p(s)), with the singular vectors kept.",
         _moves_values_only),
    ],
    hints=(
        "The Frobenius norm is the root of the sum of all squared entries: `matrix.norm()`.",
        "In the loop, X Xᵀ X has the shape of X, whatever its shape.",
        "Three halves of X, minus one half of that product; return X after the loop.",
    ),
    mistakes=[
        ("not normalised", edit(" / matrix.norm()", ""),
         "You did not normalise. Singular values above √3 do not go to 1: divide by the Frobenius norm first."),
        ("normalised by the largest entry", edit("matrix.norm()", "matrix.abs().max()"),
         "You divided by the largest entry, which can be smaller than the largest singular value."),
        ("normalised by the spectral norm", edit("matrix.norm()", "torch.linalg.matrix_norm(matrix, ord=2)"),
         "You divided by the largest singular value. That works, but it is not asked for, and finding it is what the "
         "iteration is meant to avoid: the Frobenius norm is a bound that costs nothing."),
        ("the half left out", edit("1.5", "3", "0.5 * ", ""),
         "The factor 1/2 is missing: with 3s - s³ the value 1 goes to 2."),
        ("one step too many", edit("range(steps)", "range(steps + 1)"), "You took one step more than asked."),
        ("a plus sign", edit("X - ", "X + "), "You added XXᵀX. It is subtracted: the cubic term holds large values back."),
        ("normalised at every step", edit(" / matrix.norm()", "", "1.5 * X", "1.5 * (X := X / X.norm())"),
         "You normalised in every step. That shrinks the singular values again and again; divide once, before the loop."),
        ("one step too few", edit("range(steps)", "range(1, steps)"), "You took one step less than asked."),
        ("one step whatever is asked", edit("range(steps)", "range(1)"),
         "You took one step only. Does your loop return inside, or compute each step from the first X?"),
        ("normalised by the squared norm", edit("matrix.norm()", "matrix.square().sum()"),
         "You divided by the sum of squares. The Frobenius norm is its root."),
        ("cube of the entries", edit("0.5 * X @ X.T @ X", "0.5 * X**3"),
         "You cubed the entries. XXᵀX is a product of matrices: it cubes the singular values."),
    ],
)
def cubic_orthogonalize(matrix, steps):
    """Divide by the Frobenius norm, then take `steps` steps of the cubic."""
    X = matrix / matrix.norm()
    for _ in range(steps):
        X = 1.5 * X - 0.5 * X @ X.T @ X
    return X


def _cubic_error(lower, pair):
    s = torch.linspace(lower, 1, 2001, dtype=torch.float64)
    return float((odd_polynomial(s, (float(pair[0]), float(pair[1]), 0.0)) - 1).abs().max())


@lesson.exercise(
    "08.2", "The best cubic", difficulty=3, minutes=14,
    prompt="Write `best_cubic(lower)`: the pair $(a, b)$, as a float64 tensor of two entries, for which "
    "$p(s) = as + bs^3$ is closest to 1 on $[l, 1]$, in the sense that the largest $|p(s) - 1|$ there is smallest. `lower` "
    "is $l$, between 0 and 1. The best one errs equally far at three points, by turns too low, too high and too low: at "
    "$l$, at the maximum of $p$, and at 1.",
    draw=inputs(lower=uniform(0.05, 0.85)),
    properties=[
        ("Another cubic is closer to 1 on the interval.",
         lambda lower, answer: _cubic_error(lower, answer) <= _cubic_error(lower, best_cubic(lower)) * (1 + 1e-6)),
    ],
    hints=(
        "p(l) = p(1), since both are 1 - E. That gives a as a multiple of -b.",
        "p'(m) = 0 gives the place m of the maximum, and there p(m) = 2am/3.",
        "What is left is the size: p(1) + p(m) = 2, because one is 1 - E and the other 1 + E.",
    ),
    mistakes=[
        ("Newton-Schulz", lambda lower: torch.tensor([1.5, -0.5], dtype=torch.float64),
         "That is the cubic of Newton-Schulz, the limit of the best ones as l goes to 1. For a smaller l a steeper one is "
         "better."),
        ("right at both ends", edit("2 / (at_end + at_maximum)", "1 / at_end"),
         "You made p(l) = p(1) = 1. Then the whole error sits at the maximum in between: lower the polynomial until both "
         "sides err alike."),
        ("never above 1", edit("2 / (at_end + at_maximum)", "1 / at_maximum"),
         "Your maximum is 1, so that all the error lies below. Allowed to rise above 1 by as much as it stays below, the "
         "polynomial errs half as much."),
        ("the order of the pair", edit("[size * total, -size]", "[-size, size * total]"),
         "You returned (b, a). The pair is (a, b), with p(s) = as + bs³."),
        ("a plus sign", edit("-size]", "size]"),
         "Your b is positive, so the polynomial rises for ever. The cubic term holds the large values back: b < 0."),
        ("not scaled", edit("size * total, -size", "total, -1.0"),
         "Your p(l) and p(1) agree, but the size is not chosen yet: multiply a and b so that p(1) and the maximum lie "
         "equally far from 1."),
        ("half the size", edit("2 / (at_end + at_maximum)", "1 / (at_end + at_maximum)"),
         "The factor 2 is missing: p(1) = 1 - E and p(m) = 1 + E add up to 2."),
        ("maximum at 1", lambda lower: torch.tensor([3.0, -1.0], dtype=torch.float64) / (1.5 * lower - 0.5 * lower**3 + 1),
         "Your polynomial rises up to s = 1. A steeper one, with its maximum inside the interval, has a third point to err "
         "at, and errs less."),
    ],
)
def best_cubic(lower):
    """Return (a, b) of the odd cubic a s + b s^3 that is closest to 1 on [lower, 1]: a = -total b, p(l) = p(1)."""
    total = 1 + lower + lower**2
    at_end, at_maximum = total - 1, 2 / 3 * total * math.sqrt(total / 3)  # of total s - s^3
    size = 2 / (at_end + at_maximum)
    return torch.tensor([size * total, -size], dtype=torch.float64)


def _pair_on(lower, upper):
    """Return a, b and the worst error of the cubic that is closest to 1 on [lower, upper]."""
    a, b = (float(x) for x in best_cubic(lower / upper))
    return a / upper, b / upper**3, 1 - (a + b)


def _is_best_for_the_rest(lower, answer):
    error = _pair_on(lower, 1.0)[2]
    s = torch.linspace(1 - error, 1 + error, 2001, dtype=torch.float64)
    worst = (odd_polynomial(s, (float(answer[0]), float(answer[1]), 0.0)) - 1).abs().max()
    return float(worst) <= _pair_on(1 - error, 1 + error)[2] * (1 + 1e-6)


@lesson.exercise(
    "08.3", "The second step", difficulty=2, minutes=10,
    prompt="The best cubic for $[l, 1]$ maps these numbers onto $[1 - E, 1 + E]$, with $E$ its worst error. Write "
    "`second_cubic(lower)`: the pair $(a, b)$, as a float64 tensor, for which $as + bs^3$ is closest to 1 on "
    "$[1 - E, 1 + E]$, again by its worst error. `lower` is $l$. You may call your `best_cubic`, which is made for "
    "intervals that end at 1.",
    draw=inputs(lower=uniform(0.05, 0.35)),
    properties=[("Another cubic is closer to 1 on what the first one leaves.", _is_best_for_the_rest)],
    hints=(
        "Find E first: for the best cubic, p(1) = 1 - E.",
        "Divide by 1 + E, and the interval ends at 1. Where does it begin then?",
        "If q is best on [l', 1], then q(s / u) is best on [l' u, u]: what are its coefficients of s and of s³?",
    ),
    mistakes=[
        ("the first cubic again", edit("a, b, _ = best((1 - error) / upper)", "a, b, _ = best(lower)\n    upper = 1"),
         "You took the first cubic again. What it leaves is another interval, for which another cubic is best."),
        ("up to 1 only", edit("best((1 - error) / upper)", "best(1 - error)", "a / upper, b / upper**3", "a, b"),
         "Your cubic is best on [1 - E, 1]. The first step also leaves values up to 1 + E."),
        ("not scaled back", edit("a / upper, b / upper**3", "a, b"),
         "Your cubic is made for an interval that ends at 1. The numbers reach to 1 + E: scale the argument, s / (1 + E)."),
        ("scaled the wrong way", edit("a / upper, b / upper**3", "a * upper, b * upper**3"),
         "You multiplied by 1 + E where you should divide: the polynomial is taken at s / (1 + E)."),
        ("result divided", edit("a / upper, b / upper**3", "a / upper, b / upper"),
         "You divided both coefficients by 1 + E, and so the polynomial. It is its argument that is divided: the cube of "
         "s / (1 + E) brings three factors."),
        ("Newton-Schulz", lambda lower: torch.tensor([1.5, -0.5], dtype=torch.float64),
         "That is the cubic of Newton and Schulz. It is flat at 1, but on an interval a slightly steeper one is better."),
    ],
)
def second_cubic(lower):
    """Return (a, b) of the odd cubic that is closest to 1 on what the best cubic for [lower, 1] leaves."""

    def best(low):
        """Return the best cubic for [low, 1] and its worst error."""
        total = 1 + low + low**2
        at_end, at_maximum = total - 1, 2 / 3 * total * math.sqrt(total / 3)  # of total s - s^3
        size = 2 / (at_end + at_maximum)
        return size * total, -size, 1 - size * at_end

    _, _, error = best(lower)
    upper = 1 + error
    a, b, _ = best((1 - error) / upper)
    return torch.tensor([a / upper, b / upper**3], dtype=torch.float64)


def _is_counted(answer):
    return abs(float(answer) - count_flops(lambda W: 1.5 * W - 0.5 * W @ (W.mT @ W), 3072, 768)) < 0.5


lesson.value(
    "08.4", "What a step costs", difficulty=1, minutes=3,
    prompt="A $3072 \\times 768$ matrix $W$ takes one step of the cubic, $\\frac12(3W - \\dots)$. A product of an "
    "$h \\times m$ and an $m \\times w$ matrix counts $2hmw$ operations; sums of matrices are not counted. How many "
    "operations does the step take at least, if you may choose the side on which the Gram matrix is formed?",
    answer=4 * 768**2 * 3072,
    properties=[("torch counts another number of operations.", _is_counted)],
    hints=(
        "There are two products: the Gram matrix, and the Gram matrix times W.",
        "The Gram matrix on one side has 3072 rows, on the other side 768.",
        "Take the smaller one. Each of the two products then costs twice the square of the shorter side times the longer "
        "one.",
    ),
    mistakes=[
        ("the larger Gram matrix", 4 * 3072**2 * 768,
         "You formed WWᵀ, which has 3072 rows. WᵀW has 768, and the step is four times cheaper."),
        ("one product", 2 * 768**2 * 3072,
         "That is one product. Forming the Gram matrix and multiplying by it are two, of equal cost."),
        ("two for each entry", 4 * 3072 * 768,
         "You counted two operations for each entry of W in each product. Every entry of a result is itself a "
         "sum of many products."),
        ("square of the Gram matrix", 4 * 768**3,
         "You counted products of two 768 x 768 matrices. One factor is W itself, with 3072 rows."),
        ("a quintic", 4 * 768**2 * 3072 + 2 * 768**3,
         "You also squared the Gram matrix, as a quintic needs. The cubic takes two products."),
        ("a third product", 6 * 768**2 * 3072,
         "You counted three products. After the Gram matrix is formed, one product with W is left; the sum is not counted."),
        ("both sides", 2 * 768**2 * 3072 + 2 * 3072**2 * 768,
         "You mixed the two sides: once WᵀW is formed, with 768 rows, the second product is W(WᵀW), of the same cost."),
        ("shapes cubed", 4 * 3072**3,
         "You took all sides as 3072. W has only 768 columns, and WᵀW only 768 rows and columns."),
        ("entries of the result", 2 * 768**2 + 2 * 768 * 3072,
         "You counted two operations for each entry of the results. Each entry is a sum of many products: 2hmw in all."),
    ],
)


EXERCISES = lesson.exercises
