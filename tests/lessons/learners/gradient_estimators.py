"""Lesson 09: what learners answer, and what tells them too early."""

import math
from fractions import Fraction

import torch

GIVES_AWAY = {
    "09.P1": [r"(?i)about 70", r"(?i)whichever (arm|it|they)", r"(?i)end on a worse arm, expected"],
    "09.P2": [r"51,206", r"819,206", r"(?i)pays for the slope", r"(?i)grows fourfold"],
    "09.P3": [r"(?i)\bborder\b", r"(?i)hardly notices"],
}

NEIGHBOURS = {
    "09.e1": ("worse = [lesson.failed(bandit(10, seed))", "worse = [lesson.failed(bandit(3, seed))"),
    "09.e2": ("compared = reward - mean if subtract_mean", "compared = reward + mean if subtract_mean"),
    "09.1": ("(arm == 4).double() - 1 / 5)", "(arm == 4).double())"),
    "09.2": ("((f + 100) * z).mean()", "(f * z + 100).mean()"),
    "09.3": ("((f - b) * z).var() for b in grid", "((f - b) * z.abs()).var() for b in grid"),
    "09.4": ("left_out = (values.sum() - values) / 2", "left_out = values.sum() / 3"),
    "09.5": ("torch.autograd.grad((x**2).sum(), x)", "torch.autograd.grad((x**2 / 2).sum(), x)"),
    "09.6": ("pays = ((1 + z) > 0).double()", "pays = (1 + z).abs()"),
    "09.7": ("added[0] / (a**2 / 2)", "added[0] / a**2"),
    "09.8": (
        "lesson.border(T + 1) / lesson.border(T) for T in (3, 4)",
        "lesson.border(T + 1) / lesson.border(T - 1) for T in (4,)",
    ),
    "09.e3": ('[mean_end("score", k, T) for T in', '[mean_end("path", k, T) for T in'),
    "09.e4": ('[mean_end("mix", k, T) / end', '[mean_end("score", k, T) / end'),
}


def by_log_prob(samples, values, mean, std, baseline):
    center = torch.tensor(mean, dtype=torch.float64, requires_grad=True)
    ((values - baseline) * torch.distributions.Normal(center, std).log_prob(samples)).mean().backward()
    return center.grad


def by_noise(samples, values, mean, std, baseline):
    z = (samples - mean) / std
    return sum(float(a - baseline) * float(b) for a, b in zip(values, z, strict=True)) / std / len(z)


def by_autograd(logits, values):
    leaf = logits.clone().requires_grad_()
    (leaf.softmax(0) * values).sum().backward()
    return leaf.grad


def by_scores(logits, values):
    p = logits.softmax(0)
    return sum(p[x] * values[x] * (torch.eye(len(p), dtype=p.dtype)[x] - p) for x in range(len(p)))


def by_jacobian(logits, values):
    p = torch.exp(logits) / torch.exp(logits).sum()
    return (torch.diag(p) - torch.outer(p, p)) @ values


def case(frequency, mean, std):
    return {"frequency": frequency, "mean": mean, "std": std}


def report(w_A, w_B):
    return {"w_A": w_A, "w_B": w_B}


ANSWERS = {
    "09.1": [
        ("solved", "fractions", report(Fraction(4), Fraction(-4, 3))),
        ("solved", "rounded", report(4, -1.33)),
        ("solved", "tensors", report(torch.tensor(4.0), torch.tensor(-4 / 3))),
        ("as if both were seen", "dF/dp as it stands", report(1, -1)),
        ("sign of B", "one over the probability", report(1 / 0.25, 1 / 0.75)),
        ("both signs turned", "a loss", report(-4, 1.33)),
        ("multiplied by the probabilities", "weighted once more", report(0.25, -0.75)),
        ("probabilities exchanged", "the other arm's", report(1.33, -4)),
        ("derivative for the logit", "1 - p and -p", report(1 - 0.25, -0.25)),
        ("B divided by p", "one probability for both", report(4, -4)),
        ("wrong", "nothing for B", report(4, 0)),
        ("malformed", "a list", [4, -4 / 3]),
    ],
    "09.4": [
        ("solved", "exact", (0.25 + 512) * 0.25 / (0.5 + 1 / 32)),
        ("solved", "the waves alone", 4**5 / 4),
        ("solved", "a whole number", 241),
        ("forgot sigma", "Var[f]", 964),
        ("forgot sigma", "the score without 1/sigma^2, rounded", 980),
        ("twice too many", "1024 / 2.125", 482),
        ("wave of variance one", "cosine squared is 1", 124),
        ("forgot the slope of the wave", "bowl and a wave", 0.353),
        ("slope not squared", "32 / 2", 7.65),
        ("root for the square", "standard deviation", 10.65),
        ("wrong", "two to the T", 32),
        ("malformed", "a formula", "4^T / 4"),
    ],
    "09.2": [
        ("solved", "mu^2 + 3 sigma^2", 1**2 + 3 * 2**2),
        ("solved", "as a tensor", torch.tensor(13.0)),
        ("solved", "as a quotient", (13 / 4) / (1 / 4)),
        ("the mean of f", "mu^2 + sigma^2", 1 + 2**2),
        ("f at the mean", "mu squared", 1**2),
        ("the gradient", "2 mu", 2 * 1),
        ("left out sigma", "mu^2 + 3", 1 + 3),
        ("did not divide by E[z^2 / sigma^2]", "E[f s^2]", 1 / 4 + 3),
        ("sigma for its square", "mu^2 + 3 sigma", 1 + 3 * 2),
        ("without the mean", "3 sigma^2", 3 * 2**2),
        ("three times the mean of f", "3 (mu^2 + sigma^2)", 3 * (1 + 4)),
        ("second moment of f", "E[x^4]", 1 + 6 * 4 + 3 * 16),
        ("the worst sign", "f + b", -13),
        ("wrong", "zero", 0.0),
        ("wrong", "half way", 9.0),
        ("malformed", "a formula", "mu^2 + 3 sigma^2"),
    ],
    "09.5": [
        ("solved", "autograd of the surrogate", by_log_prob),
        ("solved", "a loop over z / sigma", by_noise),
        ("solved", "an inner product", lambda x, f, m, s, b: (f - b).dot(x - m) / (s**2 * len(x))),
        ("divided by sigma once", "z for z / sigma", lambda x, f, m, s, b: ((f - b) * (x - m) / s).mean()),
        ("left out sigma", "x - mu", lambda x, f, m, s, b: torch.mean((f - b) * (x - m))),
        ("turned the sign", "mu - x", lambda x, f, m, s, b: ((b - f) * (x - m)).mean() / s**2),
        ("summed", "inner product, not divided by n", lambda x, f, m, s, b: (f - b) @ (x - m) / s**2),
        (
            "subtracted the baseline at the end",
            "baseline off the gradient",
            lambda x, f, m, s, b: torch.mean(f * (x - m)) / s**2 - b,
        ),
        ("added the baseline", "f + b", lambda x, f, m, s, b: ((f + b) * (x - m)).mean() / s**2),
        (
            "product of means",
            "means first",
            lambda x, f, m, s, b: (f.mean() - b) * (x.mean() - m) / s**2,
        ),
        (
            "derivative for sigma",
            "score for sigma",
            lambda x, f, m, s, b: ((f - b) * ((x - m) ** 2 - s**2)).mean() / s**3,
        ),
        (
            "baseline on the score alone",
            "inside, but after the product",
            lambda x, f, m, s, b: (f * (x - m) - b).mean() / s**2,
        ),
        (
            "divided by n - 1",
            "n - 1",
            lambda x, f, m, s, b: (f - b) @ (x - m) / s**2 / (len(f) - 1),
        ),
        ("left out the baseline", "f alone", lambda x, f, m, s, b: (f * (x - m)).mean() / s**2),
        (
            "wrong",
            "sample variance for sigma squared",
            lambda x, f, m, s, b: ((f - b) * (x - m)).mean() / x.var(),
        ),
        ("malformed", "not averaged", lambda x, f, m, s, b: (f - b) * (x - m) / s**2),
    ],
    "09.6": [
        ("solved", "autograd", by_autograd),
        ("solved", "scores averaged", by_scores),
        ("solved", "Jacobian times values", by_jacobian),
        ("kept the values alone", "first part of the score", lambda t, f: t.softmax(0) * f),
        ("gradient for the probabilities", "chain rule forgotten", lambda t, f: f * 1),
        ("compared with the plain mean", "f - mean", lambda t, f: t.softmax(0) * (f - f.mean())),
        (
            "treated the entries as independent",
            "diagonal",
            lambda t, f: torch.diag(by_jacobian(t, torch.eye(len(t), dtype=t.dtype))) * f,
        ),
        ("turned the sign", "gradient of a loss", lambda t, f: -by_jacobian(t, f)),
        ("not weighed by p", "f - E[f]", lambda t, f: f - (t.softmax(0) * f).sum()),
        ("logits for probabilities", "no softmax", lambda t, f: t * (f - t @ f)),
        ("softmax of the values", "softmax of f", lambda t, f: f.softmax(0) * (f - f.softmax(0) @ f)),
        ("divided by p", "1/p", lambda t, f: (f - t.softmax(0) @ f) / t.softmax(0)),
        ("the score of one category", "f (1 - p)", lambda t, f: f - f * t.softmax(0)),
        ("off the sum", "f - sum", lambda t, f: t.softmax(0) * (f - f.sum())),
        ("second p missing", "E[f] off every entry", lambda t, f: t.softmax(0) * f - t.softmax(0) @ f),
        ("wrong", "off the largest", lambda t, f: t.softmax(0) * (f - f.max())),
        ("malformed", "the expectation", lambda t, f: t.softmax(0) @ f),
    ],
    "09.3": [
        ("solved", "half the noise", case(4, 0.4, 0.5)),
        ("solved", "a slow wave and much noise", case(1.0, math.pi / 2, 2.0)),
        ("solved", "negative frequency", case(-3, 0.5, 0.5)),
        ("solved", "a negative mean", case(torch.tensor(2.0), -1, 0.8)),
        ("nothing left to estimate", "the doubled angle", case(256, 1, 0.5)),
        ("nothing left to estimate", "much noise", case(1.0, 0.0, 5.0)),
        ("nothing left to estimate", "at the bounds", case(10_000, 10_000, 10_000)),
        ("mean at a crest", "the mean at the top of the wave", case(2, 0, 1)),
        ("mean at a crest", "a whole wave further", case(2, math.pi, 1)),
        ("a constant function", "no wave", case(0, 1, 1)),
        ("a slow wave", "frequency 1, sigma 1/2", case(1, 1, 0.5)),
        ("a slow wave", "a small frequency", case(0.1, 1, 1)),
        ("hardly any noise", "sigma 0.01", case(5, 1, 0.01)),
        ("hardly any noise", "at the least sigma", case(100, 1, 0.001)),
        ("need", "sigma zero", case(10, 1, 0)),
        ("need", "negative sigma", case(10, 1, -1)),
        ("close to the border", "a sigma of 1.05", case(2.1, 1, 0.5)),
        ("close to the border", "frequency and sigma 1", case(1, 1, 1)),
        ("need", "too large", case(1e5, 1, 1)),
        ("malformed", "a tuple", (8, 1, 0.5)),
        ("malformed", "not a number", case(math.nan, 1, 0.5)),
    ],
}
