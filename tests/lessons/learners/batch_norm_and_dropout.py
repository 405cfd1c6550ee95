"""What learners of lesson 09 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "09.P1": [r"-4, ?-2, ?0, ?6", r"removes the mean", r"add up to 0|sum to 0"],
    "09.P2": [r"100 times", r"\b30\b"],
    "09.P3": [r"Gamma", r"(?i)each column|length of (its|the) column"],
}


def by_autograd(x, g, gamma):
    x = x.clone().requires_grad_()
    y = gamma * (x - x.mean()) / x.std(correction=0)
    return torch.autograd.grad(y, x, g)[0]


def by_jacobian(x, g, gamma):
    n, s = len(x), x.std(correction=0)
    normal = (x - x.mean()) / s
    jacobian = torch.eye(n, dtype=x.dtype) - (1 + torch.outer(normal, normal)) / n
    return gamma / s * jacobian @ g


def as_printed_in_frameworks(x, g, gamma):
    """The form with three sums that many implementations have."""
    n, s = len(x), x.std(correction=0)
    normal = (x - x.mean()) / s
    return (n * g * gamma - (g * gamma).sum() - normal * (g * gamma * normal).sum()) / (n * s)


def with_eps(x, g, gamma):
    x = x.clone().requires_grad_()
    y = torch.nn.functional.batch_norm(x[:, None], None, None, training=True)[:, 0] * gamma
    return torch.autograd.grad(y, x, g)[0]


def by_layer(batches, momentum):
    layer = torch.nn.BatchNorm1d(batches.shape[2], momentum=momentum, dtype=batches.dtype)
    for batch in batches:
        layer(batch)
    return layer.running_var


def in_one_sum(batches, momentum):
    steps = len(batches)
    weights = momentum * (1 - momentum) ** torch.arange(steps - 1, -1, -1, dtype=batches.dtype)
    return (1 - momentum) ** steps + weights @ batches.var(1)


def solved(matrix, target, keep, penalty):
    gram = matrix.T @ matrix + torch.diag(penalty)
    return torch.linalg.solve(gram, matrix.T @ target)


def by_second_moment(matrix, target, keep):
    """Zero the gradient of the loss with E[M^T M] and E[M] of the masked matrix."""
    gram = keep**2 * matrix.T @ matrix
    index = torch.arange(len(gram))
    gram[index, index] = keep * matrix.square().sum(0)
    return torch.linalg.solve(gram, keep * matrix.T @ target)


def by_more_rows(matrix, target, keep):
    """The penalty as rows below the data."""
    rows = torch.diag(math.sqrt((1 - keep) / keep) * matrix.norm(dim=0))
    below = torch.cat([target, torch.zeros(len(rows), dtype=target.dtype)])
    return torch.linalg.lstsq(torch.cat([matrix, rows]), below[:, None]).solution[:, 0] / keep


def two(first, second):
    return {"first": first, "second": second}


def three(g1, g2, g3):
    return {"g1": g1, "g2": g2, "g3": g3}


ANSWERS = {
    "09.1": [
        ("solved", "g minus its mean, twice", two(2 * (5 - 1), 2 * (0 - 1))),
        ("solved", "fractions of n", two(Fraction(4, 5) * 10, -Fraction(1, 5) * 10)),
        ("solved", "tensors", two(torch.tensor(8.0), torch.tensor(-2.0))),
        ("mean is a constant", "2 g", two(10, 0)),
        ("no weight", "without the factor 2", two(4, -1)),
        ("the others only", "kept x_1 whole", two(10, -2)),
        ("sum for mean", "g minus its sum", two(0, -10)),
        ("n - 1", "the mean of the others", two(7.5, -2.5)),
        ("sign", "a share of the gradient", two(8, 2)),
        ("exchanged", "the two exchanged", two(-2, 8)),
        ("wrong", "the mean subtracted after the weight", two(2 * 5 - 1, -1)),
        ("malformed", "all five", [8, -2, -2, -2, -2]),
    ],
    "09.2": [
        ("autograd", "autograd", by_autograd),
        ("solved", "the whole Jacobian", by_jacobian),
        ("solved", "three sums, as frameworks print it", as_printed_in_frameworks),
        ("constants", "gamma g / s", lambda x, g, gamma: gamma * g / x.std(correction=0)),
        ("mean only", "g minus its mean", lambda x, g, gamma: gamma * (g - g.mean()) / x.std(correction=0)),
        ("mean forgotten", "the part along x-hat only", edit(" - g.mean()", "")),
        ("sum along", "a product without 1/n", edit("(g * normal).mean()", "(g @ normal)")),
        ("no 1/s", "the projection alone", edit("gamma / s *", "gamma *")),
        ("unbiased", "torch's std as it comes", edit("(x - x.mean()).square().mean().sqrt()", "x.std()")),
        ("no weight", "gamma of 1", lambda x, g, gamma: by_autograd(x, g, 1.0)),
        ("divided by the variance", "1 over s squared", edit("gamma / s *", "gamma / s**2 *")),
        ("wrong", "eps of the layer", with_eps),
        ("malformed", "a column", lambda x, g, gamma: by_jacobian(x, g, gamma)[:, None]),
    ],
    "09.3": [
        ("solved", "x itself", three(-1, 0, 1)),
        ("solved", "x turned round", three(3.0, 0.0, -3.0)),
        ("solved", "x and a constant", three(1, 2, 3)),
        ("need", "ones", three(1, 1, 1)),
        ("need", "minus fives", three(-5.0, -5.0, -5.0)),
        ("need", "no gradient", three(0, 0, 0)),
        ("across both", "what passes whole", three(1, -2, 1)),
        ("a single example", "the first one", three(1, 0, 0)),
        ("wrong", "sum 0 alone", three(2, -1, -1)),
        ("wrong", "squares of x", three(1, 0, 1)),
        ("malformed", "a tensor", torch.tensor([-1.0, 0.0, 1.0])),
    ],
    "09.4": [
        ("solved", "the layer itself", by_layer),
        ("solved", "one weighted sum", in_one_sum),
        ("solved", "lerp",
         edit("(1 - momentum) * running + momentum * batch.var(0)", "running.lerp(batch.var(0), momentum)")),
        ("biased", "over n", edit("batch.var(0)", "(batch - batch.mean(0)).square().mean(0)")),
        ("momentum the other way", "as an optimiser's", lambda batches, momentum: by_layer(batches, 1 - momentum)),
        ("deviation", "std", edit("batch.var(0)", "batch.std(0)")),
        ("from zero", "zeros", edit("ones_like", "zeros_like")),
        ("last batch", "only the last", lambda batches, momentum: batches[-1].var(0)),
        ("one variance", "over both axes", edit("batch.var(0)", "batch.var().expand(batch.shape[1])")),
        ("mean over the batches", "the average of all variances", lambda batches, momentum: batches.var(1).mean(0)),
        ("wrong", "of all data at once", lambda batches, momentum: batches.flatten(0, 1).var(0)),
        ("malformed", "over the channels", edit("batch.var(0)", "batch.var(1)")),
    ],
    "09.5": [
        ("solved", "p over 1 - p", 0.8 / (1 - 0.8)),
        ("solved", "a fraction", Fraction(4, 1)),
        ("solved", "a whole number", 4),
        ("keep for drop", "the notes' letter", 0.2 / 0.8),
        ("not rescaled", "p (1 - p)", 0.8 * 0.2),
        ("the root", "factor of Gamma", 2),
        ("over keep squared", "variance over keep squared", 0.8 / 0.2**2),
        ("p itself", "lambda = p", 0.8),
        ("wrong", "lambda = 1 - p", 0.2),
        ("second moment", "1 / (1 - p)", 5.0),
        ("malformed", "a string", "4"),
    ],
    "09.6": [
        ("solved", "moments of the masked matrix", by_second_moment),
        ("solved", "rows below the data", by_more_rows),
        ("solved", "an inverse",
         edit("torch.linalg.solve(gram, matrix.T @ target)", "torch.linalg.inv(gram) @ (matrix.T @ target)")),
        ("not rescaled", "w", lambda matrix, target, keep: solved(
            matrix, target, keep, (1 - keep) / keep * matrix.square().sum(0))),
        ("drop for keep", "p is what goes", edit("(1 - keep) / keep", "keep / (1 - keep)")),
        ("plain ridge", "one penalty", lambda matrix, target, keep: solved(
            matrix, target, keep, torch.full_like(matrix[0], (1 - keep) / keep)) / keep),
        ("lengths for squares", "norms", edit("matrix.square().sum(0)", "matrix.norm(dim=0)")),
        ("no penalty", "least squares over p", lambda matrix, target, keep: torch.linalg.lstsq(
            matrix, target[:, None]).solution[:, 0] / keep),
        ("mean for sum", "mean square", edit(".sum(0)", ".mean(0)")),
        ("dropout not seen", "least squares", lambda matrix, target, keep: torch.linalg.lstsq(
            matrix, target[:, None]).solution[:, 0]),
        ("wrong", "p(1 - p), as for w~, and divided", edit("(1 - keep) / keep", "(1 - keep) * keep")),
        ("malformed", "a column", lambda matrix, target, keep: by_second_moment(matrix, target, keep)[:, None]),
    ],
}  # fmt: skip
