"""Exercises of lesson 23, PCA and autoencoders."""

import math

import torch

from course_lib.lessons.pca_and_autoencoders.contents import lesson
from course_lib.representation.pca import linear_gradients, linear_loss, reconstruction_loss
from course_lib.teaching import close, edit, inputs, near, normal, uniform, whole


@lesson.exercise(
    "23.1", "The decoder's gradient", difficulty=2, minutes=8,
    prompt="Write `decoder_gradient(encoder, decoder, x)`: the encoder is $W_1$, units by inputs, the decoder $W_2$, inputs "
    "by units, and `x` holds one example in each row. Return $\\partial L/\\partial W_2$ of (23.1), the mean over the "
    "rows of $\\lVert x_n - W_2W_1x_n\\rVert^2$, without autograd.",
    draw=inputs(encoder=normal("2 3"), decoder=normal("3 2"), x=normal("4 3")),
    properties=[
        ("A small step against it should lower the loss at the rate of its squared length.",
         lambda encoder, decoder, x, answer: _falls(encoder, decoder, x, answer)),
    ],
    agrees="Entry (i, j) should be the rate at which the loss grows with entry (i, j) of W₂ alone.",
    hints=(
        "Write the residual of one example, and what a small change of $W_2$ does to it.",
        "The codes $W_1x_n$ multiply $W_2$: the gradient is a mean of products of errors and codes.",
        "With one example in each row, codes are rows of `x @ encoder.T`. Which of two tables has to be transposed?",
    ),
    mistakes=[
        ("missing 2", edit("2 * error.T", "error.T"), "The factor 2 of the square is missing."),
        ("sign", edit("codes @ decoder.T - x", "x - codes @ decoder.T"),
         "The sign is turned: the residual is x minus the output, and it enters the square with a minus."),
        ("sum", edit(" / len(x)", ""),
         "You left out 1/n: the loss is a mean over the examples."),
        ("mean over entries", edit("/ len(x)", "/ x.numel()"),
         "You divided by the number of entries, as `mse_loss` does by default. The loss is a mean over examples."),
        ("second moments twice", edit("return 2 * error.T @ codes", "return 2 * x.T @ x @ error.T @ codes / len(x)"),
         "A factor S stands in front that does not belong there: the errors hold the inputs once already."),
        ("target forgotten", edit("codes @ decoder.T - x", "codes @ decoder.T"),
         "You differentiated the squared output. The target x is missing from the error."),
    ],
)
def decoder_gradient(encoder, decoder, x):
    """Average the products of errors and codes over the examples."""
    codes = x @ encoder.T
    error = codes @ decoder.T - x
    return 2 * error.T @ codes / len(x)


def _falls(encoder, decoder, x, answer):
    loss = lambda t: reconstruction_loss(encoder, decoder - t * answer, x) / len(x)  # noqa: E731
    # Of a polynomial of degree 2 in the step, the central difference is the exact slope.
    slope = float(loss(0.5) - loss(-0.5))
    return close(slope, -float(answer.square().sum()), rtol=1e-6)


lesson.value(
    "23.2", "Not quite the lowest", difficulty=2, minutes=6,
    prompt="Inputs have the variances 9, 5, 2 and 1 along their principal axes. Two units stand on two of these axes as in "
    "(23.3), but the loss is not at its minimum. What is the smallest loss that they can have there?",
    answer=6,
    properties=[
        ("Of all pairs of axes but the first two, the lowest loses the second and the fourth variance.",
         lambda answer: close(answer, min(17 - a - b for a, b in ((9, 2), (9, 1), (5, 2), (5, 1), (2, 1))))),
    ],
    hints=(
        "Which directions are lost, if the two units stand on a pair of axes?",
        "The part of the data along an axis with the variance s has the mean square s.",
        "Which pair has the second largest sum of variances?",
    ),
    mistakes=[
        ("the minimum", 3, "That is the loss of PCA, on the first and the second axis: the minimum itself."),
        ("what is kept", 11, "That is what the units return there. The loss is what they do not."),
        ("one axis further", 7, "That is the loss on the first and the fourth axis. Another pair loses less."),
        ("the highest", 14, "That is the highest loss of two units in use, on the last two axes."),
        ("singular values", 5**0.5 + 1, "The variances are squares already: add them, "
         "not their roots.", near(3.236, within=0.006)),
    ],
)


@lesson.exercise(
    "23.3", "How much later", difficulty=2, minutes=7,
    prompt="On axis $j$, a unit has the encoder weight $a$ and the decoder weight $b$. While both are small, a step "
    "replaces $a$ by $a + 2\\eta s_jb$ and $b$ by $b + 2\\eta s_ja$. Write `later(variances, step_size, factor)`: how many "
    "steps more it takes until $a + b$ has grown to a given size, if all weights start `factor` times smaller. `variances` "
    "is a float64 tensor of the $s_j$; return one number for each of them, without rounding.",
    draw=inputs(variances=lambda generator: 0.5 + 5 * torch.rand(3, generator=generator, dtype=torch.float64),
                step_size=uniform(0.02, 0.1), factor=uniform(5, 1000)),
    properties=[
        ("A smaller start takes longer: the numbers should be positive.", lambda answer: bool((answer > 0).all())),
        ("The larger the variance, the fewer steps more.",
         lambda variances, answer: bool((answer[variances.argsort()].diff() < 0).all())),
    ],
    agrees="The sum a + b, multiplied so many times by what a step makes of it, should have grown by `factor`.",
    hints=(
        "Add the two updates. What does one step make of a + b?",
        "After t steps the sum has been multiplied t times by the same number.",
        "By which power of that number is `factor` made good? Take logarithms.",
    ),
    mistakes=[
        ("missing 2", edit("2 * step_size", "step_size"), "The factor 2 of the gradient is missing."),
        ("continuous time", edit("torch.log1p(2 * step_size * variances)", "(2 * step_size * variances)"),
         "That is for infinitely small steps: log(1 + x) is less than x."),
        ("no logarithm", edit("math.log(factor)", "factor"),
         "The sum grows by a factor in each step, not by an amount: take the logarithm of what is missing."),
        ("decimal logarithm", edit("math.log(factor)", "math.log10(factor)"), "Use the same logarithm in both places."),
        ("squared", edit("math.log(factor)", "2 * math.log(factor)"),
         "You asked when ab has grown by the square. The start of a + b is smaller by `factor` only."),
        ("half the growth", edit("torch.log1p(2 * step_size * variances)", "torch.log1p((2 * step_size * variances) ** 2)"),
         "The weights are coupled: each grows by the other, so the sum grows at first order in η."),
    ],
)
def later(variances, step_size, factor):
    """Divide the logarithm of the factor by that of the growth in a step."""
    return math.log(factor) / torch.log1p(2 * step_size * variances)


lesson.value(
    "23.4", "What a penalised minimum costs", difficulty=2, minutes=8,
    prompt="Data have the mean squares $s = 4$ and $s = 1$ along their two axes. The loss is $\\frac1n\\sum_n\\lVert x_n - "
    "W_2W_1x_n\\rVert^2 + \\lambda\\lVert W_1\\rVert_F^2 + \\lambda\\lVert W_2\\rVert_F^2$ with two units and $\\lambda = "
    "\\frac12$. How large is it at its minimum?",
    answer=27 / 16,
    properties=[
        ("A direction s with the factor p = 1 - λ/s costs s(1 - p)² + 2λp.",
         lambda answer: close(answer, sum(s * (0.5 / s) ** 2 + 2 * 0.5 * (1 - 0.5 / s) for s in (4, 1)), rtol=1e-3)),
    ],
    hints=(
        "Each direction is a problem of its own: which factor p is left of it?",
        "A factor p needs a weight √p in the encoder and one in the decoder. What do their squares cost?",
        "For one direction the sum is s(1 - p)² + 2λp. Insert the best p, and add both directions.",
    ),
    mistakes=[
        ("orthonormal weights", 2, "That is the loss of PCA's orthonormal weights. Slightly smaller ones cost less."),
        ("penalty only", 1.375, "That is the penalty. The reconstruction is no longer perfect: add its error."),
        ("error only", 0.3125, "That is the reconstruction error. Add the penalties of both matrices."),
        ("one matrix", 1.0, "You counted the penalty of one matrix: both are penalised.", near(1.0, within=1e-3)),
        ("no weights at all", 5, "That is the loss with all weights 0. Both directions are larger than λ, so weights pay."),
    ],
)


def _moment(generator):
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    low = torch.rand((), generator=generator, dtype=torch.float64)
    values = torch.stack([5 + 2 * low, 2.5 + low, 0.2 + low / 2])
    return (turn * values) @ turn.T


@lesson.exercise(
    "23.5", "The penalised map", difficulty=3, minutes=14,
    prompt="Write `best_map(moment, k, penalty)`: `moment` is $S = \\frac1n\\sum_n x_nx_n^\\top$, float64 and symmetric, "
    "with different eigenvalues. Return the matrix $W_2W_1$, in the shape of `moment`, at the minimum of $\\mathrm{tr}\\big("
    "(I - W_2W_1)S(I - W_2W_1)^\\top\\big) + \\lambda\\lVert W_1\\rVert_F^2 + \\lambda\\lVert W_2\\rVert_F^2$ with $k$ "
    "units, where `penalty` is $\\lambda$.",
    draw=inputs(moment=_moment, k=whole(1, 2), penalty=uniform(0.1, 6.0)),
    properties=[
        ("The map should be symmetric.", lambda answer: close(answer, answer.T, atol=1e-7)),
        ("Weights that make this map should have a zero gradient.",
         lambda moment, k, penalty, answer: _stationary(moment, k, penalty, answer)),
    ],
    agrees="It should be the map with the smallest loss.",
    hints=(
        "In the basis of the eigenvectors each direction has a factor of its own.",
        "The factor of a direction with the eigenvalue s falls on a straight line as λ grows, and stays at 0 from λ = s "
        "on.",
        "`torch.linalg.eigh` sorts upwards: the k largest eigenvalues stand at the end.",
    ),
    mistakes=[
        ("ridge's factor", edit("(1 - penalty / values).clamp(min=0)", "values / (values + penalty)"),
         "s/(s + λ) belongs to a penalty on W2 W1 as one matrix. With both factors penalised it is another one."),
        ("not clamped", edit(".clamp(min=0)", ""),
         "Below λ the factor would be negative: a direction that does not pay is dropped, not turned round."),
        ("square roots left", edit("(1 - penalty / values).clamp(min=0)", "(1 - penalty / values).clamp(min=0).sqrt()"),
         "√p is the singular value of each of the two matrices. Their product has p."),
        ("hard threshold", edit("(1 - penalty / values).clamp(min=0)", "(values > penalty).double()"),
         "You kept directions above λ as they are: the penalty shrinks them too."),
        ("no penalty", edit("(1 - penalty / values).clamp(min=0)", "torch.ones_like(values)"),
         "That is PCA's projection, the minimum for λ = 0."),
        ("twice the penalty", edit("1 - penalty / values", "1 - 2 * penalty / values"),
         "Both matrices are penalised, and the square of the error has a 2 as well: they cancel."),
        ("smallest first", edit("values[-k:], axes[:, -k:]", "values[:k], axes[:, :k]"),
         "`eigh` sorts upwards: you took the smallest eigenvalues."),
        ("more than k", edit("values[-k:], axes[:, -k:]", "values, axes"),
         "You used all directions. Only k units are there."),
    ],
)
def best_map(moment, k, penalty):
    """Shrink the k leading directions, drop the rest."""
    values, axes = torch.linalg.eigh(moment)
    values, axes = values[-k:], axes[:, -k:]
    factors = (1 - penalty / values).clamp(min=0)
    return (axes * factors) @ axes.T


def _stationary(moment, k, penalty, answer):
    """Split a symmetric map into equal halves, and look at both gradients."""
    factors, axes = torch.linalg.eigh((answer + answer.T) / 2)
    encoder = (axes[:, -k:] * factors[-k:].clamp(min=0).sqrt()).T
    both = linear_gradients(encoder, encoder.T, moment, penalty)
    return max(float(g.abs().max()) for g in both) < 1e-5 and float(linear_loss(encoder, encoder.T, moment, penalty)) >= 0


def _point(p, q, r, t):
    return all(abs(v) < 1e6 for v in (p, q, r, t))


def _vertical(p, q, r, t):
    return abs(p - r) <= 1e-9 * (1 + abs(p)) and abs(q - t) > 1e-9 * (1 + abs(q))


def _horizontal(p, q, r, t):
    return abs(p * q + r * t) <= 1e-9 * (p * p + q * q + r * r + t * t) and p * p + r * r > q * q + t * t


lesson.flaw(
    "23.6", "Without a mean", difficulty=1, minutes=7,
    prompt="\"A linear autoencoder $W_2W_1x$ with one unit and no bias finds the first principal component.\" That needs "
    "centred data. Give a counterexample with two points $(p, q)$ and $(r, t)$ in the plane: their first principal "
    "component is vertical, $(0, 1)$, but the unit of the best autoencoder stands on the horizontal axis, $(1, 0)$. The "
    "answer is a dictionary with the numbers `p`, `q`, `r`, `t`.",
    answer={"p": 3, "q": 1, "r": 3, "t": -1},
    properties=[
        ("The numbers should be smaller than a million.", _point),
        ("The first principal component of these two points is not vertical.", _vertical),
        ("The best unit does not stand on the horizontal axis.", _horizontal),
    ],
    hints=(
        "The principal component of two points is the direction from one to the other.",
        "The autoencoder looks at the sum of x xᵀ, from the origin. What makes that large in the horizontal direction?",
        "Put two points above each other, at equal heights above and below the horizontal axis, and move both.",
    ),
    mistakes=[
        ("centred", {"p": 0, "q": 1, "r": 0, "t": -1},
         "The mean of these points is 0: the autoencoder does find their principal component. Move both away from the "
         "origin.",
         lambda p, q, r, t: _point(p, q, r, t) and _vertical(p, q, r, t) and p + r == 0 and q + t == 0),
        ("moved too little", {"p": 1, "q": 2, "r": 1, "t": -2},
         "Seen from the origin the points still spread more vertically than horizontally: move them further.",
         lambda p, q, r, t: _point(p, q, r, t) and _vertical(p, q, r, t) and q + t == 0 and 0 < abs(p) <= abs(q)),
        ("a slanted sum", {"p": 3, "q": 1, "r": 3, "t": 2},
         "The unit stands close to the mean of these points, not exactly on the horizontal axis: the mean is not on it.",
         lambda p, q, r, t: _point(p, q, r, t) and _vertical(p, q, r, t) and abs(q + t) > 1e-6 and abs(p) > abs(q)),
        ("side by side", {"p": 1, "q": 3, "r": -1, "t": 3},
         "These points lie beside each other: their principal component is horizontal.",
         lambda p, q, r, t: _point(p, q, r, t) and q == t and p != r),
    ],
)


@lesson.exercise(
    "23.7", "Back from k components", difficulty=1, minutes=8,
    prompt="Write `back_from_components(x, k)`: `x` holds one example in each row, float64. Return, in the same shape, what "
    "PCA with $k$ components returns of each row: the mean of the rows plus the projection of the rest on the $k$ "
    "principal directions.",
    draw=inputs(x=lambda generator: _cloud(generator), k=whole(1, 2)),
    properties=[
        ("The mean of the rows should stay.", lambda x, answer: close(answer.mean(0), x.mean(0), atol=1e-7)),
    ],
    agrees="Each row should be the mean plus its projection on the k leading directions.",
    hints=(
        "Which matrix has the principal directions as its right singular vectors?",
        "`torch.linalg.svd` returns the transposed V: its rows are directions, the largest first.",
        "With C for the k directions, one in each row, a centred row z becomes z CᵀC.",
    ),
    mistakes=[
        ("not centred", edit("mean = x.mean(0)", "mean = 0 * x.mean(0)"),
         "You did not centre the rows: the first direction then leads to the mean, not along the largest variance."),
        ("mean left out", edit("mean + centred", "centred"),
         "The mean is missing: add it again after the projection."),
        ("smallest first", edit("vh[:k]", "vh[-k:]"),
         "These are the directions of the smallest variances. `eigh` sorts upwards, `svd` downwards."),
        ("mean of each row", edit("x.mean(0)", "x.mean(1, keepdim=True)"),
         "You took the mean of each row over its entries. PCA removes the mean over the rows, one for each column."),
        ("one too many", edit("vh[:k]", "vh[: k + 1]"), "You kept k + 1 directions."),
        ("one too few", edit("vh[:k]", "vh[1 : k + 1]"), "You left out the first direction: it has the largest variance."),
        ("columns for rows", edit("vh[:k]", "vh.T[:k]"),
         "`svd` returns Vᵀ: the directions are its rows, and you took columns of it."),
    ],
)
def back_from_components(x, k):
    """Project the centred rows on the leading right singular vectors."""
    mean = x.mean(0)
    centred = x - mean
    _, _, vh = torch.linalg.svd(centred, full_matrices=False)
    directions = vh[:k]
    return mean + centred @ directions.T @ directions


def _cloud(generator):
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64) * torch.tensor([3.0, 1.5, 0.5], dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    return (x @ turn + torch.randint(-4, 5, (3,), generator=generator)).round(decimals=1)


EXERCISES = lesson.exercises
