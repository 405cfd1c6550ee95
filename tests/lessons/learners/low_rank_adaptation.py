"""What learners of lesson 25 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "25.P1": [r"(?i)taken off", r"added for \*every\*", r"costs the old languages more"],
    "25.P2": [r"nearly level", r"takes the rank out"],
    "25.P3": [r"(?i)turned down", r"(?i)moved back"],
}


def row_by_row(grad, x, lora_A, scale):
    return scale * sum(torch.outer(g, lora_A @ row) for g, row in zip(grad, x, strict=True))


def by_autograd(grad, x, lora_A, scale):
    lora_B = torch.zeros(grad.shape[1], len(lora_A), dtype=x.dtype, requires_grad=True)
    return torch.autograd.grad(scale * x @ lora_A.T @ lora_B.T, lora_B, grad)[0]


def weight(w, d):
    return {"w": w, "d": d}


def cut(gradient, rank):
    u, s, vh = torch.linalg.svd(gradient)
    return sum(s[i] * torch.outer(u[:, i], vh[i]) for i in range(rank))


def by_eigenvectors(gradient, rank):
    """Project on the leading left singular vectors."""
    axes = torch.linalg.eigh(gradient @ gradient.T).eigenvectors[:, -rank:]
    kept = axes @ axes.T @ gradient
    return -kept / torch.linalg.matrix_norm(kept)


def unit(matrix):
    return matrix / matrix.square().sum().sqrt()


ANSWERS = {
    "25.1": [
        ("solved", "r times the sum", 8 * (1024 + 4096)),
        ("solved", "counted", sum(p.numel() for p in (torch.empty(8, 1024), torch.empty(4096, 8)))),
        ("A alone", "the first factor", 8192),
        ("B alone", "the second factor", 32768),
        ("the product", "the update's size", 4194304),
        ("all multiplied", "rank times the size of W", 33554432),
        ("with W", "all numbers of the layer", 4235264),
        ("a square core", "three factors", 41024),
        ("malformed", "two numbers", (8192, 32768)),
    ],
    "25.2": [
        ("solved", "row by row", row_by_row),
        ("solved", "autograd", by_autograd),
        ("solved", "einsum", lambda grad, x, lora_A, scale: scale * torch.einsum("no,ni,ri->or", grad, x, lora_A)),
        ("scale forgotten", "no s", lambda grad, x, lora_A, scale: by_autograd(grad, x, lora_A, 1.0)),
        ("scale twice", "s^2", lambda grad, x, lora_A, scale: scale * row_by_row(grad, x, lora_A, scale)),
        ("mean", "mean over examples", lambda grad, x, lora_A, scale: row_by_row(grad, x, lora_A, scale) / len(x)),
        ("sign", "the step", lambda grad, x, lora_A, scale: -by_autograd(grad, x, lora_A, scale)),
        ("one example", "the first row", lambda grad, x, lora_A, scale: scale * torch.outer(grad[0], lora_A @ x[0])),
        ("A normalised", "pinv", edit("lora_A.T", "torch.linalg.pinv(lora_A)")),
        ("wrong", "every example with every other",
         lambda grad, x, lora_A, scale: scale * torch.outer(grad.sum(0), lora_A @ x.sum(0))),
        ("malformed", "transposed", lambda grad, x, lora_A, scale: row_by_row(grad, x, lora_A, scale).T),
        ("malformed", "the gradient of B A", lambda grad, x, lora_A, scale: scale * grad.T @ x),
    ],
    "25.3": [
        ("solved", "a sum of outer products", lambda gradient, rank: -unit(cut(gradient, rank))),
        ("solved", "eigenvectors of G G^T", by_eigenvectors),
        ("sign", "uphill", lambda gradient, rank: unit(cut(gradient, rank))),
        ("full rank", "G over its norm", lambda gradient, rank: -unit(gradient)),
        ("equal sizes", "as Muon does", lambda gradient, rank: -unit(
            (s := torch.linalg.svd(gradient)).U[:, :rank] @ s.Vh[:rank])),
        ("not normalised", "the cut matrix", lambda gradient, rank: -cut(gradient, rank)),
        ("spectral norm", "matrix_norm with ord 2", lambda gradient, rank: -cut(gradient, rank)
         / torch.linalg.matrix_norm(gradient, 2)),
        ("divided by all of G", "the norm of G", lambda gradient, rank: -cut(gradient, rank) / gradient.norm()),
        ("smallest directions", "from the end", lambda gradient, rank: -unit(cut(gradient, 3) - cut(gradient, 3 - rank))),
        ("wrong", "one direction whatever the rank", lambda gradient, rank: -unit(cut(gradient, 1))),
        ("malformed", "the singular vectors", lambda gradient, rank: torch.linalg.svd(gradient).U[:, :rank]),
    ],
    "25.4": [
        ("solved", "a fraction", Fraction(4, 36)),
        ("solved", "rounded", 0.111),
        ("no change", "the scale makes ranks alike", 1),
        ("s squared alone", "s^2", (4 / 36) ** 2),
        ("upside down", "36 / 4", 9),
        ("a root", "alpha over the root", 1 / 3),
        ("the change of the rank", "36 - 4", 32),
        ("s once", "s twice and one root", 1 / 27),
        ("a root", "s once, and the root of 9", 1 / 9 * 3),
        ("wrong", "alpha over the root, times the rank", 3),
        ("malformed", "in words", "a ninth"),
    ],
    "25.5": [
        ("solved", "tenths", weight(0.7, 0.6)),
        ("solved", "pi and e", weight(math.pi, math.e)),
        ("solved", "negative numbers", weight(-1.1, -1.0)),
        ("whole numbers", "5 and 2", weight(5, 2)),
        ("the update is the larger one", "absorbed", weight(1e-8, 1)),
        ("no update", "zero", weight(0.1, 0.0)),
        ("halves", "quarters", weight(0.75, 0.5)),
        ("the update is the larger one", "nothing is lost", weight(1.0, 2.0)),
        ("wrong", "a weight that is too large", weight(2e6, 0.1)),
        ("wrong", "twenty digits before the point and ten behind", weight(500000.0009765625, 1.0)),
        ("whole numbers", "large ones", weight(999_999, 999_998)),
        ("wrong", "the sum cancels", weight(0.1, -0.1)),
        ("malformed", "a pair", (1.1, 1.0)),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "25.e1": ('{:.2f}", ends["adapter"][1], at_least', '{:.2f}", ends["whole"][1], at_least'),
    "25.e2": (
        '[ends["adapter"][1] / ends[name][1] for name',
        '[ends["whole"][1] / ends[name][1] for name',
    ),
    "25.e3": ("lora.unload(off)", "lora.merge(off)"),
    "25.3": ("multiplications(adapted_linear) / floor", "multiplications(adapted_linear_by_weight) / floor"),
    "25.4": ("A, B = A - 0.05 * B.T @ gap, B - 0.05 * gap @ A.T", "A, B = A - 0.05 * B.T @ gap, B"),
    "25.5": (
        'of it", np.median(best)',
        'of it", np.median(lesson.all_shares("the weight\'s directions")[:, 7])',
    ),
    "25.e4": (
        'np.median(lesson.all_shares("the gradient\'s directions", 1)[:, 7])',
        'np.median(lesson.all_shares("the weight\'s directions", 1)[:, 7])',
    ),
    "25.7": (
        '{:.2f}", ratio("alpha/sqrt(r)", torch.optim.SGD)',
        '{:.2f}", ratio("alpha/r", torch.optim.SGD)',
    ),
    "25.8": (
        '{:.2f}", ratio("alpha/r", torch.optim.Adam)',
        '{:.2f}", ratio("alpha/sqrt(r)", torch.optim.Adam)',
    ),
    "25.e5": (
        "for a, b in zip(four, turned, strict=True)",
        "for a, b in zip(one, turned, strict=True)",
    ),
    "25.e6": ("for a, b in zip(turned, one, strict=True)", "for a, b in zip(one, one, strict=True)"),
    "25.6": (
        '{:.1f}", ratio("alpha/sqrt(r)", torch.optim.Adam)',
        '{:.1f}", ratio("alpha/r", torch.optim.Adam)',
    ),
}
