"""What learners of lesson 12 answer, and what gives its predictions away."""

import math
from fractions import Fraction
from itertools import product

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "12.P1": [r"(?i)\bunits?\b", r"(?i)length of (its|the) (own )?column", r"(?i)columns of length 1"],
    "12.P2": [r"(?i)of 20 splits", r"(?i)gained from ignoring"],
    "12.P3": [r"(?i)tuned weight decay", r"(?i)weight decay (is|did) better", r"(?i)about the same"],
}

NEIGHBOURS = {
    "12.e1": ("gram + chance * masked.T @ masked,", "gram + chance * masked.T @ masked + torch.eye(2) / 16,"),
    "12.2": ("lengths = table.square().sum(0)  # of the columns, squared", "lengths = table.square().sum(1)"),
    "12.3": ("best = generalised_ridge(X, t, 0.25 * X.square().sum(0))",
             "best = generalised_ridge(X, t, 0.25 * X.square().sum(1))"),
    "12.4": ("u = generalised_ridge(X / lengths, t, torch.full((2,), 0.25))",
             "u = generalised_ridge(X / lengths, t, torch.full((2,), 0.2))"),
    "12.e2": ("int((dropped < plain).sum()), at_least=15)", "int((dropped < plain - 0.05).sum()), at_least=15)"),
    "12.e3": ("int((plain < dropped).sum()), at_least=15)", "int((plain < dropped - 0.1).sum()), at_least=15)"),
    "12.5": ("hidden.square().mean(0) * V.square().sum(1)", "hidden.mean(0).square() * V.square().sum(1)"),
    "12.e4": ('(wrong["coins"] - wrong["their mean"]).mean()', '(wrong["coins"] - wrong["nothing"]).mean()'),
    "12.e5": ('wrong["weight decay"] - rivals, at_most', 'wrong["nothing"] - rivals, at_most'),
}  # fmt: skip


def three(mean, variance, error):
    return {"mean": mean, "variance": variance, "error": error}


def solved(matrix, target, keep, penalty):
    """Ridge regression with a penalty for each weight, for inputs without a mask."""
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


def pair(w1, w2):
    return {"w1": w1, "w2": w2}


def over_all_masks(hidden, readout, keep):
    """The variance of the scores over all masks, one by one."""
    plain, total = hidden @ readout, 0.0
    for kept in product((0.0, 1.0), repeat=hidden.shape[1]):
        chance = keep ** sum(kept) * (1 - keep) ** (len(kept) - sum(kept))
        scores = (hidden * torch.tensor(kept, dtype=hidden.dtype) / keep) @ readout
        total = total + chance * (scores - plain).square().sum(1).mean()
    return total


def in_one_einsum(hidden, readout, keep):
    return (1 / keep - 1) * torch.einsum("nj,jk->n", hidden**2, readout**2).mean()


ANSWERS = {
    "12.1": [
        ("solved", "by the formulas", three(0.8 * 2.5, 0.16 * (2.1**2 + 0.4**2), 0.16 * (2.1**2 + 0.4**2))),
        ("solved", "fractions", three(Fraction(2), Fraction(457, 625), Fraction(457, 625))),
        ("solved", "tensors", three(torch.tensor(2.0), torch.tensor(0.7312), torch.tensor(0.7312))),
        ("no coins in the error", "the error of the mean", three(2, 0.7312, 0)),
        ("not thinned", "the prediction without a mask", three(2.5, 0.7312, 0.25 + 0.7312)),
        ("standard deviation", "a root", three(2, math.sqrt(0.7312), 0.7312)),
        ("one coin for the row", "0.16 times 2.5 squared", three(2, 0.16 * 6.25, 0.16 * 6.25)),
        ("chance of loss", "0.2 for 0.8", three(0.5, 0.7312, 1.5**2 + 0.7312)),
        ("second moment", "the mean of the square", three(2, 4.7312, 0.7312)),
        ("error twice", "variance counted twice", three(2, 0.7312, 1.4624)),
        ("wrong", "the four errors, not weighted", three(1.25, 1.1425, 1.705)),
        ("malformed", "a list", [2.0, 0.7312, 0.7312]),
    ],
    "12.2": [
        ("solved", "moments of the masked matrix", by_second_moment),
        ("solved", "rows below the data", by_more_rows),
        ("solved", "ridge in w, then over p", lambda matrix, target, keep: solved(
            matrix, target, keep, (1 - keep) / keep * matrix.square().sum(0)) / keep),
        ("for inputs without a mask", "ridge in w", lambda matrix, target, keep: solved(
            matrix, target, keep, (1 - keep) / keep * matrix.square().sum(0))),
        ("not thinned", "the right side without p", edit("keep * matrix.T @ target)", "matrix.T @ target)")),
        ("plain ridge", "one penalty", edit("torch.diag(squares)", "torch.eye(len(squares), dtype=matrix.dtype)")),
        ("lengths for squares", "norms", edit("matrix.square().sum(0)", "matrix.norm(dim=0)")),
        ("no penalty", "least squares over p", lambda matrix, target, keep: torch.linalg.lstsq(
            matrix, target[:, None]).solution[:, 0] / keep),
        ("mean for sum", "mean square", edit(".sum(0)", ".mean(0)")),
        ("wrong", "p squared for p (1 - p)", edit("keep * (1 - keep) * torch.diag", "keep**2 * torch.diag")),
        ("malformed", "a column", lambda matrix, target, keep: by_second_moment(matrix, target, keep)[:, None]),
    ],
    "12.3": [
        ("solved", "0.8 over 0.2", 0.8 / (1 - 0.8)),
        ("solved", "a fraction", Fraction(4, 1)),
        ("solved", "a whole number", 4),
        ("keep for drop", "p of the text", 0.2 / 0.8),
        ("not rescaled", "p (1 - p)", 0.8 * 0.2),
        ("the root", "a root", 2),
        ("over keep squared", "variance over keep squared", 0.8 / 0.2**2),
        ("p itself", "lambda = p", 0.8),
        ("wrong", "lambda = 1 - p", 0.2),
        ("second moment", "1 / (1 - p)", 5.0),
        ("malformed", "a string", "4"),
    ],
    "12.4": [
        ("solved", "the long column matters", pair(5, 0)),
        ("solved", "raw weights alike, larger", pair(0.5, 0.5)),
        ("solved", "a sign", pair(-1.0, 1.0)),
        ("need", "beyond the bound", pair(1e6, 1)),
        ("equal effects", "the same effect", pair(1, 10)),
        ("equal effects", "with a sign", pair(-0.3, 3.0)),
        ("the short column matters", "only the short one", pair(0, 100)),
        ("the short column matters", "mostly", pair(0.1, 3)),
        ("no effect", "zeros", pair(0, 0)),
        ("wrong", "both effects far above the noise", pair(1000, 1000)),
        ("malformed", "a tensor", torch.tensor([1.0, 1.0])),
    ],
    "12.5": [
        ("solved", "all masks", over_all_masks),
        ("solved", "one einsum", in_one_einsum),
        ("solved", "image by image", lambda hidden, readout, keep: (1 - keep) / keep * torch.stack(
            [((h[:, None] * readout) ** 2).sum() for h in hidden]).mean()),
        ("not divided", "p (1 - p)", edit("(1 - keep) / keep", "keep * (1 - keep)")),
        ("drop for keep", "the other probability", edit("(1 - keep) / keep", "keep / (1 - keep)")),
        ("sum over images", "all images", lambda hidden, readout, keep: len(hidden) * in_one_einsum(
            hidden, readout, keep)),
        ("mean over scores", "a mean of V", edit("square().sum(1)", "square().mean(1)")),
        ("weights only", "weight decay", lambda hidden, readout, keep: (1 - keep) / keep * readout.square().sum()),
        ("square of the mean", "the mean first", edit("hidden.square().mean(0)", "hidden.mean(0).square()")),
        ("not squared", "h for its square", edit("hidden.square().mean(0)", "hidden.mean(0)")),
        ("wrong", "the score, squared", lambda hidden, readout, keep: (1 - keep) / keep * (
            hidden @ readout).square().sum(1).mean()),
        ("malformed", "one number an image", lambda hidden, readout, keep: (1 - keep) / keep * (
            hidden**2 @ readout**2).sum(1)),
    ],
}  # fmt: skip
