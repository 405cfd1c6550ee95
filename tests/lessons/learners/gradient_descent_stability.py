"""What learners of lesson 01 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import numpy as np
import torch

from course_lib.optimization.gradient_descent import best_step, gradient_descent, steps_to_accuracy
from course_lib.teaching import edit

GIVES_AWAY = {
    "01.P1": [r"31 million", r"31\.4", r"plot_wait"],
    "01.P2": [r"16 steps", r"Run B needs", r"after 31 steps"],
    "01.P3": [r"(?i)edge of stability", r"(?i)stays near its border", r"≈19\.\d", r"frozen quadratic"],
}


def in_place(matrix, target, weights, step_size):
    weights += 2 * step_size * matrix.T @ (target - matrix @ weights)
    return weights


def by_autograd(matrix, target, weights, step_size):
    leaf = weights.clone().requires_grad_()
    (target - matrix @ leaf).square().sum().backward()
    return (leaf - step_size * leaf.grad).detach()


def by_mse(matrix, target, weights, step_size):
    leaf = weights.clone().requires_grad_()
    torch.nn.functional.mse_loss(matrix @ leaf, target).backward()
    return weights - step_size * leaf.grad


def by_normal_equations(matrix, target, weights, step_size):
    return torch.linalg.lstsq(matrix, target[:, None]).solution[:, 0]


def still_tracked(matrix, target, weights, step_size):
    return weights.float() + 2 * step_size * matrix.float().T @ (
        target.float() - matrix.float() @ weights.float()
    )


def counted(singular_value, step_size, accuracy):
    error, steps = 1.0, 0
    while abs(error) >= accuracy:
        error, steps = error * (1 - 2 * step_size * singular_value**2), steps + 1
    return steps


def counted_exactly(singular_value, step_size, accuracy):
    factor = 1 - 2 * Fraction(str(step_size)) * Fraction(str(singular_value)) ** 2
    error, steps = Fraction(1), 0
    while abs(error) >= Fraction(str(accuracy)):
        error, steps = error * factor, steps + 1
    return steps


def counted_signed(singular_value, step_size, accuracy):
    error, steps = 1.0, 0
    while error >= accuracy:
        error, steps = error * (1 - 2 * step_size * singular_value**2), steps + 1
    return steps


def counted_to_at_most(singular_value, step_size, accuracy):
    error, steps = 1.0, 0
    while abs(error) > accuracy:
        error, steps = error * (1 - 2 * step_size * singular_value**2), steps + 1
    return steps


def counted_after(singular_value, step_size, accuracy):
    error, steps = 1 - 2 * step_size * singular_value**2, 0
    while abs(error) >= accuracy:
        error, steps = error * (1 - 2 * step_size * singular_value**2), steps + 1
    return steps


def by_ternary_search(singular_values):
    moving = singular_values[singular_values > 0].double()
    low, high = 0.0, float(1 / moving.max() ** 2)
    worst = lambda eta: float((1 - 2 * eta * moving**2).abs().max())  # noqa: E731
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if worst(a) < worst(b) else (a, high)
    return (low + high) / 2


ANSWERS = {
    "01.1": [
        ("solved", "four decimals", 1.6166),
        ("solved", "a fraction", Fraction(3, 2) * (1 + Fraction(3, 5) ** 5)),
        ("solved", "a tensor", torch.tensor(1.61664)),
        ("one factor for all steps", "the first step", 1.5 - 0.6 * -1.5),
        ("factor without its sign", "an error that shrinks on one side", 1.5 - 1.5 * 0.6**5),
        ("one step too few", "four steps", 1.5 - 1.5 * 0.6**4),
        ("one step too many", "six steps", 1.5 - 1.5 * 0.6**6),
        ("the error itself", "the error", 1.5 * 0.6**5),
        ("the error of the wrong sign", "solution less iterate", -1.5 * 0.6**5),
        ("factor of the loss with one half", "the other factor", 1.5 - 1.5 * 0.2**5),
        ("solution w* = y", "y for w*", 3 + 3 * 0.6**5),
        ("wrong", "the solution", 1.5),
        ("wrong", "three steps", 1.5 + 1.5 * 0.6**3),
        ("malformed", "the whole path", [0, 2.4, 0.96]),
    ],
    "01.2": [
        ("solved", "a fraction", Fraction(1, 2)),
        ("solved", "a tensor", torch.tensor(0.5)),
        ("solved", "2 over sigma squared, written out", 2 / 2**2),
        ("limit of the loss without 1/2", "1 over sigma squared", 1 / 2**2),
        ("best step instead of limit", "the step that solves the other loss at once", 1 / (2 * 2**2)),
        ("forgot the square", "2 over sigma", 2 / 2),
        ("multiplied by the square", "2 times sigma squared", 2 * 2**2),
        ("multiplied by sigma", "2 times sigma", 2 * 2),
        ("the number alone", "the limit of eta times sigma squared", 2),
        ("a step that converges, not the limit", "a stable step found by trying", 0.49),
        ("negative step", "the inequality turned round", -0.5),
        ("wrong", "1 over sigma to the fourth", 1 / 2**4),
        ("malformed", "an interval", (0, 0.5)),
        ("malformed", "words", "1/2"),
    ],
    "01.3": [
        ("solved", "a loop", counted),
        ("solved", "the library's", lambda s, eta, eps: steps_to_accuracy(s, step_size=eta, accuracy=eps)),
        ("solved", "a whole number as a float", lambda s, eta, eps: float(counted(s, eta, eps))),
        ("solved", "base 10", edit("math.log(accuracy) / math.log(factor)",
                                   "round(math.log10(accuracy) / math.log10(factor), 9)")),
        ("solved", "a loop over exact fractions", counted_exactly),
        ("solved", "logarithms to the base 10", lambda s, eta, eps: 1 if 2 * eta * s**2 == 1 else math.floor(
            math.log10(eps) / math.log10(abs(1 - 2 * eta * s**2))) + 1),
        ("no case for a factor of 0", "plain formula",
         lambda s, eta, eps: math.floor(math.log(eps) / math.log(abs(1 - 2 * eta * s**2))) + 1),
        ("left out the absolute value", "no absolute value, with the case of 0",
         lambda s, eta, eps: 1 if 1 - 2 * eta * s**2 == 0 else math.floor(math.log(eps) / math.log(1 - 2 * eta * s**2)) + 1),
        ("rounded up, no case for a factor of 0", "ceil",
         lambda s, eta, eps: math.ceil(math.log(eps) / math.log(abs(1 - 2 * eta * s**2)))),
        ("rounded down", "int with at least 1", lambda s, eta, eps: max(1, counted(s, eta, eps) - 1)),
        ("rounded up", "loop until at most", counted_to_at_most),
        ("one step too many", "counted the iterates, not the steps", lambda s, eta, eps: counted(s, eta, eps) + 1),
        ("did not round", "the bound", edit("1 if factor == 0", "0.0 if factor == 0", "math.floor", "", " + 1", "")),
        ("forgot the 2", "factor of the other loss", lambda s, eta, eps: counted(s, eta / 2, eps)),
        ("forgot the square", "sigma once",
         lambda s, eta, eps: 1 if 2 * eta * s == 1 else math.floor(math.log(eps) / math.log(abs(1 - 2 * eta * s))) + 1),
        ("wrong", "counts from the first iterate", counted_after),
        ("wrong", "stops at the first overshoot", counted_signed),
        ("wrong", "loss instead of error", lambda s, eta, eps: counted(s, eta, math.sqrt(eps))),
    ],
    "01.4": [
        ("solved", "ternary search", by_ternary_search),
        ("solved", "the library's", best_step),
        ("solved", "numpy", lambda s: 1 / (np.max(s.numpy() ** 2) + np.min(s.numpy()[s.numpy() > 0] ** 2))),
        ("solved", "two over the extreme eigenvalues of the Hessian",
         lambda s: 2 / (2 * s.max() ** 2 + 2 * s[s != 0].square().min())),
        ("kept the zero", "smallest of all", lambda s: 1 / (s.max() ** 2 + s.min() ** 2)),
        ("factor 2 of the other loss", "two over their sum", lambda s: 2 / (s.max() ** 2 + s[s > 0].min() ** 2)),
        ("forgot the squares", "no squares", lambda s: 1 / (s.max() + s[s > 0].min())),
        ("the limit itself", "1 over the largest square", lambda s: 1 / s.max() ** 2),
        ("solved the steepest direction", "1 over twice the largest square", lambda s: 1 / (2 * s.max() ** 2)),
        ("the step of the flattest direction", "1 over twice the smallest square", lambda s: 0.5 / s[s > 0].min() ** 2),
        ("average of all curvatures", "mean of squares", lambda s: 0.5 / (s[s > 0] ** 2).mean()),
        ("sum of all curvatures", "trace", lambda s: 1 / (s**2).sum()),
        ("half of it", "a quarter of the Hessian's sum", lambda s: 1 / (2 * (s.max() ** 2 + s[s > 0].min() ** 2))),
        ("middle of the two steps", "average of the two steps",
         lambda s: 0.25 * (1 / s.max() ** 2 + 1 / s[s > 0].min() ** 2)),
        ("difference of the extremes", "minus", lambda s: 1 / (s.max() ** 2 - s[s > 0].min() ** 2)),
        ("largest over smallest", "1 over kappa", lambda s: (s[s > 0].min() / s.max()) ** 2),
        ("wrong", "geometric mean", lambda s: 1 / (2 * s.max() * s[s > 0].min())),
        ("malformed", "a step for each direction", lambda s: 1 / (2 * s**2)),
    ],
    "01.5": [
        ("solved", "autograd", by_autograd),
        ("solved", "normal equations multiplied out", lambda X, y, w, eta: w - 2 * eta * (X.T @ X @ w - X.T @ y)),
        ("solved", "in place", in_place),
        ("solved", "gradient_descent of the library",
         lambda X, y, w, eta: gradient_descent(X, y, w, step_size=eta, steps=1)[1]),
        ("solved", "a row vector from the left", lambda X, y, w, eta: w + 2 * eta * (y - X @ w) @ X),
        ("averaged over rows", "mse_loss", by_mse),
        ("missing transpose", "X where its transpose belongs", lambda X, y, w, eta: w + 2 * eta * X @ (y - X @ w)),
        ("dropped the 2", "loss with 1/2", lambda X, y, w, eta: w - eta * X.T @ (X @ w - y)),
        ("went uphill", "plus the gradient", lambda X, y, w, eta: w + eta * 2 * X.T @ (X @ w - y)),
        ("uphill, without the 2", "plus half the gradient", lambda X, y, w, eta: w + eta * X.T @ (X @ w - y)),
        ("returned the change", "minus eta times the gradient", lambda X, y, w, eta: -2 * eta * X.T @ (X @ w - y)),
        ("no step size", "the whole gradient", lambda X, y, w, eta: w - 2 * X.T @ (X @ w - y)),
        ("gradient of the target alone", "forgot X w", lambda X, y, w, eta: w + 2 * eta * X.T @ y),
        ("wrong", "the solution itself", by_normal_equations),
        ("malformed", "float32", still_tracked),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "01.3": ("w = w + 2 * step_size * sigma * (sigma - sigma * w)", "w = w + step_size * sigma * (sigma - sigma * w)"),
    "01.4": ("sigmas.max() ** 2 + sigmas.min() ** 2)", "sigmas.max() ** 2 + sigmas.median() ** 2)"),
    "01.5": ("(direct @ X.T - turned @ V.T @ X.T)", "(direct @ X.T - turned @ V @ X.T)"),
    "01.6": ("** (2 * 10_000)", "** 10_000"),
    "01.7": ("1.01 * float(2 / curvature)", "1.01 * float(1 / curvature)"),
    "01.b1": ("long_run = lesson.train_network(0.1)", "long_run = lesson.train_network(0.05)"),
    "01.b2": ("control = lesson.train_network(0.05)", "control = lesson.train_network(0.1)"),
    "01.b3": ('past["frozen"][-1] / past', 'past["network"][0] / past'),
    "01.b4": ('for one in five["without"]]', 'for one in five["with"]]'),
    "01.c1": ('counts["standardised"]["gradient descent"]', 'counts["scaled"]["gradient descent"]'),
    "01.c2": ('counts["raw"]["conjugate gradients"]', 'counts["raw"]["with momentum"]'),
}  # fmt: skip
