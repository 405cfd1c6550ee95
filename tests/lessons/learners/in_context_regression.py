"""What learners of lesson 28 answer, and what gives its predictions away."""

import math

import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "28.P1": [r"(?i)four times", r"(?i)quadruples", r"(?i)quarters"],
    "28.P2": [r"(?i)\bidle\b", r"(?i)often idle"],
    "28.P3": [r"(?i)subtract", r"(?i)negative", r"(?i)not over", r"(?i)columns of"],
    "28.P4": [r"(?i)ten times smaller", r"(?i)difference grows", r"(?i)factor of ten"],
}


def by_library(x, y, query, w):
    return functional.scaled_dot_product_attention((w * query)[None, None], x[None], y[None], scale=1.0)[0, 0]


def library_default(x, y, query, w):
    return functional.scaled_dot_product_attention((w * query)[None, None], x[None], y[None])[0, 0]


def by_hyperbolas(o, v, g, t):
    """Both factors on a hyperbola, o^2 - v^2 constant."""
    c, s = math.cosh(g * t), math.sinh(g * t)
    return (c * o - s * v) * (c * v - s * o)


def by_eigenvectors(o, v, g, t):
    step = torch.linalg.matrix_exp(-g * t * torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64))
    return float((step @ torch.tensor([o, v], dtype=torch.float64)).prod())


def heads(w_1, u_1, w_2, u_2):
    return {"w_1": w_1, "u_1": u_1, "w_2": w_2, "u_2": u_2}


def by_helmert(n_tasks):
    """Each column sets one head against all heads before it."""
    columns = torch.zeros(n_tasks + 1, n_tasks, dtype=torch.float64)
    for k in range(1, n_tasks + 1):
        columns[:k, k - 1], columns[k, k - 1] = 1.0, -k
    return columns / columns.norm(dim=0)


def by_null_space(n_tasks):
    return torch.linalg.svd(torch.ones(1, n_tasks + 1, dtype=torch.float64)).Vh[1:].T


def centred(n):
    return torch.eye(n, dtype=torch.float64) - 1 / n


ANSWERS = {
    "28.1": [
        ("solved", "PyTorch's attention with scale 1", by_library),
        ("solved", "exponentials and their sum",
         lambda x, y, query, w: (e := (x * w * query).sum(1).exp()) @ y / e.sum()),
        ("no softmax", "scores as weights", lambda x, y, query, w: x @ (w * query) @ y),
        ("divided by the sum", "normalised without exp", lambda x, y, query, w: (s := x @ (w * query)) @ y / s.sum()),
        ("w left out", "all features alike", lambda x, y, query, w: (x @ query).softmax(0) @ y),
        ("scaled", "PyTorch's default scale", library_default),
        ("best example", "the nearest example", lambda x, y, query, w: y[(x @ (w * query)).argmax()]),
        ("plain mean", "no query", lambda x, y, query, w: y.mean(0)),
        ("wrong", "exponentials, not divided", lambda x, y, query, w: (x @ (w * query)).exp() @ y),
        ("malformed", "float32", lambda x, y, query, w: by_library(x, y, query, w).float()),
        ("malformed", "one number", lambda x, y, query, w: by_library(x, y, query, w).sum()),
    ],
    "28.2": [
        ("solved", "nearly the same product", heads(0.01, 0.04, 0.1, 0.0039)),
        ("solved", "tensors, u far larger than w", heads(*torch.tensor([0.01, 0.04, 0.001, 0.2]))),
        ("equal w", "u alone", heads(0.02, 0.1, 0.02, 0.05)),
        ("smaller product", "the first head behind in u", heads(0.01, 0.01, 0.01, 0.1)),
        ("smaller product", "the larger u, but not the larger product", heads(0.001, 0.05, 0.1, 0.049)),
        ("larger in both", "the first head ahead", heads(0.1, 0.1, 0.01, 0.01)),
        ("wrong", "too little more w", heads(0.01, 0.1, 0.02, 0.02)),
        ("wrong", "large starts", heads(0.1, 1.0, 2.0, 0.5)),
        ("malformed", "two pairs", {"first": (0.01, 0.04), "second": (0.04, 0.03)}),
    ],
    "28.3": [
        ("solved", "one over the root of 4", 1 / math.sqrt(4)),
        ("solved", "a tensor", torch.tensor(0.5)),
        ("all features", "12 features", 12**-0.5),
        ("the square", "w^2", 1 / 4),
        ("the gain u", "1 / w", 2.0),
        ("number of tasks", "3 tasks", 3**-0.5),
        ("the square for all", "1/12", 1 / 12),
        ("malformed", "one for each head", [0.5, 0.5, 0.5]),
    ],
    "28.4": [
        ("solved", "hyperbolic functions", by_hyperbolas),
        ("solved", "the eigenvectors", by_eigenvectors),
        ("equal factors", "an exponential", lambda o, v, g, t: o * v / math.exp(2 * g * t)),
        ("signs swapped", "uphill", lambda o, v, g, t: by_hyperbolas(o, v, -g, t)),
        ("difference kept", "one exponential",
         lambda o, v, g, t: ((o + v) ** 2 * math.exp(-2 * g * t) - (o - v) ** 2) / 4),
        ("equal factors", "the same rate", lambda o, v, g, t: math.exp(-2 * g * t) * ((o + v) ** 2 - (o - v) ** 2) / 4),
        ("no quarter", "four times", lambda o, v, g, t: 4 * by_hyperbolas(o, v, g, t)),
        ("not squared", "lengths", edit("sum_now**2 - difference_now**2", "sum_now - difference_now")),
        ("one step", "a long step", lambda o, v, g, t: (o - t * g * v) * (v - t * g * o)),
        ("a straight line", "the product's own gradient", lambda o, v, g, t: o * v - t * g),
        ("wrong", "time left out", lambda o, v, g, t: by_hyperbolas(o, v, g, 1.0)),
        ("wrong", "half the rate", lambda o, v, g, t: by_hyperbolas(o, v, g / 2, t)),
        ("malformed", "both factors", lambda o, v, g, t: (o * math.exp(-g * t), v * math.exp(-g * t))),
    ],
    "28.5": [
        ("solved", "one head against all before it", by_helmert),
        ("solved", "the null space of ones", by_null_space),
        ("solved", "the other signs", lambda n_tasks: -by_null_space(n_tasks)),
        ("not centred", "unit vectors", lambda n_tasks: torch.linalg.qr(torch.eye(n_tasks + 1).double()[:, :-1]).Q),
        ("not orthonormal", "centred columns", lambda n_tasks: centred(n_tasks + 1)[:, :-1]),
        ("one task too many", "a square matrix", lambda n_tasks: torch.linalg.qr(centred(n_tasks + 1)).Q),
        ("transposed", "tasks as rows", edit(".Q", ".Q.T")),
        ("pairs", "two heads for each task", lambda n_tasks: torch.cat(
            [torch.eye(n_tasks)[:, None], -torch.eye(n_tasks)[:, None]], 1).reshape(-1, n_tasks).double() / 2**0.5),
        ("wrong", "heads minus their neighbours",
         lambda n_tasks: (torch.eye(n_tasks + 1) - torch.eye(n_tasks + 1).roll(1, 0))
         .double()[:, :-1] / 2**0.5),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "28.3": ("return (votes @ target) / (target @ target)", "return (votes @ target) / (votes @ votes)"),
    "28.4": ("[(waits[s / 2] / waits[s]).mean()", "[(waits[s / 2] / waits[s]).sqrt().mean()"),
    "28.e1": ("[direct[s / 2].mean() / direct[s].mean()", "[waits[s / 2].mean() / waits[s].mean()"),
    "28.6": ("argmin()] for m in (1, 3)]", "argmin()] for m in (3, 1)]"),
    "28.e2": ('of 12 starts all heads are busy", busy[0.25]', 'of 12 starts all heads are busy", busy[0.05]'),
    "28.e3": ('s = 0.05: on {} of 12", busy[0.05]', 's = 0.05: on {} of 12", busy[0.25]'),
    "28.e4": ("the layer's error is {:.2f}\", late[0]", "the layer's error is {:.2f}\", late[1]"),
    "28.e6": ("for share in (0.02, 0)", "for share in (0, 0.02)"),
    "28.7": ("((o**2 - v**2) / (o_start**2 - v_start**2))", "((o**2 + v**2) / (o_start**2 + v_start**2))"),
    "28.8": ("(o * v).amax(0) * (4 + 0.2**2) / 60", "(o * v).amax(0) * (1 + 0.2**2) / 60"),
    "28.e5": ("[math.log(10) / (rate", "[math.log(2) / (rate"),
}
