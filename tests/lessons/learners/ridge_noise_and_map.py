"""What learners of lesson 04 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import numpy as np
import torch

from course_lib.optimization.ridge import posterior, ridge
from course_lib.teaching import edit

GIVES_AWAY = {
    "04.P1": [
        r"(?i)once for each row|a row brings|each row brings",
        r"m ?\\?sigma\^2|mσ²|m σ²",
        r"(?i)prior enters once",
        r"(?i)no longer serves both",
    ],
    "04.P2": [r"0\.49", r"(?i)shrinks \*directions"],
    "04.P3": [r"(?i)levels? off", r"(?i)σ\*? \*?kept", r"(?i)far better"],
}


def eye(k):
    return torch.eye(k, dtype=torch.float64)


def dual(shift):
    """The answer of 04.4 with another diagonal: a function of the penalty and of X."""
    return lambda X, y, lam: X.T @ torch.linalg.solve(X @ X.T + shift(lam, X) * eye(len(X)), y)


def by_augmented(X, y, lam):
    longer = torch.cat([X, math.sqrt(lam) * eye(X.shape[1])])
    return torch.linalg.lstsq(longer, torch.cat([y, torch.zeros(X.shape[1]).double()])[:, None]).solution[
        :, 0
    ]


def by_svd(X, y, lam):
    U, s, Vh = torch.linalg.svd(X, full_matrices=False)
    return Vh.T @ (s / (s**2 + lam) * (U.T @ y))


def slope_by_autograd(w, X, y, v, p):
    w = w.clone().requires_grad_()
    prior = torch.distributions.Normal(0.0, math.sqrt(p)).log_prob(w).sum()
    likelihood = torch.distributions.Normal(X @ w, math.sqrt(v)).log_prob(y).sum()
    return torch.autograd.grad(prior + likelihood, w)[0]


ANSWERS = {
    "04.1": [
        ("solved", "a product", 50 * 0.2**2),
        ("solved", "a fraction", Fraction(2)),
        ("solved", "a tensor", torch.tensor(2.0)),
        ("forgot the rows", "the variance", 0.2**2),
        ("forgot the square", "m sigma", 50 * 0.2),
        ("divided by the rows", "sigma^2/m", 0.2**2 / 50),
        ("half of it", "m sigma^2 / 2", 25 * 0.2**2),
        ("twice of it", "2 m sigma^2", 100 * 0.2**2),
        ("the deviation alone", "sigma", 0.2),
        ("the number of rows", "m", 50),
        ("rows squared", "(m sigma)^2", (50 * 0.2) ** 2),
        ("minus", "minus m sigma^2", -2.0),
        ("wrong", "sqrt(m) sigma", math.sqrt(50) * 0.2),
        ("malformed", "words", "m sigma^2"),
    ],
    "04.2": [
        ("solved", "as derived", lambda w, X, y, v, p: X.T @ (y - X @ w) / v - w / p),
        ("solved", "written out", lambda w, X, y, v, p: (X.T @ y - X.T @ X @ w - v / p * w) / v),
        ("solved", "row by row", lambda w, X, y, v, p: sum((b - x @ w) * x for x, b in zip(X, y, strict=True)) / v - w / p),
        ("solved", "autograd", slope_by_autograd),
        ("the other sign", "of the loss", lambda w, X, y, v, p: X.T @ (X @ w - y) / v + w / p),
        ("the sign of the prior", "+ w/p", lambda w, X, y, v, p: X.T @ (y - X @ w) / v + w / p),
        ("the sign of the likelihood", "X w - y", lambda w, X, y, v, p: X.T @ (X @ w - y) / v - w / p),
        ("twice", "no 1/2", lambda w, X, y, v, p: 2 * X.T @ (y - X @ w) / v - 2 * w / p),
        ("a half", "1/2 kept", lambda w, X, y, v, p: X.T @ (y - X @ w) / (2 * v) - w / (2 * p)),
        ("without the variances", "v = p = 1", lambda w, X, y, v, p: X.T @ (y - X @ w) - w),
        ("errors of variance one", "no v", lambda w, X, y, v, p: X.T @ (y - X @ w) - w / p),
        ("prior of variance one", "no p", lambda w, X, y, v, p: X.T @ (y - X @ w) / v - w),
        ("times the variances", "v and p in front", lambda w, X, y, v, p: v * X.T @ (y - X @ w) - p * w),
        ("roots of the variances", "deviations", lambda w, X, y, v, p: X.T @ (y - X @ w) / math.sqrt(v) - w / math.sqrt(p)),
        ("exchanged", "p for v", lambda w, X, y, v, p: X.T @ (y - X @ w) / p - w / v),
        ("without the prior", "least squares", lambda w, X, y, v, p: X.T @ (y - X @ w) / v),
        ("malformed", "the logarithm", lambda w, X, y, v, p: -(y - X @ w).square().sum() / (2 * v) - w @ w / (2 * p)),
        ("wrong", "multiplied by v", lambda w, X, y, v, p: X.T @ (y - X @ w) - v / p * w),
        ("malformed", "a pair", lambda w, X, y, v, p: (X.T @ (y - X @ w) / v, -w / p)),
    ],
    "04.3": [
        ("solved", "m/2 times the decay", 200 / 2 * 0.01),
        ("solved", "a fraction", Fraction(1)),
        ("solved", "an integer", 1),
        ("the decay itself", "0.01", 0.01),
        ("half of the decay", "0.01/2", 0.01 / 2),
        ("forgot the two", "m times the decay", 200 * 0.01),
        ("twice the wrong way", "2 m times the decay", 400 * 0.01),
        ("divided by the rows", "2/m", 0.01 * 2 / 200),
        ("over the rows", "1/m", 0.01 / 200),
        ("wrong", "1/2", 0.5),
        ("wrong", "minus", -1.0),
        ("malformed", "words", "m kappa / 2"),
    ],
    "04.4": [
        ("solved", "explicit inverse", lambda X, y, lam: X.T @ torch.linalg.inv(X @ X.T + lam * eye(len(X))) @ y),
        ("solved", "thin SVD", by_svd),
        ("solved", "the library's dual", lambda X, y, lam: ridge(X, y, lam, system="dual")),
        ("solved", "numpy", lambda X, y, lam: torch.from_numpy(
            X.numpy().T @ np.linalg.solve(X.numpy() @ X.numpy().T + lam * np.eye(len(X)), y.numpy()))),
        ("solved", "Cholesky", lambda X, y, lam: X.T @ torch.cholesky_solve(
            y[:, None], torch.linalg.cholesky(X @ X.T + lam * eye(len(X))))[:, 0]),
        ("the d x d system", "primal by solve", lambda X, y, lam: torch.linalg.solve(
            X.T @ X + lam * eye(X.shape[1]), X.T @ y)),
        ("the d x d system", "primal by inv", lambda X, y, lam: torch.linalg.inv(
            X.T @ X + lam * eye(X.shape[1])) @ (X.T @ y)),
        ("the d x d system", "primal by Cholesky", lambda X, y, lam: torch.cholesky_solve(
            (X.T @ y)[:, None], torch.linalg.cholesky(X.T @ X + lam * eye(X.shape[1])))[:, 0]),
        ("left out the penalty", "minimum norm", lambda X, y, lam: X.T @ torch.linalg.solve(X @ X.T, y)),
        ("added the penalty everywhere", "gram + lambda", lambda X, y, lam: X.T @ torch.linalg.solve(X @ X.T + lam, y)),
        ("squared the penalty", "lambda^2", dual(lambda lam, X: lam**2)),
        ("penalty times rows", "m lambda", dual(lambda lam, X: lam * len(X))),
        ("unit noise", "lambda = 1", dual(lambda lam, X: 1)),
        ("penalty over rows", "lambda/m", dual(lambda lam, X: lam / len(X))),
        ("twice the penalty", "2 lambda", dual(lambda lam, X: 2 * lam)),
        ("the unknowns of the rows", "alpha, not mapped back",
         lambda X, y, lam: torch.linalg.solve(X @ X.T + lam * eye(len(X)), y)),
        ("root of the penalty", "sqrt(lambda)", dual(lambda lam, X: math.sqrt(lam))),
        ("minus the penalty", "minus lambda", dual(lambda lam, X: -lam)),
        ("wrong", "no solve", lambda X, y, lam: X.T @ y / (1 + lam)),
    ],
    "04.5": [
        ("solved", "precisions added", lambda X, v, p: torch.linalg.inv(X.T @ X / v + eye(2) / p)),
        ("solved", "v (X^T X + v/p I)^-1", lambda X, v, p: v * torch.linalg.inv(X.T @ X + v / p * eye(2))),
        ("solved", "the dual form", lambda X, v, p: p * eye(2)
         - p * X.T @ torch.linalg.inv(p * X @ X.T + v * eye(len(X))) @ X * p),
        ("solved", "the library's", lambda X, v, p: posterior(
            X, torch.zeros(len(X)).double(), noise_variance=v, prior_variance=p)[1]),
        ("without the noise in front", "(X^T X + lambda I)^-1",
         lambda X, v, p: torch.linalg.inv(X.T @ X + v / p * eye(2))),
        ("ratio upside down", "lambda = p/v", lambda X, v, p: v * torch.linalg.inv(X.T @ X + p / v * eye(2))),
        ("prior of variance one", "p = 1", lambda X, v, p: v * torch.linalg.inv(X.T @ X + v * eye(2))),
        ("noise of variance one", "v = 1", lambda X, v, p: torch.linalg.inv(X.T @ X + eye(2) / p)),
        ("returned the precision", "no inverse", lambda X, v, p: X.T @ X / v + eye(2) / p),
        ("deviations for variances", "v^2 and p^2", lambda X, v, p: torch.linalg.inv(X.T @ X / v**2 + eye(2) / p**2)),
        ("the prior alone", "p I", lambda X, v, p: p * eye(2)),
        ("no prior", "v (X^T X)^-1", lambda X, v, p: v * torch.linalg.inv(X.T @ X)),
        ("covariance of the data", "of y", lambda X, v, p: p * X @ X.T + v * eye(len(X))),
        ("p in front instead of v", "p (X^T X + v/p I)^-1",
         lambda X, v, p: p * torch.linalg.inv(X.T @ X + v / p * eye(2))),
        ("variances only", "the diagonal", lambda X, v, p: torch.linalg.inv(X.T @ X / v + eye(2) / p).diagonal()),
        ("roots of the variances", "deviations", edit("/ noise_variance", "/ noise_variance**0.5",
                                                       "/ prior_variance", "/ prior_variance**0.5")),
        ("wrong", "added, not inverted", lambda X, v, p: v * torch.linalg.inv(X.T @ X) + p * eye(2)),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "04.h1": ("fit_noisy_rows(X, y, noise=0.15, copies=2000", "fit_noisy_rows(X, y, noise=0.27, copies=2000"),
    "04.w1": ("fit_noisy_rows(X_m, y_m, noise=0.15,", "fit_noisy_rows(X_m, y_m, noise=0.15 * (12 / points) ** 0.5,"),
    "04.w2": ("most_probable(X_m, y_m, noise_variance=0.27,", "most_probable(X_m, y_m, noise_variance=0.27 * points / 12,"),
    "04.1": ("noisy_X = X + 0.15 * torch.randn", "noisy_X = X + 0.15**2 * torch.randn"),
    "04.3": ("s**2 / (s**2 + 0.27)", "s**4 / (s**4 + 0.27)"),
    "04.5": ("weight_decay=2 * 0.15**2", "weight_decay=0.15**2"),
    "04.c1": ("noisy = lesson.ridge_all(X_all, y_all, 1536 / 12)", "noisy = lesson.ridge_all(X_all, y_all, 1.0)"),
    "04.6": ("(lesson.risk(noisy, truth) / limit)", "(lesson.risk(plain, truth) / limit)"),
    "04.c2": ("noise=(1 / 12) ** 0.5, copies=copies", "noise=1 / 12, copies=copies"),
    "04.c3": ("noise_squared=1 / 12)", "noise_squared=0)"),
    "04.c4": ("(many[1][chosen] > many[0])", "(few[1][chosen] > few[0])"),
}  # fmt: skip
