"""What learners of lesson 23 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "23.P1": [r"one_head_each|each head|one head each", r"(?i)allocation"],
    "23.P2": [r"(?i)four times", r"(?i)twice"],
    "23.P3": [r"(?i)not the best|a better"],
}


def by_library(x, y, query, w):
    return functional.scaled_dot_product_attention((w * query)[None, None], x[None], y[None], scale=1.0)[0, 0]


def library_default(x, y, query, w):
    return functional.scaled_dot_product_attention((w * query)[None, None], x[None], y[None])[0, 0]


def by_autograd(x, y, query, target, w, u):
    leaf = w.clone().requires_grad_()
    error = u * (x @ (leaf * query)).softmax(0) @ y - target
    return torch.autograd.grad(error.square() / 2, leaf)[0]


def by_covariance(x, y, query, target, w, u):
    """The average's gradient is a covariance under the softmax weights."""
    a = (x @ (w * query)).softmax(0)
    covariance = (a * y) @ x - (a @ y) * (a @ x)
    return (u * (a @ y) - target) * u * covariance * query


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
    "23.1": [
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
    "23.2": [
        ("solved", "one over the root of 4", 1 / math.sqrt(4)),
        ("solved", "a tensor", torch.tensor(0.5)),
        ("all features", "12 features", 12**-0.5),
        ("the square", "w^2", 1 / 4),
        ("the factor u", "1 / w", 2.0),
        ("number of tasks", "3 tasks", 3**-0.5),
        ("the square for all", "1/12", 1 / 12),
        ("malformed", "one for each head", [0.5, 0.5, 0.5]),
    ],
    "23.3": [
        ("solved", "9 + 4 over 5", (3**2 + 2**2) / 5),
        ("solved", "a fraction", Fraction(13, 5)),
        ("one head", "25 over 5", 5),
        ("heads divided", "5 over 2", 5 / 2),
        ("uneven split", "16 + 1 over 5", 17 / 5),
        ("not divided", "13", 13.0),
        ("upside down", "5 over 13", 5 / 13),
        ("malformed", "the split", (3, 2)),
    ],
    "23.4": [
        ("autograd", "autograd", by_autograd),
        ("solved", "a covariance", by_covariance),
        ("not centred", "y for y - m", edit("(y - average)", "y")),
        ("query left out", "without the query", edit("(slopes @ x) * query", "slopes @ x")),
        ("u left out", "divided by u", lambda x, y, query, target, w, u: by_autograd(x, y, query, target, w, u) / u),
        ("error left out", "the answer's gradient", lambda x, y, query, target, w, u: by_covariance(
            x, y, query, u * (x @ (w * query)).softmax(0) @ y - 1, w, u)),
        ("twice", "a loss without 1/2", lambda x, y, query, target, w, u: 2 * by_autograd(x, y, query, target, w, u)),
        ("sign", "downhill", lambda x, y, query, target, w, u: -by_covariance(x, y, query, target, w, u)),
        ("wrong", "w for the query", edit("(slopes @ x) * query", "(slopes @ x) * w")),
        ("malformed", "one for each example",
         lambda x, y, query, target, w, u: (x @ (w * query)).softmax(0) * (y - y.mean())),
    ],
    "23.5": [
        ("solved", "nearly the same u", heads(0.001, 0.05, 0.1, 0.049)),
        ("solved", "tensors", heads(*torch.tensor([0.01, 0.1, 0.15, 0.09]))),
        ("equal w", "u alone", heads(0.02, 0.1, 0.02, 0.05)),
        ("smaller u", "the first head behind in u", heads(0.01, 0.01, 0.01, 0.1)),
        ("larger in both", "the first head ahead", heads(0.1, 0.1, 0.01, 0.01)),
        ("wrong", "too little more w", heads(0.01, 0.1, 0.02, 0.02)),
        ("wrong", "large starts", heads(0.1, 1.0, 2.0, 0.5)),
        ("malformed", "two pairs", {"first": (0.01, 0.04), "second": (0.04, 0.03)}),
    ],
    "23.6": [
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
