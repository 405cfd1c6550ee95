"""What learners of lesson 03 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import numpy as np
import torch

from course_lib.optimization.stochastic_gradient_descent import (
    distance_bound_step,
    loss_factor,
    minimum_norm_solution,
)

GIVES_AWAY = {
    "03.P1": [
        r"(?i)a million times shorter",
        r"(?i)no pull is left|a factor, not a term",
    ],
    "03.P2": [r"(?i)nearest to (the|their) start", r"(?i)nearest to \$w_0", r"(?i)shortest solution"],
    "03.P3": [
        r"(?i)hardly depends on the first step",
        r"(?i)on all sides of the best point",
        r"(?i)0\.9887",
    ],
}


def by_full_svd(X, y):
    U, s, Vh = torch.linalg.svd(X)
    return Vh.T @ ((U.T @ y) / s)


def by_thin_svd(X, y):
    U, s, Vh = torch.linalg.svd(X, full_matrices=False)
    return Vh.T @ ((U.T @ y) / s)


def by_sgd(X, y):
    w = torch.zeros(X.shape[1], dtype=X.dtype)
    for _ in range(10):
        w = w + 0.05 * X.T @ (y - X @ w)
    return w


def left_in_a_loop(X, e, eta):
    shares = []
    for x in X:
        new = e - eta * x * (x @ e)
        shares.append((new @ new) / (e @ e))
    return sum(shares) / len(shares)


def factor(*, smallest=lambda s: s.min() ** 2, longest=lambda r: r.max() ** 2, rows=len, c=(1, 2), sign=1):
    """The answer of 03.6 with some parts of it changed."""

    def answer(matrix, step_size, gain):
        s, lengths = torch.linalg.svdvals(matrix), matrix.norm(dim=1)
        linear = 2 * gain ** c[0] * smallest(s) / rows(matrix)
        quadratic = gain ** c[1] * s.max() ** 2 * longest(lengths) / rows(matrix)
        return 1 - linear * step_size + sign * quadratic * step_size**2

    return answer


def batch_step(
    *, row=lambda r: r.max() ** 2, share=lambda b: 1 / b, largest=lambda s, n: s.max() ** 2 / n, top=1
):
    """The answer of 03.6 with some parts of it changed."""

    def answer(matrix, batch, gain):
        s, lengths = torch.linalg.svdvals(matrix), matrix.norm(dim=1)
        return top / (gain * (share(batch) * row(lengths) + (1 - 1 / batch) * largest(s, len(matrix))))

    return answer


def case(**changed):
    return {"sigma_1": 2.0, "sigma_2": 1.0, "step_size": 0.1, "weight_1": 0.0, "weight_2": 1.0, **changed}


ANSWERS = {
    "03.1": [
        ("solved", "a fraction", Fraction(1, 25)),
        ("solved", "by the pseudoinverse", 1 / (3**2 + 4**2)),
        ("length not squared", "1/5", 1 / 5),
        ("full gradient of the square", "1/50", 1 / 50),
        ("whole step", "a projection needs no factor", 1),
        ("how far the point is", "10/5", 2),
        ("sum of the entries", "1/7", 0.1429),
        ("malformed", "the point itself", [1.2, 1.6]),
        ("wrong", "10/25", 0.4),
        ("wrong", "no step", 0),
    ],
    "03.2": [
        ("solved", "in a loop", left_in_a_loop),
        ("solved", "squared out, as in the text",
         lambda X, e, eta: 1 - (eta * (2 - eta * X.square().sum(1)) * (X @ e) ** 2).mean() / (e @ e)),
        ("averaged before squaring", "gradient descent",
         lambda X, e, eta: (e - eta / len(X) * X.T @ (X @ e)).square().sum() / e.square().sum()),
        ("sum for the mean", "no division by n",
         lambda X, e, eta: len(X) - (eta * (2 - eta * X.square().sum(1)) * (X @ e) ** 2).sum() / (e @ e)),
        ("not a share", "the distance", lambda X, e, eta: left_in_a_loop(X, e, eta) * (e @ e)),
        ("gradient of the square", "c = 2", lambda X, e, eta: left_in_a_loop(X, e, 2 * eta)),
        ("uphill", "plus", lambda X, e, eta: left_in_a_loop(X, e, -eta)),
        ("lengths not squared", "norms", lambda X, e, eta: torch.stack(
            [(e - eta * x * (x @ e)).norm() for x in X]).mean() / e.norm()),
        ("rows brought to length 1", "a step relative to the row", lambda X, e, eta: torch.stack(
            [(e - eta * x * (x @ e) / (x @ x)).square().sum() for x in X]).mean() / (e @ e)),
        ("the loss", "of X e", lambda X, e, eta: torch.stack(
            [(X @ (e - eta * x * (x @ e))).square().sum() for x in X]).mean() / (X @ e).square().sum()),
        ("wrong", "one draw only", lambda X, e, eta: (e - eta * X[0] * (X[0] @ e)).square().sum() / (e @ e)),
        ("malformed", "one share for each draw",
         lambda X, e, eta: (e - eta * (X @ e)[:, None] * X).square().sum(1) / (e @ e)),
    ],
    "03.3": [
        ("solved", "pinv", lambda X, y: torch.linalg.pinv(X) @ y),
        ("solved", "lstsq with its default driver", lambda X, y: torch.linalg.lstsq(X, y[:, None]).solution[:, 0]),
        ("solved", "numpy's lstsq", lambda X, y: torch.from_numpy(np.linalg.lstsq(X.numpy(), y.numpy(), rcond=None)[0])),
        ("solved", "thin SVD", by_thin_svd),
        ("solved", "the library's", minimum_norm_solution),
        ("solved", "explicit inverse", lambda X, y: y @ torch.linalg.inv(X @ X.T) @ X),
        ("solved", "QR of the transpose",
         lambda X, y: torch.linalg.qr(X.T).Q @ torch.linalg.solve(torch.linalg.qr(X.T).R.T, y)),
        ("left out the inverse", "X^T y", lambda X, y: X.T @ y),
        ("normal equations", "the d x d system inverted", lambda X, y: torch.linalg.inv(X.T @ X) @ X.T @ y),
        ("normal equations, solved", "the d x d system", lambda X, y: torch.linalg.solve(X.T @ X, X.T @ y)),
        ("malformed", "svd with its default", by_full_svd),
        ("malformed", "solve on X itself", lambda X, y: torch.linalg.solve(X, y)),
        ("used the first columns only", "first square block",
         lambda X, y: torch.cat([torch.linalg.solve(X[:, : len(y)], y), torch.zeros(X.shape[1] - len(y)).double()])),
        ("treated rows as orthogonal", "each equation by itself",
         lambda X, y: (X * (y / X.norm(dim=1) ** 2)[:, None]).sum(0)),
        ("start of the shifted problem", "minus", lambda X, y: -torch.linalg.pinv(X) @ y),
        ("ridge", "penalty 1", lambda X, y: X.T @ torch.linalg.inv(X @ X.T + torch.eye(len(y)).double()) @ y),
        ("shape of a column", "kept the column", lambda X, y: torch.linalg.pinv(X) @ y[:, None]),
        ("wrong", "ten steps of gradient descent", by_sgd),
        ("zeros", "the shortest vector", lambda X, y: torch.zeros(X.shape[1]).double()),
        ("wrong", "the target, filled up with zeros",
         lambda X, y: torch.cat([y, torch.zeros(X.shape[1] - len(y)).double()])),
        ("wrong", "X^T y cut off", lambda X, y: (X.T @ y) * (torch.arange(X.shape[1]) < len(y))),
        ("wrong", "the last columns only",
         lambda X, y: torch.cat([torch.zeros(X.shape[1] - len(y)).double(), torch.linalg.solve(X[:, -len(y) :], y)])),
    ],
    "03.4": [
        ("solved", "a fraction", Fraction(3)),
        ("solved", "the formula", 0.5 / 1.5 * 9),
        ("solved", "an integer", 3),
        ("sample variance", "labels by torch.var", 0.5 / 1.5 * float(torch.tensor([0.0, 6.0]).var())),
        ("one step only", "eta squared times 9", 0.25 * 9),
        ("factor not squared", "v = v/2 + 9/4", 4.5),
        ("variance of the labels", "9", 9),
        ("standard deviation", "root of 3", 1.732),
        ("sample variance", "v = v/4 + 9/2", 6.0 + 1e-12),
        ("the range for the variance", "labels 6 apart: 36", 12.0),
        ("no noise", "it converges to the mean", 0),
        ("malformed", "the place and not the spread, as a vector", [3.0, 3.0]),
        ("wrong", "4", 4.0),
        ("malformed", "words", "3"),
    ],
    "03.6": [
        ("solved", "written out", factor()),
        ("solved", "the library's", lambda X, eta, c: loss_factor(X, step_size=eta, gain=c)),
        ("solved", "eigenvalues of X X^T", lambda X, eta, c: 1 - 2 * c * eta / len(X) * torch.linalg.eigvalsh(X @ X.T)[0]
         + (c * eta) ** 2 / len(X) * torch.linalg.eigvalsh(X @ X.T)[-1] * (X @ X.T).diagonal().max()),
        ("c in the second only", "no c in C1", factor(c=(0, 2))),
        ("c once in both", "c once", factor(c=(1, 1))),
        ("no c at all", "the step with 1/2 only", factor(c=(0, 0))),
        ("forgot 1/n", "sum for the mean", factor(rows=lambda X: 1)),
        ("divided by the columns", "d for n", factor(rows=lambda X: X.shape[1])),
        ("longest row not squared", "rho", factor(longest=lambda r: r.max())),
        ("mean row instead of longest", "mean of squares", factor(longest=lambda r: r.square().mean())),
        ("smallest eigenvalue of the d x d matrix", "X^T X", factor(smallest=lambda s: 0)),
        ("largest curvature in the gain", "sigma_max twice", factor(smallest=lambda s: s.max() ** 2)),
        ("sign of the price", "minus twice", factor(sign=-1)),
        ("columns for rows", "longest column",
         lambda X, eta, c: 1 - 2 * c * eta / len(X) * torch.linalg.svdvals(X)[-1] ** 2
         + (c * eta) ** 2 / len(X) * torch.linalg.svdvals(X)[0] ** 2 * X.square().sum(0).max()),
        ("the change, not the factor", "forgot the 1", lambda X, eta, c: factor()(X, eta, c) - 1),
        ("wrong", "no step in it", lambda X, eta, c: factor()(X, 1.0, c)),
        ("malformed", "both constants", lambda X, eta, c: (2 * c / len(X), c**2 / len(X))),
    ],
    "03.5": [
        ("solved", "mostly along the smaller one", case(weight_1=0.1)),
        ("solved", "equal singular values", case(sigma_1=1.0, weight_1=3.0)),
        ("solved", "the smaller one first", case(sigma_1=0.5, weight_1=1.0, weight_2=0.0)),
        ("solved", "negative weight, long step", case(weight_2=-4.0, step_size=3.0)),
        ("solved", "whole numbers", {"sigma_1": 3, "sigma_2": 1, "step_size": 1, "weight_1": 0, "weight_2": 1}),
        ("error along the larger direction", "equal entries", case(weight_1=1.0)),
        ("error along the larger direction alone", "only the first", case(weight_1=2.0, weight_2=0.0)),
        ("need", "zeros", case(weight_2=0)),
        ("need", "step 0", case(step_size=0)),
        ("need", "a zero row", case(sigma_1=0.0)),
        ("need", "minus 1", case(sigma_2=-1.0)),
        ("error along the larger direction", "a little of the larger one, which weighs 16 times", case(weight_1=0.9)),
        ("malformed", "a list", [2.0, 1.0, 0.1, 0.0, 1.0]),
        ("malformed", "a vector of weights", {"sigma_1": 2.0, "sigma_2": 1.0, "step_size": 0.1, "weights": [0.0, 1.0]}),
        ("need", "too large to square", case(weight_2=1e200)),
    ],
    "03.7": [
        ("solved", "the library's", lambda X, b, c: distance_bound_step(X, batch=b, gain=c)),
        ("solved", "written out", batch_step()),
        ("solved", "multiplied through by b and n", lambda X, b, c: b * len(X) / (
            c * (len(X) * X.norm(dim=1).max() ** 2 + (b - 1) * torch.linalg.matrix_norm(X, 2) ** 2))),
        ("solved", "the largest eigenvalue of X X^T", batch_step(largest=lambda s, n: (s**2).max() / n)),
        ("no batch", "1/(c rho^2)", lambda X, b, c: 1 / (c * X.square().sum(1).max())),
        ("linear scaling", "b/(c rho^2)", lambda X, b, c: b / (c * X.square().sum(1).max())),
        ("full batch", "n/(c sigma_max^2)",
         lambda X, b, c: len(X) / (c * torch.linalg.matrix_norm(X, 2) ** 2)),
        ("forgot c", "c = 1", lambda X, b, c: batch_step()(X, b, 1.0)),
        ("c squared", "as in the price", lambda X, b, c: batch_step()(X, b, c**2)),
        ("twice the step", "where the bound is 1 again", batch_step(top=2)),
        ("forgot 1/n", "sigma_max^2", batch_step(largest=lambda s, n: s.max() ** 2)),
        ("longest row not squared", "rho", batch_step(row=lambda r: r.max())),
        ("mean row instead of longest", "mean of squares", batch_step(row=lambda r: r.square().mean())),
        ("root of the batch", "rho^2 over sqrt(b)", batch_step(share=lambda b: 1 / math.sqrt(b))),
        ("largest singular value not squared", "sigma_max/n", batch_step(largest=lambda s, n: s.max() / n)),
        ("scaled by the root of b", "sqrt(b)/(c rho^2)", lambda X, b, c: math.sqrt(b) / (c * X.square().sum(1).max())),
        ("wrong", "the whole of the mean's curvature added",
         lambda X, b, c: 1 / (c * (X.square().sum(1).max() / b + torch.linalg.svdvals(X).max() ** 2 / len(X)))),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "03.h1": ('left[29] / left[0], at_most', 'right[29] / left[0], at_most'),
    "03.h2": ('right[29] / right[9],\n      equals', 'left[29] / left[9],\n      equals'),
    "03.2": ('X, y = lesson.four_lines("left")', 'X, y = lesson.four_lines("right")'),
    "03.3": ("torch.linalg.svdvals(X)[-1]  # the four", "torch.linalg.svdvals(X)[0]  # the four"),
    "03.s1": ("times.append(float(grid[rates.argmin()]", "times.append(float(grid[grid.argmin()]"),
    "03.4": ("stochastic_gradient_descent(X24, y24, torch.zeros(24),",
             "stochastic_gradient_descent(X24, y24, torch.ones(24),"),
    "03.w1": ("stochastic_gradient_descent(X24, y24, away,", "stochastic_gradient_descent(X24, y24, torch.zeros(24),"),
    "03.5": ("if eta == 0.2:", "if eta == 0.1:"),
    "03.6": ("descent = descent + 1 / 4 *", "descent = descent + 1 / 2 *"),
    "03.c1": ('mean = "falling to 0 on a line", "fixed, mean of the last half"',
              'mean = "fixed, mean of the last 90%", "fixed, mean of the last half"'),
    "03.c2": ('(("falling step", line), ("mean", mean))', '(("mean", mean), ("falling step", line))'),
    "03.c3": ('new_order = "rows in a new order each pass, falling to 0 on a line"',
              'new_order = "falling to 0 on a line"'),
}  # fmt: skip
