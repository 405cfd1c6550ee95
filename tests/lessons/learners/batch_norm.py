"""What learners of lesson 11 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "11.P1": [r"(?i)learns at one of the eight", r"(?i)constant guess costs, or"],
    "11.P2": [r"(?i)a hundredth", r"\b30\b", r"(?i)tenth of the gradient"],
    "11.P3": [r"(?i)step size drops out", r"sqrt\{2k\}", r"(?i)schedule of its own", r"(?i)forgotten"],
    "11.P4": [r"(?i)once was not enough", r"(?i)runs blow up", r"(?i)kept statistics"],
}

NEIGHBOURS = {
    "11.5": ("(g - g.mean() - x_hat * (g * x_hat).mean())", "(g - g.mean())"),
    "11.6": ("training=True, eps=0.0)", "training=False, eps=0.0, running_mean=torch.zeros(1), running_var=torch.ones(1))"),
    "11.7": ("x = naive_batch_norm(x, eps=0.0) if normalise else x", "x = x - x.mean(0) if normalise else x"),
    "11.8": ("descend(10 * start, 30.0)", "descend(10 * start, 3.0)"),
    "11.e1": ("plain = lesson.train_small(30, steps=200, normalise=False)", "plain = normed"),
    "11.10": ("for eta in (1, 3, 10, 30)]", "for eta in (0.1, 3, 10, 30)]"),
    "11.11": ("pairs = [(0.3, 0.01), (0.1, 0.03), (0.03, 0.1)]", "pairs = [(0.3, 0.01), (0.1, 0.03), (0.03, 0.01)]"),
    "11.e2": ('lesson.median("batch norm", start)', "lesson.median(lesson.FROZEN, start)"),
    "11.e3": ("lesson.median(lesson.FROZEN, start) for start", "lesson.median(lesson.NORMED, start) for start"),
    "11.a1": ("g.mean((0, 2, 3), keepdim=True)", "g.mean((2, 3), keepdim=True)"),
    "11.12": ("(g * x_hat).sum()", "(g * x).sum()"),
    "11.a2": ("torch.nn.BatchNorm1d(3, momentum=0.7)", "torch.nn.BatchNorm1d(3, momentum=0.3)"),
    "11.a3": ("theirs.eval())", "torch.nn.BatchNorm1d(3).eval())"),
}  # fmt: skip


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


def two(first, second):
    return {"first": first, "second": second}


def three(g1, g2, g3):
    return {"g1": g1, "g2": g2, "g3": g3}


ANSWERS = {
    "11.1": [
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
        ("malformed", "far too large", two(4 * 10**400, -(10**400))),
        ("malformed", "all five", [8, -2, -2, -2, -2]),
    ],
    "11.2": [
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
        ("malformed", "far too large", three(10**400, 0, -(10**400))),
        ("malformed", "a tensor", torch.tensor([-1.0, 0.0, 1.0])),
    ],
    "11.3": [
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
    "11.4": [
        ("solved", "by the tangent", lambda step_size, decay: math.atan(
            math.sqrt(1 - (1 - step_size * decay) ** 2) / (1 - step_size * decay))),
        ("solved", "by the sine", lambda step_size, decay: math.asin(math.sqrt(1 - (1 - step_size * decay) ** 2))),
        ("solved", "a tensor", lambda step_size, decay: torch.tensor(1 - step_size * decay).acos()),
        ("for small steps", "the root of 2 eta lambda", lambda step_size, decay: (2 * step_size * decay) ** 0.5),
        ("the share itself", "eta lambda", lambda step_size, decay: step_size * decay),
        ("sine", "opposite for adjacent", lambda step_size, decay: math.asin(1 - step_size * decay)),
        ("tangent", "decay as the length of the step", lambda step_size, decay: math.atan(step_size * decay)),
        ("degrees", "90 for a right angle", lambda step_size, decay: math.degrees(math.acos(1 - step_size * decay))),
        ("the cosine", "not turned into an angle", lambda step_size, decay: 1 - step_size * decay),
        ("wrong", "the root of eta lambda", lambda step_size, decay: math.sqrt(step_size * decay)),
        ("malformed", "two numbers", lambda step_size, decay: (step_size, decay)),
    ],
    "11.5": [
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
}  # fmt: skip
