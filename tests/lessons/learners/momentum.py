"""What learners of lesson 02 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch

from course_lib.optimization.gradient_descent import best_heavy_ball
from course_lib.teaching import edit

GIVES_AWAY = {
    "02.P1": [r"(?i)nearly doubles", r"1 ?\+ ?\\beta", r"(?i)moved border"],
    "02.P2": [r"\\sqrt\\beta", r"(?i)share (one|the) rate", r"(?i)whatever the curvature"],
    "02.P3": [r"(?i)end near 30", r"(?i)came to the moved border"],
    "02.P4": [
        r"(?i)takes nearly all of the gain",
        r"(?i)noise limits the step size, long",
        r"(?i)below a thousandth",
    ],
}

NEIGHBOURS = {
    "02.e1": ("def border(momentum, curvature=1.0):", "def border(momentum, curvature=1.0):\n    momentum = 0.0"),
    "02.3": ("* curvature / (2 * (1 + m)) for", "* curvature / (2 / (1 - m)) for"),
    "02.4": ("+ momentum * errors[t - 1]) for", "+ momentum * errors[t]) for"),
    "02.5": ("share = (errors[1] - z2) / (z1 - z2)", "share = (errors[1] - z1) / (z1 - z2)"),
    "02.6": ("momentum=0.64, steps=1000", "momentum=0.6, steps=1000"),
    "02.7": ("for s, m in ((1.1, 1), (0.9, 1), (1, 1.1), (1, 0.9))]", "for s, m in ((1, 1), (1, 1), (1, 1), (1, 1))]"),
    "02.e2": ("ball[1] / ball[0]", "plain[1] / plain[0]"),
    "02.e3": ("runs[1, :, -10:].mean(1), equals=30", "runs[0, :, -10:].mean(1), equals=30"),
    "02.e4": ("exact[0.8] / exact[0.0], at_most", "exact[0.9] / exact[0.0], at_most"),
    "02.e5": ("best_excess(64, 1.0), lesson.best_excess(4, 0.0)]", "best_excess(64, 0.1), lesson.best_excess(4, 0.0)]"),
}  # fmt: skip


def sums(steady, alternating):
    return {"steady": steady, "alternating": alternating}


def through_velocity(weights, before, gradient, step_size, momentum):
    velocity = (before - weights) / step_size
    velocity = momentum * velocity + gradient
    return weights - step_size * velocity


def by_torch(weights, before, gradient, step_size, momentum):
    """Two steps of torch's optimizer; the first one leads from `before` to `weights`."""
    leaf = before.clone().requires_grad_()
    optimizer = torch.optim.SGD([leaf], lr=step_size, momentum=momentum)
    for slope in ((before - weights) / step_size, gradient):
        leaf.grad = slope.clone()
        optimizer.step()
    return leaf.detach()


def by_library(curvatures):
    return torch.tensor(best_heavy_ball(curvatures.sqrt(), half=True), dtype=curvatures.dtype)


def by_condition(curvatures):
    root = (curvatures.max() / curvatures.min()).sqrt()
    s = (root - 1) / (root + 1)
    return torch.stack([(1 + s) ** 2 / curvatures.max(), s**2])


ANSWERS = {
    "02.1": [
        ("solved", "the formulas", sums(1 / (1 - 0.9), 1 / (1 + 0.9))),
        ("solved", "four decimals", sums(10.0, 0.5263)),
        ("solved", "fractions", sums(Fraction(10), Fraction(10, 19))),
        ("solved", "tensors", sums(torch.tensor(10.0), torch.tensor(0.5263))),
        ("nothing remembered", "one gradient", sums(1, 1)),
        ("all cancels", "zero", sums(10, 0)),
        ("averaged", "dampened", sums(1.0, 0.1 / 1.9)),
        ("no signs", "sizes", sums(10, 10)),
        ("exchanged", "the other way round", sums(1 / 1.9, 10)),
        ("one short", "without the newest", sums(0.9 / 0.1, 0.9 / 1.9)),
        ("inverted", "1 + beta", sums(10, 1.9)),
        ("wrong", "nine and a half", sums(9.5, 0.5)),
        ("malformed", "a list", [10, 0.5263]),
    ],
    "02.2": [
        ("solved", "the formula", 2 * (1 + 0.8) / 4),
        ("solved", "a fraction", Fraction(9, 10)),
        ("no momentum", "2 / lambda", 2 / 4),
        ("steady", "2 (1 - beta) / lambda", 2 * (1 - 0.8) / 4),
        ("divided", "2 / ((1 + beta) lambda)", 2 / (1.8 * 4)),
        ("to the minimum", "(1 + beta) / lambda", 1.8 / 4),
        ("no curvature", "2 (1 + beta)", 3.6),
        ("added up", "2 / ((1 - beta) lambda)", 2 / (0.2 * 4)),
        ("half a square", "gradient 2 e", 2 * 1.8 / 2),
        ("wrong", "1", 1.0),
        ("malformed", "a string", "0.9"),
    ],
    "02.3": [
        ("solved", "through the velocity", through_velocity),
        ("solved", "torch", by_torch),
        ("solved", "collected", lambda weights, before, gradient, step_size, momentum: (
            (1 + momentum) * weights - momentum * before - step_size * gradient)),
        ("no momentum", "descent", lambda weights, before, gradient, step_size, momentum: weights - step_size * gradient),
        ("backwards", "a sign", edit("(weights - before)", "(before - weights)")),
        ("step size twice", "the velocity for the step", lambda weights, before, gradient, step_size, momentum: (
            weights - step_size * (gradient - momentum * (weights - before)))),
        ("averaged", "dampening", edit("step_size * gradient", "step_size * (1 - momentum) * gradient")),
        ("the whole step", "no share", edit("momentum * (weights", "1.0 * (weights")),
        ("weights kept", "no difference", edit("(weights - before)", "weights")),
        ("wrong", "uphill", edit("weights - step_size", "weights + step_size")),
        ("malformed", "a pair", lambda weights, before, gradient, step_size, momentum: (weights, before)),
    ],
    "02.4": [
        ("solved", "the library", by_library),
        ("solved", "by the condition number", by_condition),
        ("the root of it", "the rate", edit("share**2", "share")),
        ("half", "the loss without 1/2", lambda curvatures: by_library(curvatures) * torch.tensor([0.5, 1.0])),
        ("no roots", "kappa for its root", edit(".sqrt()", "")),
        ("that of descent", "no momentum", lambda curvatures: torch.stack(
            [2 / (curvatures.max() + curvatures.min()), 0 * curvatures[0]])),
        ("upside down", "sum over difference", edit("(high - low) / (high + low)", "(high + low) / (high - low)")),
        ("first and last", "unsorted", edit(
            "slopes.max(), slopes.min()", "slopes[-1], slopes[0]")),
        ("wrong", "the habit", lambda curvatures: torch.stack([3.8 / curvatures.max(), 0 * curvatures[0] + 0.9])),
        ("malformed", "one number", lambda curvatures: by_library(curvatures)[0]),
    ],
    "02.5": [
        ("solved", "a tenth", 0.02 / 10),
        ("solved", "by effective steps", 0.02 / (1 - 0.9) * (1 - 0.99)),
        ("solved", "a fraction", Fraction(1, 500)),
        ("unchanged", "the same", 0.02),
        ("inverted", "tenfold", 0.02 * (1 - 0.9) / (1 - 0.99)),
        ("borders", "1 + beta", 0.02 * 1.99 / 1.9),
        ("by the ratio of momenta", "beta over beta", 0.02 * 0.9 / 0.99),
        ("wrong", "a square root", 0.02 / math.sqrt(10)),
        ("malformed", "a string", "0.002"),
    ],
}  # fmt: skip
