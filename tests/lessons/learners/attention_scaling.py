"""Lesson 17: what learners answer, and what tells them too early."""

import math

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "17.P1": [
        r"(?i)spread like \$\\sqrt d\$",
        r"(?i)climb like \$d\$",
        r"(?i)mostly cancel",
        r"8\.1 and 31\.4",
        r"grows by ≈",
    ],
    "17.P2": [
        r"\\frac\{1\}\{\\sqrt\\pi\\,r\}",
        r"(?i)few rows escape saturation",
        r"(?i)the mean falls",
        r"r times mean",
    ],
    "17.P3": [
        r"(?i)With no division at all",
        r"(?i)at smaller rates",
        r"\\sqrt\\beta\\,\\eta",
        r"(?i)smaller start 10",
    ],
}

NEIGHBOURS = {
    "17.h1": ("spread[1023] / spread[63]", "spread[1023] / spread[127]"),
    "17.h2": ("mean[1023] / mean[63]", "mean[1023] / mean[127]"),
    "17.2": ("vectors = mu + sigma * signs", "vectors = mu + sigma**2 * signs"),
    "17.4": ("between = sums.mean(1).var(correction=0)", "between = sums.mean(1).var()"),
    "17.6": ("2 * (6 - 1) * torch.exp(second - first)", "2 * torch.exp(second - first)"),
    "17.7": ("lesson.two_key_norms(r)[1]", "lesson.two_key_norms(r**0.5)[1]"),
    "17.r1": ("lesson.share_of_rows(drawn[10]), at_most", "lesson.share_of_rows(drawn[10], 0.99), at_most"),
    "17.8": ("(t - 0.5).abs() <= 0.1", "(t - 0.6).abs() <= 0.1"),
    "17.e1": ("lesson.solved(lesson.NONE, *case)", "lesson.solved(lesson.ROOT, *case)"),
    "17.e2": ("(lesson.ROOT_STD, lesson.SMALL)]", "(lesson.ROOT, lesson.SMALL)]"),
    "17.e3": ("seeds=(0, 1, 2), steps=1000", "seeds=(0, 1, 2), steps=100"),
    "17.9": ("beta**0.5 * rate for rate", "beta * rate for rate"),
}


def by_trace(mean, std):
    second = std**2 * torch.eye(len(mean), dtype=torch.float64) + torch.outer(mean, mean)
    return torch.trace(second @ second) - (mean @ mean) ** 2


def by_products(mean, std):
    one = torch.full_like(mean, std**2)
    return (one * one + 2 * one * mean**2).sum().item()


def by_cases(mean, std, **options):
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * len(mean))
    return ((mean + std * signs) @ (mean + std * signs).T).var(**options)


def by_autograd(weights, upstream):
    scores = weights.log().requires_grad_()
    (scores.softmax(0) * upstream).sum().backward()
    return scores.grad


def by_matrix(weights, upstream):
    return (torch.diag(weights) - torch.outer(weights, weights)) @ upstream


def in_place(weights, upstream):
    upstream -= weights @ upstream
    return weights * upstream


def by_roots(w_q, w_k, scale):
    return math.sqrt(scale) * torch.stack((w_q, w_k))


def both_turned(w_q, w_k, scale):
    return -by_roots(w_q, w_k, scale)


ANSWERS = {
    "17.1": [
        ("solved", "root of 16 times 81", math.sqrt(16 * 81)),
        ("solved", "as a tensor", torch.tensor(36)),
        ("solved", "with the other sign, which divides as well", -36),
        ("solved", "4 times 9", 4 * 9),
        ("root of d alone", "the textbook's", math.sqrt(16)),
        ("sigma once", "root of d sigma squared", math.sqrt(16 * 3**2)),
        ("d sigma squared", "d sigma squared", 16 * 3**2),
        ("the variance itself", "the variance", 16 * 3**4),
        ("one product", "sigma squared", 3**2),
        ("variance of one product", "sigma to the fourth", 3**4),
        ("sigma to the fourth outside of the root", "root of d times sigma to the fourth", 4 * 3**4),
        ("root twice", "one root too many", 36**0.5),
        ("factor for divisor", "1/36 as the scale", 1 / (4 * 9)),
        ("wrong", "d times sigma", 48),
        ("wrong", "sigma", 3),
        ("malformed", "in words", "sqrt(16) * 9"),
    ],
    "17.2": [
        ("solved", "trace of the squared second moment", by_trace),
        ("solved", "entry by entry, variance of a product", by_products),
        ("solved", "all cases", lambda mean, std: by_cases(mean, std, correction=0)),
        (
            "solved",
            "with the norm squared",
            lambda mean, std: len(mean) * std**4 + 2 * (std * mean.norm()) ** 2,
        ),
        ("sample variance", "all cases, with the default of var", by_cases),
        ("without the mean", "d sigma^4 for every mean", lambda mean, std: len(mean) * std**4),
        ("one sigma squared", "d sigma^2", lambda mean, std: mean.numel() * std**2),
        ("one side only", "within a row", lambda mean, std: std**2 * (len(mean) * std**2 + mean.dot(mean))),
        (
            "square of the sum",
            "square outside of the sum",
            lambda mean, std: len(mean) * std**4 + 2 * (std * mean.sum()) ** 2,
        ),
        (
            "sum of the entries",
            "mu for mu squared",
            lambda mean, std: len(mean) * std**4 + 2 * std**2 * sum(mean),
        ),
        (
            "length not squared",
            "norm",
            lambda mean, std: len(mean) * std**4 + 2 * std**2 * torch.linalg.norm(mean),
        ),
        (
            "mean of the squares",
            "mean for sum",
            lambda mean, std: len(mean) * std**4 + 2 * std**2 * (mean**2).mean(),
        ),
        (
            "sigma squared with the mean",
            "sigma^2 in the first term",
            lambda mean, std: std**2 * (len(mean) + 2 * mean @ mean),
        ),
        ("standard deviation", "root at the end", lambda mean, std: math.sqrt(by_products(mean, std))),
        (
            "second moment",
            "mean not taken off",
            lambda mean, std: by_products(mean, std) + float(mean @ mean) ** 2,
        ),
        (
            "wrong",
            "fourth power of the mean as well",
            lambda mean, std: by_products(mean, std) + float((mean**4).sum()),
        ),
        ("wrong", "covariance forgotten", lambda mean, std: 2 * std**2 * mean @ mean),
        ("malformed", "one entry for each dimension", lambda mean, std: std**4 + 2 * std**2 * mean**2),
        ("d forgotten", "one entry in the first term", lambda mean, std: std**4 + 2 * std**2 * (mean @ mean)),
        ("wrong", "k is q", lambda mean, std: 2 * by_products(mean, std)),
    ],
    "17.3": [
        ("solved", "autograd", by_autograd),
        ("solved", "with the matrix", by_matrix),
        ("solved", "in place", in_place),
        (
            "solved",
            "two products",
            lambda weights, upstream: weights * upstream - weights * (weights @ upstream),
        ),
        (
            "sum for mean",
            "off the sum",
            lambda weights, upstream: weights * (upstream - upstream.sum(0, keepdim=True)),
        ),
        (
            "plain mean",
            "off the mean",
            lambda weights, upstream: weights * (upstream - upstream.mean(-1, keepdim=True)),
        ),
        (
            "diagonal only",
            "sigmoid's derivative",
            lambda weights, upstream: weights * (1 - weights) * upstream,
        ),
        ("no competition", "weights times gradient", torch.mul),
        (
            "second factor alpha missing",
            "scalar taken off",
            lambda weights, upstream: weights * upstream - weights.dot(upstream),
        ),
        (
            "gradient of the logarithm",
            "log softmax",
            lambda weights, upstream: upstream - upstream.sum() * weights,
        ),
        (
            "softmax again",
            "matrix of the softmax of the weights",
            lambda weights, upstream: by_matrix(weights.softmax(0), upstream),
        ),
        (
            "off the diagonal alone",
            "outer product alone",
            lambda weights, upstream: -torch.outer(weights, weights) @ upstream,
        ),
        (
            "plus for minus",
            "diag plus outer",
            lambda weights, upstream: (torch.diag(weights) + torch.outer(weights, weights)) @ upstream,
        ),
        ("wrong sign", "outer minus diag", lambda weights, upstream: -by_matrix(weights, upstream)),
        (
            "centred only",
            "matrix without the factor",
            lambda weights, upstream: upstream - upstream.dot(weights) * torch.ones_like(weights),
        ),
        ("wrong", "off the largest", lambda weights, upstream: weights * (upstream - upstream.max())),
        ("wrong", "the gradient handed on", lambda weights, upstream: upstream.clone()),
        ("malformed", "summed up", edit("return weights * ", "return weights @ ")),
        ("malformed", "the matrix itself", lambda weights, upstream: torch.diag(weights) * upstream),
        (
            "diagonal only",
            "weights minus squared weights",
            lambda weights, upstream: (weights - weights**2) * upstream,
        ),
    ],
    "17.4": [
        ("solved", "twice as long", {"q1": 2, "q2": 2, "q3": 1}),
        ("solved", "not exactly at the tie", {"q1": 1.0, "q2": 1.0, "q3": 0.5006}),
        ("solved", "without the third entry", {"q1": 0.6, "q2": 1.0, "q3": 0.0}),
        ("solved", "all scores zero", {"q1": 0.0, "q2": 0.0, "q3": 0.0}),
        ("solved", "keys 1 and 4 at the top", {"q1": -1.0, "q2": -1.0, "q3": -3.0}),
        ("losers tie", "keys 1 and 3 tie at five", {"q1": 1.0, "q2": 2.0, "q3": 3.0}),
        ("a clear winner", "far along key 3", {"q1": 5.0, "q2": 0.0, "q3": -1.0}),
        ("losers tie", "keys 1 and 3 tie below key 2", {"q1": 1.0, "q2": 2.0, "q3": 0.0}),
        ("losers tie", "key 4 itself: keys 1 and 3 at zero", {"q1": 0.0, "q2": 0.0, "q3": 1.0}),
        ("not close enough", "a gap of 0.04", {"q1": 1.0, "q2": 1.0, "q3": 0.51}),
        ("not close enough", "a gap of 0.012", {"q1": 1.0, "q2": 1.0, "q3": 0.503}),
        ("not close enough", "on the other side", {"q1": 1.0, "q2": 1.0, "q3": 0.45}),
        ("malformed", "a list", [1.0, 1.0, 0.5]),
        ("malformed", "a missing entry", {"q1": 1.0, "q2": 1.0}),
        ("malformed", "infinite", {"q1": 1.0, "q2": 1.0, "q3": math.inf}),
    ],
    "17.5": [
        ("solved", "root of the scale", by_roots),
        ("solved", "both with the other sign", both_turned),
        ("solved", "by a list", lambda w_q, w_k, scale: torch.stack([w * scale**0.5 for w in (w_q, w_k)])),
        ("the whole scale on both", "times beta", lambda w_q, w_k, scale: scale * torch.stack([w_q, w_k])),
        ("the whole scale on queries", "W_Q alone", lambda w_q, w_k, scale: torch.stack([w_q * scale, w_k])),
        ("the whole scale on keys", "W_K alone", lambda w_q, w_k, scale: torch.stack([w_q, w_k * scale])),
        ("divided", "over the root", lambda w_q, w_k, scale: torch.stack([w_q, w_k]) / math.sqrt(scale)),
        ("half the scale", "half for each", lambda w_q, w_k, scale: torch.stack([w_q, w_k]) * scale / 2),
        (
            "one of them only",
            "root on W_Q",
            lambda w_q, w_k, scale: torch.stack([math.sqrt(scale) * w_q, w_k]),
        ),
        ("unchanged", "as they were", lambda w_q, w_k, scale: torch.stack([w_q, w_k])),
        (
            "width for scale",
            "d^(-1/4)",
            lambda w_q, w_k, scale: torch.stack([w_q, w_k]) * w_q.shape[1] ** -0.25,
        ),
        ("wrong", "one sign turned", lambda w_q, w_k, scale: torch.stack([w_q, -w_k]) * math.sqrt(scale)),
        ("wrong", "divided by the scale", lambda w_q, w_k, scale: torch.stack([w_q, w_k]) / scale),
        ("wrong", "matrices exchanged", lambda w_q, w_k, scale: math.sqrt(scale) * torch.stack([w_k, w_q])),
        ("malformed", "a pair", lambda w_q, w_k, scale: (w_q, w_k)),
        ("malformed", "the product", lambda w_q, w_k, scale: scale * w_q @ w_k.T),
    ],
}
