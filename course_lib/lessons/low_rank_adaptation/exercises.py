"""Exercises of lesson 25, low-rank adaptation."""

import torch

from course_lib.lessons.low_rank_adaptation.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal, uniform, whole

lesson.value(
    "25.1", "What trains", difficulty=1, minutes=4,
    prompt="A linear layer has $d_{in} = 1024$ inputs and $d_{out} = 4096$ outputs. How many numbers train in an adapter of "
    "rank 8 on it?",
    answer=40960,
    properties=[("A has a row for each unit of the rank, B a column.",
                 lambda answer: close(answer, 8 * 1024 + 8 * 4096))],
    hints=(
        "Which shapes have A and B?",
        "A reads all inputs, r times. B writes all outputs, r times.",
        "Two products are to be added: one with 1024, one with 4096.",
    ),
    mistakes=[
        ("A alone", 8 * 1024, "That is A alone. B trains as well."),
        ("B alone", 8 * 4096, "That is B alone. A trains as well."),
        ("the product", 1024 * 4096, "That is the size of W and of B A, which is not stored."),
        ("all multiplied", 8 * 1024 * 4096, "You multiplied all three numbers. The sizes of two matrices are added."),
        ("with W", 1024 * 4096 + 40960, "You counted the frozen W as well."),
        ("a square core", 40960 + 64, "You counted an r by r matrix between A and B. There is none."),
    ],
)


@lesson.exercise(
    "25.2", "The gradient of B", difficulty=2, minutes=8,
    prompt="Write `gradient_of_b(grad, x, lora_A, scale)`: the layer is $y = Wx + sB(Ax)$ with one example in each row of "
    "`x`, and `grad` holds $\\partial L/\\partial y$, one example in each row. Return $\\partial L/\\partial B$, of shape "
    "outputs by rank, without autograd.",
    draw=inputs(grad=normal("4 3"), x=normal("4 5"), lora_A=normal("2 5"), scale=uniform(0.3, 3)),
    properties=[
        ("A small change of B should change the sum of grad · y at this rate.",
         lambda grad, x, lora_A, scale, answer: _slope(grad, x, lora_A, scale, answer)),
    ],
    agrees="Entry (i, j) should be the rate at which the sum of grad · y over all examples grows with entry (i, j) of "
    "B alone.",
    hints=(
        "What does B multiply? Compute that first, for all rows.",
        "The gradient of a matrix is a sum over examples of products: the gradient behind it times the input before it.",
        "With h = A x for each row, the sum of products is `grad.T @ h`. Which number is still missing?",
    ),
    mistakes=[
        ("scale forgotten", edit("scale * grad", "grad"), "The scale s is missing: it multiplies B in the output."),
        ("scale twice", edit("scale * grad", "scale**2 * grad"), "The scale entered twice. It stands once in the output."),
        ("mean", edit("@ hidden", "@ hidden / len(x)"), "You divided by the number of examples. `grad` holds the "
         "share of each example already: they are added."),
        ("sign", edit("scale * grad", "-scale * grad"), "The sign is turned: this is the step, not the gradient."),
        ("one example", edit("scale * grad.T @ hidden", "scale * grad[:1].T @ hidden[:1]"), "Only the first example is "
         "in it: add the products of all."),
        ("A normalised", edit("x @ lora_A.T", "x @ torch.linalg.pinv(lora_A)"), "You used the pseudo-inverse of A. Going "
         "back, a matrix is transposed, not inverted."),
    ],
)
def gradient_of_b(grad, x, lora_A, scale):
    """Sum the products of output gradients and hidden numbers over the examples."""
    hidden = x @ lora_A.T
    return scale * grad.T @ hidden


def _slope(grad, x, lora_A, scale, answer):
    """A direction of its own: the output is linear in B, so any finite change gives the slope."""
    change = torch.arange(6.0, dtype=torch.float64).reshape(3, 2) - 2
    slope = float((grad * (scale * x @ lora_A.T @ change.T)).sum())
    return close(slope, float((answer * change).sum()), rtol=1e-6, atol=1e-7)


def _gradient(generator):
    u, v = (torch.linalg.qr(torch.randn(n, 3, generator=generator, dtype=torch.float64)).Q for n in (3, 4))
    sizes = torch.tensor([3.0, 2.0, 1.0]).double() + 0.5 * torch.rand(3, generator=generator).double()
    return (u * sizes) @ v.T


@lesson.exercise(
    "25.3", "The best step of rank r", difficulty=3, minutes=12,
    prompt="Write `best_step(gradient, rank)`: `gradient` is $G = \\partial L/\\partial W$, float64, with different "
    "singular values. Of all matrices $\\Delta$ with rank at most `rank` and Frobenius norm 1, return the one along which "
    "the loss falls fastest: $\\langle G, \\Delta\\rangle$ is smallest.",
    draw=inputs(gradient=_gradient, rank=whole(1, 2)),
    properties=[
        ("Its Frobenius norm should be 1.", lambda answer: close(float(answer.norm()), 1.0, rtol=1e-6)),
        ("Its rank is too large.", lambda rank, answer: float(torch.linalg.svdvals(answer)[rank]) < 1e-9),
    ],
    agrees="The loss should fall as fast as it can.",
    hints=(
        "Without a limit on the rank, the answer is −G over its norm.",
        "⟨G, Δ⟩ is a sum over the singular directions of G. Which of them should a matrix of rank r use?",
        "Cut G after its r leading singular values, and keep their sizes.",
    ),
    mistakes=[
        ("sign", edit("-kept /", "kept /"), "Along this matrix the loss grows fastest: the sign is turned."),
        ("full rank", edit("(u[:, :rank] * values[:rank]) @ vh[:rank]", "gradient"),
         "That is −G over its norm: the best step, but its rank is too large."),
        ("equal sizes", edit("(u[:, :rank] * values[:rank])", "u[:, :rank]"), "All directions count alike here, as "
         "in Muon. With the Frobenius norm fixed, each should count by its singular value."),
        ("not normalised", edit("-kept / kept.norm()", "-kept"), "The direction is right. Its Frobenius norm should be 1."),
        ("spectral norm", edit("kept.norm()", "values[0]"), "You divided by the largest singular value. The Frobenius norm "
         "is the root of the sum of squares of all of them."),
        ("divided by all of G", edit("kept.norm()", "gradient.norm()"), "You divided by the norm of all of G. The norm of "
         "what you return, the cut matrix, should be 1."),
        ("smallest directions",
         edit("(u[:, :rank] * values[:rank]) @ vh[:rank]", "(u[:, -rank:] * values[-rank:]) @ vh[-rank:]"),
         "These are the directions with the smallest singular values."),
    ],
)
def best_step(gradient, rank):
    """Cut the gradient after its leading singular values, and turn it round."""
    u, values, vh = torch.linalg.svd(gradient, full_matrices=False)
    kept = (u[:, :rank] * values[:rank]) @ vh[:rank]
    return -kept / kept.norm()


lesson.value(
    "25.4", "The rank goes up", difficulty=2, minutes=6,
    prompt="An adapter with $B = 0$, random $A$ and the scale $s = \\alpha/r$ takes one step of plain gradient descent. You "
    "raise the rank from 4 to 36 and keep $\\alpha$ and the step size. By which factor is the change of the layer's "
    "outputs in this step, on average over $A$, multiplied?",
    answer=1 / 9,
    properties=[("The change goes like s² r.", lambda answer: close(answer, (4**2 * 36) / (36**2 * 4), rtol=0.01))],
    hints=(
        "How does s enter: in the gradient of B, in the output, or in both?",
        "The change is s² times the gradient times AᵀA. How large is AᵀA on average?",
        "AᵀA has the mean r/(3 d) times the identity, and s² is α²/r².",
    ),
    mistakes=[
        ("no change", 1, "That would be so if s entered once: it stands in the gradient of B and again in the output."),
        ("s squared alone", 1 / 81, "s² falls by 81, but nine times as many rows of A are summed.",
         near(1 / 81, within=1e-4)),
        ("upside down", 9, "It is the other way round: with α/r a larger rank moves less."),
        ("a root", 1 / 3, "1/3 is the root of the right factor. The change is s² times a sum over r rows of A: s² "
         "falls by 81, the sum grows by 9, and no root is taken.", near(1 / 3, within=4e-3)),
        ("s once", 1 / 27, "1/27 is 1/81 times the root of 9. The sum over the rows of A grows by 9 itself: on average "
         "AᵀA is r/(3d) times the identity.", near(1 / 27, within=4e-4)),
        ("the change of the rank", 32, "32 is the difference of the ranks. Look for a ratio."),
    ],
)


def _small(w, d):
    return 0 < abs(d) <= abs(w) < 1e6


def _back(w, d):
    w, d = (torch.tensor(float(v), dtype=torch.float32) for v in (w, d))
    return float((w + d) - d), float(w)


lesson.flaw(
    "25.5", "Take it out again", difficulty=2, minutes=6,
    prompt="\"A merged weight $w + d$ is unmerged by subtracting $d$: that gives $w$ back.\" Give a counterexample in "
    "float32: a weight `w` and an update `d` with $0 < |d| \\le |w| < 10^6$ for which $(w + d) - d \\ne w$, each operation "
    "rounded to float32. The answer is a dictionary with the numbers `w` and `d`.",
    answer={"w": 1.1, "d": 1.0},
    properties=[
        ("Neither number should be 0, d at most as large as w in size, and w below 10⁶ in size.", _small),
        ("In float32, this sum minus d is w again, bit for bit.", lambda w, d: _back(w, d)[0] != _back(w, d)[1]),
    ],
    hints=(
        "A sum is rounded to 24 binary digits. Which sums are exact?",
        "Small whole numbers, and halves or quarters of them, are added exactly. Decimal fractions are not.",
        "Let the sum pass a power of two, so that it has one digit less behind the point than w has.",
    ),
    mistakes=[
        ("whole numbers", {"w": 3, "d": 1}, "Whole numbers below 2²⁴ are added exactly in float32. Take a number "
         "with many binary digits behind the point.",
         lambda w, d: _small(w, d) and float(w).is_integer() and float(d).is_integer() and _same(w, d)),
        ("the update is the larger one", {"w": 1e-9, "d": 1.0}, "A large update takes digits from the weight, but "
         "here it must not be larger than the weight: |d| ≤ |w|.", lambda w, d: 0 < abs(w) < abs(d)),
        ("no update", {"w": 1.0, "d": 0}, "With d = 0 nothing was merged.", lambda w, d: d == 0),
        ("halves", {"w": 1.5, "d": 0.25}, "Binary fractions with few digits are added exactly. Take a number that has many.",
         lambda w, d: _small(w, d) and _same(w, d) and not (float(w).is_integer() and float(d).is_integer())
         and all(float(v * 1024).is_integer() and abs(v) * 1024 < 2**23 for v in (w, d))),
    ],
)


def _same(w, d):
    back, start = _back(w, d)
    return back == start


EXERCISES = lesson.exercises
