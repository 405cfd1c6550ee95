"""What learners of lesson 23 answer, and what gives its predictions away."""

import math
from itertools import combinations

import torch

GIVES_AWAY = {
    "23.P1": [r"\b59\b", r"\b117\b", r"has its own delay", r"\\log 100"],
    "23.P2": [r"(?i)orthonormal", r"misses the identity", r"RR\^"],
    "23.P3": [r"1 - \\lambda/s|1 - \\frac", r"(?i)soft threshold", r"never reach 0"],
    "23.P4": [r"more labels hurt", r"double descent", r"≈31"],
}


def by_eigenvectors(x, k):
    centred = x - x.mean(0)
    axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -k:]
    return centred @ axes @ axes.T + x.mean(0)


def by_truncation(x, k):
    u, s, vh = torch.linalg.svd(x - x.mean(0))
    return x.mean(0) + u[:, :k] * s[:k] @ vh[:k]


def projected(x, k, mean, directions):
    return mean + (x - mean) @ directions.T @ directions


def directions(x):
    return torch.linalg.svd(x - x.mean(0)).Vh


def by_autograd(encoder, decoder, x):
    leaf = decoder.clone().requires_grad_()
    return torch.autograd.grad((x - x @ encoder.T @ leaf.T).square().sum() / len(x), leaf)[0]


def example_by_example(encoder, decoder, x):
    gradient = torch.zeros_like(decoder)
    for row in x:
        code = encoder @ row
        gradient += -2 * torch.outer(row - decoder @ code, code) / len(x)
    return gradient


def by_second_moment(encoder, decoder, x):
    moment = x.T @ x / len(x)
    return 2 * (decoder @ encoder - torch.eye(len(moment), dtype=x.dtype)) @ moment @ encoder.T


def with_factors(moment, k, factor):
    values, axes = torch.linalg.eigh(moment)
    return sum(factor(values[-i]) * torch.outer(axes[:, -i], axes[:, -i]) for i in range(1, k + 1))


def by_svd(moment, k, penalty):
    u, s, vh = torch.linalg.svd(moment)
    return u[:, :k] * (1 - penalty / s[:k]).clamp(min=0) @ vh[:k]


def points(p, q, r, t):
    return {"p": p, "q": q, "r": r, "t": t}


ANSWERS = {
    "23.7": [
        ("solved", "eigenvectors of the covariance", by_eigenvectors),
        ("solved", "a truncated SVD", by_truncation),
        ("solved", "directions of a full SVD", lambda x, k: projected(x, k, x.mean(0), directions(x)[:k])),
        ("not centred", "SVD of x as it is", lambda x, k: projected(x, k, 0 * x.mean(0), torch.linalg.svd(x).Vh[:k])),
        ("mean left out", "the projection alone", lambda x, k: by_truncation(x, k) - x.mean(0)),
        ("smallest first", "eigh from the front", lambda x, k: projected(x, k, x.mean(0), directions(x).flip(0)[:k])),
        ("one too many", "k + 1", lambda x, k: by_truncation(x, k + 1)),
        ("one too few", "skipped the first", lambda x, k: projected(x, k, x.mean(0), directions(x)[1 : k + 1])),
        ("columns for rows", "Vh taken for V", lambda x, k: projected(x, k, x.mean(0), directions(x)[:, :k].T)),
        ("malformed", "the codes", lambda x, k: (x - x.mean(0)) @ directions(x)[:k].T @ torch.ones(k, 1).double()),
    ],
    "23.6": [
        ("solved", "far out", points(10, 1, 10, -1)),
        ("solved", "to the left", points(-2.0, -0.5, -2.0, 0.5)),
        ("centred", "on the vertical axis", points(0, 2, 0, -2)),
        ("moved too little", "too high", points(0.5, 1, 0.5, -1)),
        ("moved too little", "a tie", points(1, 1, 1, -1)),
        ("a slanted sum", "both above the axis", points(3, 1, 3, 2)),
        ("side by side", "the axes exchanged", points(2, 1, -2, 1)),
        ("wrong", "one point twice", points(3, 0, 3, 0)),
        ("malformed", "two points", {"a": (3, 1), "b": (3, -1)}),
    ],
    "23.1": [
        ("solved", "autograd", by_autograd),
        ("solved", "example by example", example_by_example),
        ("solved", "with the second moment", by_second_moment),
        ("missing 2", "a loss with 1/2", lambda encoder, decoder, x: by_autograd(encoder, decoder, x) / 2),
        ("sign", "downhill", lambda encoder, decoder, x: -by_second_moment(encoder, decoder, x)),
        ("sum", "the sum over examples", lambda encoder, decoder, x: by_autograd(encoder, decoder, x) * len(x)),
        ("mean over entries", "mse_loss", lambda encoder, decoder, x: by_autograd(encoder, decoder, x) / x.shape[1]),
        ("target forgotten", "the output's square",
         lambda encoder, decoder, x: 2 * decoder @ encoder @ x.T @ x @ encoder.T / len(x)),
        ("wrong", "the errors alone", lambda encoder, decoder, x: 2 * (x @ encoder.T @ decoder.T - x).T @ x @ encoder.T
         @ encoder @ encoder.T),
        ("malformed", "transposed", lambda encoder, decoder, x: by_autograd(encoder, decoder, x).T),
    ],
    "23.2": [
        ("solved", "the second smallest of all pairs", sorted(17 - a - b for a, b in combinations((9, 5, 2, 1), 2))[1]),
        ("solved", "a float", 6.0),
        ("the minimum", "PCA's loss", 3),
        ("what is kept", "9 + 2", 11),
        ("one axis further", "9 and 1 kept", 7),
        ("the highest", "2 and 1 kept", 14),
        ("wrong", "one unit unused", 8),
        ("malformed", "the pair of axes", (9, 2)),
    ],
    "23.3": [
        ("solved", "logarithms", lambda variances, step_size, factor: torch.log(
            torch.tensor(factor, dtype=torch.float64)) / (1 + 2 * step_size * variances).log()),
        ("solved", "base 10 in both", lambda variances, step_size, factor: math.log10(factor)
         / (1 + 2 * step_size * variances).log10()),
        ("missing 2", "1 + eta s", lambda variances, step_size, factor: math.log(factor)
         / (1 + step_size * variances).log()),
        ("continuous time", "gradient flow", lambda variances, step_size, factor: math.log(factor)
         / (2 * step_size * variances)),
        ("no logarithm", "factor over rate", lambda variances, step_size, factor: factor
         / (1 + 2 * step_size * variances).log()),
        ("decimal logarithm", "base 10 above", lambda variances, step_size, factor: math.log10(factor)
         / (1 + 2 * step_size * variances).log()),
        ("squared", "of the product ab", lambda variances, step_size, factor: math.log(factor**2)
         / (1 + 2 * step_size * variances).log()),
        ("wrong", "the same for all", lambda variances, step_size, factor: math.log(factor)
         / (1 + 2 * step_size * variances).log().mean().expand(len(variances))),
        ("malformed", "one number", lambda variances, step_size, factor: math.log(factor)),
    ],
    "23.4": [
        ("solved", "the sum over directions of 2 lambda - lambda^2 / s", sum(1 - 0.25 / s for s in (4, 1))),
        ("solved", "rounded", 1.6875),
        ("orthonormal weights", "PCA's weights", 2 * 2 * 0.5),
        ("penalty only", "no error", sum(2 * 0.5 * (1 - 0.5 / s) for s in (4, 1))),
        ("error only", "no penalty", sum(0.25 / s for s in (4, 1))),
        ("one matrix", "one penalty", sum(0.25 / s + 0.5 * (1 - 0.5 / s) for s in (4, 1))),
        ("no weights at all", "4 + 1", 5),
        ("malformed", "both directions", [15 / 16, 3 / 4]),
    ],
    "23.5": [
        ("solved", "a sum of outer products", lambda moment, k, penalty: with_factors(
            moment, k, lambda s: max(0.0, float(1 - penalty / s)))),
        ("solved", "SVD", by_svd),
        ("solved", "shrunk eigenvalues over eigenvalues", lambda moment, k, penalty: with_factors(
            moment, k, lambda s: torch.relu(s - penalty) / s)),
        ("ridge's factor", "s / (s + lambda)", lambda moment, k, penalty: with_factors(
            moment, k, lambda s: s / (s + penalty))),
        ("not clamped", "a negative factor",
         lambda moment, k, penalty: with_factors(moment, k, lambda s: 1 - penalty / s)),
        ("square roots left", "one of the two matrices", lambda moment, k, penalty: with_factors(
            moment, k, lambda s: (1 - penalty / s).clamp(min=0).sqrt())),
        ("hard threshold", "kept or dropped",
         lambda moment, k, penalty: with_factors(moment, k, lambda s: float(s > penalty))),
        ("no penalty", "PCA's projection", lambda moment, k, penalty: with_factors(moment, k, lambda s: 1.0)),
        ("twice the penalty", "2 lambda", lambda moment, k, penalty: with_factors(
            moment, k, lambda s: (1 - 2 * penalty / s).clamp(min=0))),
        ("more than k", "all directions", lambda moment, k, penalty: by_svd(moment, len(moment), penalty)),
        ("wrong", "shrunk eigenvalues",
         lambda moment, k, penalty: with_factors(moment, k, lambda s: torch.relu(s - penalty))),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "23.1": ("ends = torch.diag((4 * VALUES).sqrt())", "ends = torch.diag((4.01 * VALUES).sqrt())"),
    "23.2": (
        "descend(*start, torch.diag(VALUES), steps=249",
        "descend(*start, torch.diag(VALUES.sqrt()), steps=249",
    ),
    "23.3": ("U @ torch.linalg.inv(R)", "U @ R.T"),
    "23.4": ("found = lesson.trained_encoders()", "found = lesson.trained_encoders(scale=0.3)"),
    "23.5": ("train(seed=seed, steps=1500).sizes", "train(seed=seed, steps=1500, units=4).sizes"),
    "23.6": ("math.log(100) / torch.log1p(", "math.log(100) / ("),
    "23.8": ("step_size=0.05, steps=600)", "step_size=0.05, steps=20)"),
    "23.9": (
        "lesson.trained_encoders((0.2, 0.5, 0.8)), lesson",
        "lesson.trained_encoders((0.5, 0.5, 0.5)), lesson",
    ),
    "23.e1": ('right["pixels, penalty"][i] -', 'right["pixels, no penalty"][i] -'),
    "23.e2": ('right["pixels, no penalty"][:3]', 'right["pixels, penalty"][:3]'),
}
