"""Learners of lesson 20."""

import numpy as np
import torch

from course_lib.attention.ridge import DeltaState, delta_rule
from course_lib.teaching import edit

GIVES_AWAY = {
    "20.P1": [r"(?i)luckiest", r"Recalled: sums", r"Sums recall"],
    "20.P2": [r"dM/\\ln N", r"(?i)threefold", r"three times the pairs"],
    "20.P3": [r"the keys decide", r"the rule decides"],
}


def _unit(write):
    """A way to write that first brings the key to length 1."""
    return lambda state, key, value, eta: write(state, key / key.norm(), value, eta)


def _one_column_at_a_time(state, key, value, step_size):
    key, new = key / key.norm(), state.clone()
    for column in range(state.shape[1]):
        new[:, column] += step_size * (value[column] - key.dot(state[:, column])) * key
    return new


def _erase_and_write(state, key, value, eta):
    """A projection takes out the old value, a product puts in the new one."""
    k = (key / key.norm())[:, None]
    return (torch.eye(len(key), dtype=key.dtype) - eta * k @ k.T) @ state + eta * k * value


def _library_step(state, key, value, step_size):
    start = DeltaState(state[None])
    key = (key / key.norm())[None, None]
    _, end = delta_rule(
        key, key, value[None, None], step_size=step_size, initial_state=start, return_state=True
    )
    return end.weights[0]


def _nearest_by_products(answers, values):
    """Values have length 1: the nearest has the largest inner product."""
    right = (answers @ values.T).argmax(1) == torch.arange(len(values))
    return torch.stack([part.double().mean() for part in right.chunk(4)])


def _in_loops(answers, values):
    quarter, shares = len(values) // 4, []
    for q in range(4):
        hits = 0
        for i in range(q * quarter, (q + 1) * quarter):
            distances = [float((answers[i] - v).square().sum()) for v in values]
            hits += distances.index(min(distances)) == i
        shares.append(hits / quarter)
    return torch.tensor(shares, dtype=torch.float64)


ANSWERS = {
    "20.1": [
        ("solved", "as a float", 50.0),
        ("solved", "by the matrix", 10 * 0.6 + 20 * (0.36 + 0.64) + 30 * 0.8),
        ("solved", "a tensor", torch.tensor(50)),
        ("the value alone", "v2 as a float", 20.0),
        ("crosstalk alone", "6 + 24", 6 + 24),
        ("all values", "10 + 20 + 30", np.float64(60)),
        ("averaged", "rounded", 20.8),
        ("squared products", "weights 0.36, 1, 0.64", 10 * 0.36 + 20 + 30 * 0.64),
        ("the first key", "at k1", 10 + 0.6 * 20),
        ("the third key", "at k3", 0.8 * 20 + 30),
        ("lost the first", "20 + 24", 44),
        ("lost the third", "20 + 6", 26.0),
        ("wrong", "the mean of the values twice", 40),
        ("malformed", "a list", [6, 20, 24]),
    ],
    "20.2": [
        ("solved", "one over the squared length", lambda n, d: 1 / (1 + (n - 1) / d)),
        ("solved", "by the ratio", lambda n, d: (1 / ((n - 1) / d)) / (1 + 1 / ((n - 1) / d))),
        ("all pairs count", "N in the place of N - 1", lambda n, d: 1 / (1 + n / d)),
        ("equal lengths", "normalised", lambda n, d: (1 + (n - 1) / d) ** -0.5),
        ("the error left", "1 - c", lambda n, d: 1 - d / (d + n - 1)),
        ("no crosstalk in sight", "1", lambda n, d: 1),
        ("one over the crosstalk", "d / (N - 1)", lambda n, d: 1 / ((n - 1) / d)),
        ("the mean", "1 / N", lambda n, d: 1 / n),
        ("upside down", "the squared length", lambda n, d: 1 + (n - 1) / d),
        ("wrong", "a half", lambda n, d: 0.5),
        ("wrong", "d / N", lambda n, d: d / n),
        ("malformed", "no return", lambda n, d: print(end="")),
    ],
    "20.3": [
        ("solved", "column by column", _one_column_at_a_time),
        ("solved", "erase, then write", _erase_and_write),
        ("solved", "the library's state", _library_step),
        ("plain addition", "linear attention", _unit(lambda U, k, v, eta: U + eta * torch.outer(k, v))),
        ("key not normalised", "as it comes", lambda U, k, v, eta: U + eta * torch.outer(k, v - U.T @ k)),
        ("added the old value", "a sign", _unit(lambda U, k, v, eta: U + eta * k[:, None] * (v + U.T @ k))),
        ("subtracted the step", "ascent", _unit(lambda U, k, v, eta: U + eta * torch.outer(k, U.T @ k - v))),
        ("no step size", "all of it", _unit(lambda U, k, v, eta: U + torch.outer(k, v - U.T @ k))),
        ("step on the value alone", "erased", lambda U, k, v, eta: _erase_and_write(U, k, eta * v, 1)),
        (
            "step on the old value alone",
            "written in full",
            _unit(lambda U, k, v, eta: U - eta * torch.outer(k, U.T @ k) + torch.outer(k, v)),
        ),
        ("the whole state fades", "lerp", _unit(lambda U, k, v, eta: U.lerp(torch.outer(k, v), eta))),
        ("the correction alone", "summand", _unit(lambda U, k, v, eta: eta * torch.outer(k, v - U.T @ k))),
        (
            "normalised twice",
            "over the square",
            lambda U, k, v, eta: U + eta * torch.outer(k / (k @ k), v - U.T @ (k / (k @ k))),
        ),
        ("malformed", "the outer product transposed", _unit(lambda U, k, v, eta: eta * torch.outer(v, k))),
        (
            "wrong",
            "divided by the largest entry",
            lambda U, k, v, eta: U + eta * torch.outer(k / k.max(), v - U.T @ (k / k.max())),
        ),
    ],
    "20.4": [
        ("solved", "by inner products", _nearest_by_products),
        ("solved", "in loops", _in_loops),
        ("newest first", "turned round", edit("right.view(4, -1).mean(1)", "right.flip(0).view(4, -1).mean(1)")),
        ("every fourth pair", "strides", lambda a, v: _by_group(a, v).view(-1, 4).mean(0)),
        ("counted", "sums", lambda a, v: _by_group(a, v).view(4, -1).sum(1)),
        ("share of all", "over N", lambda a, v: _by_group(a, v).view(4, -1).sum(1) / len(a)),
        ("values ask", "the other axis", edit("argmin(1)", "argmin(0)")),
        ("values ask", "distances transposed", edit("torch.cdist(answers, values)", "torch.cdist(values, answers)")),
        ("the farthest value", "argmax of distances", edit("argmin(1)", "argmax(1)")),
        ("lost, not recalled", "1 minus", lambda a, v: 1 - _by_group(a, v).view(4, -1).mean(1)),
        ("up to that age", "cumulative means", lambda a, v: _up_to(_by_group(a, v))),
        ("wrong", "zeros", lambda a, v: torch.zeros(4, dtype=torch.float64)),
        ("malformed", "one share for all", lambda a, v: _by_group(a, v).mean()),
        ("malformed", "in float32", lambda a, v: _by_group(a, v).float().view(4, -1).mean(1)),
    ],
}  # fmt: skip


def _up_to(right):
    return right.view(4, -1).mean(1).cumsum(0) / torch.arange(1, 5)


def _by_group(answers, values):
    return (torch.cdist(answers, values).argmin(1) == torch.arange(len(values))).double()


NEIGHBOURS = {
    "20.h1": ("by_sums = torch.stack([recalled(k, v, k.T @ v)", "by_sums = torch.stack([recalled(k, v, k[:64].T @ v[:64])"),
    "20.h2": (
        'recalled(k, v, write_pairs(k, v, rule="delta")) for k, v in draws',
        "recalled(k, v, write_pairs(k, v)) for k, v in draws",
    ),
    "20.s1": ("0.335 * sums", "1.0 * sums"),
    "20.3": ("1 / 64 + 1 / 64 + 126 / 64**2", "126 / 64**2"),
    "20.r1": ("mean_recall(384, 64) - mean_recall(128, 32)", "mean_recall(512, 64) - mean_recall(128, 32)"),
    "20.5": ("gap = (own - (1 - 1 / 64) ** ages)", "gap = (own - (1 - 2 / 64) ** ages)"),
    "20.a1": ("{:.1%}\", short[0.1]", "{:.1%}\", short[0.5]"),
    "20.k1": ("recalled(k - k.mean(0), v, k.T @ v)", "recalled(k, v, k.T @ v)"),
    "20.6": ("for g in (0.95, 0.9, 0.8, 0.6)", "for g in (1.0,)"),
    "20.w1": ('mean_right("delta", step_size=1) - max', 'mean_right("sums") - max'),
    "20.t1": ('signed = of("copying", "sums"', 'signed = of("copying", "sums, elu + 1"'),
    "20.t2": ('better = of("rewritten", "decay"', 'better = of("rewritten", "sums"'),
}  # fmt: skip
