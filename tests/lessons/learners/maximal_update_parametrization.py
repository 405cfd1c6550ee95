"""Learners of lesson 07."""

import math

import numpy as np
import torch

from course_lib.teaching import edit


def _case(W, h):
    return dict(zip(("w_11", "w_12", "w_21", "w_22", "h_1", "h_2"), (*W, *h), strict=True))


def _rate(factor):
    """An answer to 07.2 from its factor as a function of the four fans."""
    return lambda fan_out, fan_in, base_fan_out, base_fan_in, lr: (
        lr * factor(fan_out, fan_in, base_fan_out, base_fan_in)
    )


def _three(numbers):
    return lambda d_out, d_in: torch.tensor(numbers(d_out, d_in), dtype=torch.float64)


def _signs(alpha):
    """An answer to 07.5 from its step size as a function of the sign matrix."""
    return lambda gradient, radius: -radius * alpha(torch.sign(gradient)) * torch.sign(gradient)


def _by_bisection(gradient, radius):
    low, high, signs = 0.0, 10.0, gradient.sign()
    for _ in range(60):
        middle = (low + high) / 2
        fits = torch.linalg.svdvals(middle * signs)[0] <= radius * len(signs) ** 0.5
        low, high = (middle, high) if fits else (low, middle)
    return -low * signs


SQRT2, LAW = math.sqrt(2), 32 / math.pi + 4 - 8 / math.pi

ANSWERS = {
    "07.1": [
        ("solved", "two decimals", 11.64),
        ("solved", "the sum of both kinds of terms", 4 + 12 * 2 / math.pi),
        ("solved", "a number of NumPy", np.float64(LAW)),
        ("each size taken as 1", "d squared", 16),
        ("square of the mean", "rounded", 10.19),
        ("random signs", "the number of entries", 4),
        ("the root", "rounded root", 3.41),
        ("sum of the outputs", "four outputs added", 46.56),
        ("squares and products miscounted", "pairs counted once", 4 + 6 * 2 / math.pi),
        ("squares and products miscounted", "16 products", 4 + 16 * 2 / math.pi),
        ("squares and products miscounted", "E|x| for its square", 4 + 12 * math.sqrt(2 / math.pi)),
        ("squares and products miscounted", "the two kinds swapped", 12 + 8 / math.pi),
        ("the mean of the sum", "the expected sum", 3.19),
        ("wrong", "one decimal", 11.6),
        ("malformed", "one number for each output", torch.full((4,), LAW)),
    ],
    "07.2": [
        ("solved", "over the growth", _rate(lambda out, fan_in, base_out, base: 1 / (fan_in / base))),
        ("solved", "base over width", _rate(lambda out, fan_in, base_out, base: base / fan_in)),
        ("solved", "in float32", lambda out, fan_in, base_out, base, lr: torch.tensor(lr) * base / fan_in),
        ("the same for all", "lr", _rate(lambda *fans: 1.0)),
        ("the wrong fan", "growth of the outputs", _rate(lambda out, fan_in, base_out, base: base_out / out)),
        (
            "the root",
            "root of the growth",
            _rate(lambda out, fan_in, base_out, base: math.sqrt(base / fan_in)),
        ),
        (
            "the rule of SGD",
            "growth of outputs over that of inputs",
            _rate(lambda out, fan_in, base_out, base: out / fan_in * base / base_out),
        ),
        (
            "Muon's rule",
            "root of the ratio",
            _rate(lambda out, fan_in, base_out, base: math.sqrt((out / base_out) / (fan_in / base))),
        ),
        ("upside down", "the growth", _rate(lambda out, fan_in, base_out, base: fan_in / base)),
        ("without the base", "over the fan", _rate(lambda out, fan_in, base_out, base: 1 / fan_in)),
        (
            "both fans",
            "over both growths",
            _rate(lambda out, fan_in, base_out, base: 1 / ((fan_in / base) * (out / base_out))),
        ),
        (
            "squared",
            "over the squared growth",
            _rate(lambda out, fan_in, base_out, base: (base / fan_in) ** 2),
        ),
        ("integer division", "//", _rate(lambda out, fan_in, base_out, base: base // fan_in)),
        (
            "wrong",
            "only for hidden matrices",
            _rate(lambda out, fan_in, base_out, base: base / fan_in if out > base_out else 1.0),
        ),
        ("malformed", "the base fans forgotten", lambda fan_out, fan_in, lr: lr / fan_in),
    ],
    "07.3": [
        ("solved", "rank one along (1, 1)", _case((0.5, 0.5, 0.5, 0.5), (1.0, -1.0))),
        ("solved", "a small second singular value", _case((1.0, 0.0, 0.0, 0.005), (0.0, SQRT2))),
        ("solved", "a nilpotent matrix", _case((0.0, 1.0, 0.0, 0.0), (SQRT2, 0.0))),
        ("solved", "a negative norm direction", _case((0.0, 0.0, 0.0, -1.0), (-1.414, 0.0))),
        ("nothing lost", "the identity", _case((1, 0, 0, 1), (1, 1))),
        ("nothing lost", "a rotation", _case((0.0, -1.0, 1.0, 0.0), (1.0, 1.0))),
        ("need", "all ones", _case((1, 1, 1, 1), (1, -1))),
        (
            "need",
            "Frobenius norm for spectral norm",
            _case((1 / SQRT2, 0.0, 0.0, 1 / SQRT2), (1.0, 1.0)),
        ),
        ("need", "a unit vector", _case((1, 0, 0, 0), (0, 1))),
        ("need", "h = 0", _case((1, 0, 0, 1), (0, 0))),
        ("need", "h too long", _case((1, 0, 0, 0), (0, 2))),
        ("need", "W = 0", _case((0, 0, 0, 0), (1, -1))),
        ("not enough lost", "h along (1, 1)", _case((1, 0, 0, 0), (1, 1))),
        ("malformed", "W as a list", {"W": [[1, 0], [0, 0]], "h": [0, SQRT2]}),
    ],
    "07.4": [
        ("solved", "minus a half", {"layer": 2, "power": -0.5}),
        ("solved", "read from the figure", {"layer": 2, "power": -0.45}),
        ("solved", "numbers of torch", {"layer": torch.tensor(2), "power": torch.tensor(-0.5)}),
        ("the last one that rises", "the steepest line", {"layer": 3, "power": -0.5}),
        ("the last one that rises", "the readout, whole rule", {"layer": 3, "power": -1}),
        ("the one that is flat", "the first layer", {"layer": 1, "power": 0.5}),
        ("the other way", "how the line rises", {"layer": 2, "power": 0.5}),
        ("the whole rule once more", "one over the width", {"layer": 2, "power": -1}),
        ("need", "no such layer", {"layer": 4, "power": -0.5}),
        ("need", "counted from 0", {"layer": 0, "power": -0.5}),
        ("need", "nothing to do", {"layer": 2, "power": 0}),
        ("need", "a factor for a power", {"layer": 2, "power": 4}),
        ("wrong", "too little", {"layer": 2, "power": -0.25}),
        ("malformed", "layer by name", {"layer": "hidden", "power": -0.5}),
        ("malformed", "the layer alone", 2),
    ],
    "07.5": [
        (
            "solved",
            "with math.sqrt",
            _three(lambda out, fan_in: [1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in), math.sqrt(out)]),
        ),
        (
            "solved",
            "from the spectral norms",
            _three(lambda out, fan_in: [fan_in**-0.5, out**0.5 / (fan_in * out) ** 0.5, out**0.5]),
        ),
        (
            "steps with the minus",
            "signed steps",
            _three(lambda out, fan_in: [fan_in**-0.5, -(fan_in**-0.5), -math.sqrt(out)]),
        ),
        (
            "wrong",
            "c with a minus",
            _three(lambda out, fan_in: [-(fan_in**-0.5), -(fan_in**-0.5), out**0.5]),
        ),
        (
            "wrong",
            "Muon's step with a minus",
            _three(lambda out, fan_in: [fan_in**-0.5, fan_in**-0.5, -(out**0.5)]),
        ),
        ("c upside down", "the notes' c", _three(lambda out, fan_in: [fan_in**0.5, fan_in**-0.5, out**0.5])),
        (
            "sign step upside down",
            "the notes' alpha",
            _three(lambda out, fan_in: [fan_in**-0.5, fan_in**0.5, out**0.5]),
        ),
        (
            "c forgotten in the steps",
            "steps of W itself",
            _three(lambda out, fan_in: [fan_in**-0.5, 1 / fan_in, math.sqrt(out / fan_in)]),
        ),
        (
            "Muon's step of norm 1",
            "U V^T as it is",
            _three(lambda out, fan_in: [fan_in**-0.5, fan_in**-0.5, 1]),
        ),
        (
            "Muon's step from the inputs",
            "root of d_in",
            _three(lambda out, fan_in: [fan_in**-0.5, fan_in**-0.5, fan_in**0.5]),
        ),
        ("Muon's step squared", "d_out", _three(lambda out, fan_in: [fan_in**-0.5, fan_in**-0.5, out])),
        ("shapes swapped", "rows as inputs", _three(lambda out, fan_in: [out**-0.5, out**-0.5, fan_in**0.5])),
        ("c over the inputs", "1 / d_in", _three(lambda out, fan_in: [1 / fan_in, fan_in**-0.5, out**0.5])),
        (
            "wrong",
            "one over the outputs for c",
            _three(lambda out, fan_in: [out**-0.5, fan_in**-0.5, out**0.5]),
        ),
        (
            "malformed",
            "a float32 tensor",
            lambda d_out, d_in: torch.tensor([d_in**-0.5, d_in**-0.5, d_out**0.5]),
        ),
        ("malformed", "a tuple", lambda d_out, d_in: (d_in**-0.5, d_in**-0.5, d_out**0.5)),
    ],
    "07.6": [
        ("solved", "svdvals", _signs(lambda S: S.shape[0] ** 0.5 / torch.linalg.svdvals(S)[0])),
        (
            "solved",
            "an eigenvalue of S S^T",
            _signs(lambda S: math.sqrt(S.shape[0] / torch.linalg.eigvalsh(S @ S.T)[-1])),
        ),
        ("solved", "bisection", _by_bisection),
        ("as for one sample", "1 / sqrt(d_in)", _signs(lambda S: S.shape[1] ** -0.5)),
        ("multiplied for divided", "sqrt(d_in)", _signs(lambda S: S.shape[1] ** 0.5)),
        ("spectral norm eta", "1 over the norm", _signs(lambda S: 1 / torch.linalg.matrix_norm(S, 2))),
        (
            "layer without its factor",
            "RMS-to-RMS norm eta",
            _signs(lambda S: math.sqrt(S.shape[0] / S.shape[1]) / torch.linalg.matrix_norm(S, 2)),
        ),
        (
            "as for one sample",
            "matrix_norm's default",
            _signs(lambda S: S.shape[0] ** 0.5 / torch.linalg.matrix_norm(S)),
        ),
        ("shapes swapped", "d_in rows", _signs(lambda S: S.shape[1] ** 0.5 / torch.linalg.matrix_norm(S, 2))),
        (
            "spectral norm of the gradient",
            "norm of G",
            lambda g, r: -r * len(g) ** 0.5 / torch.linalg.matrix_norm(g, 2) * g.sign(),
        ),
        ("uphill", "no minus", edit("-radius", "+radius")),
        (
            "Muon's step",
            "orthogonal factor",
            edit(
                "* signs /",
                "* (lambda s: s[0] @ s[2])(torch.linalg.svd(gradient, full_matrices=False)) /",
                "torch.linalg.matrix_norm(signs, 2)",
                "1",
            ),
        ),
        (
            "the gradient itself",
            "G over its norm",
            lambda g, r: -r * len(g) ** 0.5 * g / torch.linalg.svdvals(g)[0],
        ),
        ("wrong", "the nuclear norm", _signs(lambda S: S.shape[0] ** 0.5 / torch.linalg.svdvals(S).sum())),
        ("malformed", "alpha alone", lambda g, r: r * len(g) ** 0.5 / torch.linalg.matrix_norm(g.sign(), 2)),
    ],
}

GIVES_AWAY = {
    "07.P1": [
        r"mathrm\{sign\}",
        r"0\.8\\,d",
        r"(?i)steps need \$1/d",
        r"(?i)over 16",
    ],
    "07.P2": [
        r"(?i)step sizes (alone|bring)",
        r"(?i)brings the lower loss",
        r"(?i)start alone",
        r"(?i)carries it nearly",
    ],
}

NEIGHBOURS = {
    "07.c1": ('lesson.carried("SP", "one")', 'lesson.carried("SP", "one", divided_by=16)'),
    "07.1": ("math.sqrt(12) * uniform @", "(12 / d) ** 0.5 * uniform @"),
    "07.3": ("(w * x).sum().backward()", "(w * normal(400_000 // d, d)).sum().backward()"),
    "07.6": ('powers("muP", "muP")', 'powers("SP", "muP")'),
    "07.7": ("lr=1 / d)", "lr=d**-0.75)"),
    "07.c2": ('cost("muP", "muP"), at_most', 'cost("SP", "muP"), at_most'),
    "07.c3": ('cost("SP", "muP"), at_most=2', 'cost("SP", "one", 4), at_most=2'),
    "07.c4": ('cost("muP", "one") / cost', 'cost("muP", "muP") / cost'),
    "07.c5": ('cost(start, "one", 16)', 'cost(start, "one", 4)'),
    "07.c6": ('best("muP", steps) / best', 'best("SP", steps) / best'),
    "07.c7": ('best("SP", "muP") / best', 'best("muP", "muP") / best'),
}
