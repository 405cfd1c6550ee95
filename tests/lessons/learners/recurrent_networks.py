"""What learners of lesson 14 answer, and what gives its predictions away."""

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "14.P1": [r"(?i)only the changed|changed starts? learn", r"5 of tanh, orthogonal"],
    "14.P2": [r"3w|3 w", r"(?i)held fixed", r"(?i)immediate"],
    "14.P3": [r"10\.02", r"(?i)near by"],
    "14.P4": [r"GRU needs no help", r"(?i)at 0\.05 all", r"(?i)rate 0\.05"],
}

NEIGHBOURS = {
    "14.e1": ('"tanh, W x 1.4": ("tanh", 1.4)', '"tanh, W x 1.4": ("tanh", 1.0)'),
    "14.2": ("(sum(shares) - whole)", "(sum(shares[:-1]) - whole)"),
    "14.3": ("(g[t] + delta @ W_h)", "(g[t] + delta @ W_h.T)"),
    "14.5": ("forward = (forward @ w_h.T) * (1 - h**2)", "forward = (forward @ w_h) * (1 - h**2)"),
    "14.6": ("[[0.5, 10.0], [0.0, 0.5]]), 200)", "[[0.5, 9.9], [0.0, 0.5]]), 200)"),
    "14.7": ("nn.RNN(4, 512).weight_hh_l0.detach()", "1.2 * nn.RNN(4, 512).weight_hh_l0.detach()"),
    "14.e2": ("lesson.learned(arm, lesson.best_rate(arm))", "lesson.learned(arm, 0.005)"),
    "14.e3": ("steps=200, rate=0.05)", "steps=200, rate=0.0005)"),
    "14.8": ("layer.bias_ih_l0[512:1024] += added", "layer.bias_ih_l0[:512] += added"),
}


def by_power(W_h, W_y, error, distance):
    return torch.linalg.matrix_power(W_h, distance).T @ W_y.T @ (2 * error)


def by_rows(W_h, W_y, error, distance):
    """The gradient as a row, multiplied from the right."""
    gradient = 2 * error @ W_y
    for _ in range(distance):
        gradient = gradient @ W_h
    return gradient


def by_autograd(W_h, W_y, error, distance):
    h = torch.zeros(len(W_h), dtype=W_h.dtype, requires_grad=True)
    state = h
    for _ in range(distance):
        state = W_h @ state
    return torch.autograd.grad((W_y @ state + error).square().sum(), h)[0]


def by_steps(deltas, states, h0):
    total, before = 0, h0
    for delta, state in zip(deltas, states, strict=True):
        total, before = total + delta.T @ before, state
    return total


def paired(deltas, before):
    return sum(delta.T @ state for delta, state in zip(deltas, before, strict=True))


def flattened(deltas, states, h0):
    before = torch.cat([h0[None], states])[:-1]
    return deltas.flatten(0, 1).T @ before.flatten(0, 1)


def rolled(deltas, states, h0):
    return paired(deltas, states.roll(1, 0))


def recursive(states, upstream, W_h):
    slope, found = 1 - states.square(), upstream * 0
    found[-1] = slope[-1] * upstream[-1]
    for t in range(len(states) - 2, -1, -1):
        found[t] = slope[t] * (upstream[t] + found[t + 1] @ W_h)
    return found


def by_all_paths(states, upstream, W_h):
    """Every later loss sends its own gradient back to every step."""
    found = torch.zeros_like(states)
    for end in range(len(states)):
        gradient = upstream[end]
        for t in range(end, -1, -1):
            delta = (1 - states[t] ** 2) * gradient
            found[t] += delta
            gradient = W_h.T @ delta
    return found


def next_slope(states, upstream, W_h):
    slope = 1 - states**2
    found = slope * upstream
    for t in range(len(states) - 2, -1, -1):
        found[t] = slope[t] * upstream[t] + slope[t + 1] * (W_h.T @ found[t + 1])
    return found


def one_step_back(states, upstream, W_h):
    """Truncated after one step."""
    slope = 1 - states**2
    direct = slope * upstream
    later = torch.cat([direct[1:], torch.zeros_like(direct[:1])])
    return direct + slope * (later @ W_h)


def matrix(eigenvalue, a):
    return {"eigenvalue": eigenvalue, "a": a}


ANSWERS = {
    "14.1": [
        ("solved", "in words", {"first": 4, "second": 6, "third": 7}),
        ("solved", "tensors", {"first": torch.tensor(4.0), "second": torch.tensor(6), "third": torch.tensor(7.0)}),
        ("full derivatives", "1, 5 and 17 times what the loss feels", {"first": 4 * 1, "second": 2 * 5, "third": 17}),
        ("states alone", "the immediate derivatives", {"first": 1, "second": 3, "third": 7}),
        ("losses alone", "powers of w", {"first": 2**2, "second": 2, "third": 1}),
        ("own state for the state before", "h_t for h_(t-1)", {"first": 4 * 3, "second": 2 * 7, "third": 15}),
        ("the other way round", "back in time", {"first": 7, "second": 6, "third": 4}),
        ("wrong", "the right sum, shared out", {"first": 17 / 3, "second": 17 / 3, "third": 17 / 3}),
        ("wrong", "all of it at the last copy", {"first": 0, "second": 0, "third": 7}),
        ("malformed", "the three shares in a list", [4, 6, 7]),
    ],
    "14.2": [
        ("solved", "rows, from the right", recursive),
        ("solved", "every path of its own", by_all_paths),
        ("not transposed", "W_h from the left", edit("W_h.T", "W_h")),
        ("no slope", "a linear network", lambda states, upstream, W_h: recursive(states * 0, upstream, W_h)),
        ("slope on one part", "the slope inside the recursion", edit("* (upstream[t] + W_h.T @ later)",
                                                                  "* (W_h.T @ later) + upstream[t]")),
        ("1 - h", "forgot the square", edit("states[t] ** 2", "states[t]")),
        ("sigmoid's slope", "h (1 - h)", edit("1 - states[t] ** 2", "states[t] - states[t] ** 2")),
        ("tanh twice", "the slope of tanh(h)", lambda states, upstream, W_h: recursive(states.tanh(), upstream, W_h)),
        ("the last loss only", "one loss, at the end", lambda states, upstream, W_h: recursive(
            states, torch.cat([upstream[:-1] * 0, upstream[-1:]]), W_h)),
        ("forward in time", "from the first step", edit("reversed(range(len(states)))", "range(len(states))")),
        ("wrong", "the slope of the next step", next_slope),
        ("malformed", "the last step first", lambda states, upstream, W_h: list(recursive(states, upstream, W_h))),
    ],
    "14.3": [
        ("solved", "a just large enough", matrix(0.5, 52.0)),
        ("solved", "a negative coupling", matrix(0.9, -3)),
        ("solved", "an eigenvalue near 1", matrix(0.99, 0.5)),
        ("need", "an unstable one", matrix(1.5, 0.0)),
        ("need", "on the border", matrix(1, 5)),
        ("no coupling", "a multiple of the identity", matrix(0.5, 0)),
        ("near by only", "the one of the page", matrix(0.5, 10.0)),
        ("near by only", "just too small", matrix(0.5, 50.0)),
        ("wrong", "a weak coupling", matrix(0.5, 0.1)),
        ("wrong", "longer after one step only", matrix(0.1, 3.0)),
        ("need", "a negative eigenvalue", matrix(-0.9, 10.0)),
        ("malformed", "the matrix itself", torch.tensor([[0.9, 10.0], [0.0, 0.9]])),
    ],
    "14.4": [
        ("solved", "two decimals", 1.56),
        ("solved", "from the variance", (0.81 / (1 / 3)) ** 0.5),
        ("solved", "a tensor", torch.tensor(0.9) * 3**0.5),
        ("the range for the deviation", "c = 1", 0.9),
        ("the variance for the deviation", "0.9 over 1/3", 0.9 / (1 / 3)),
        ("divided the wrong way", "times 0.577", 0.9 * 0.57735),
        ("the radius 1", "the root of 3", 3**0.5),
        ("the singular value", "sigma = 0.9", 0.9 / (2 / 3**0.5)),
        ("wrong", "the deviation of a range of length 1", 0.9 * 12**0.5),
        ("malformed", "in words", "the root of 3"),
    ],
    "14.5": [
        ("solved", "a power of the matrix", by_power),
        ("solved", "rows, from the right", by_rows),
        ("solved", "autograd", by_autograd),
        ("not transposed", "a power of W_h", lambda W_h, W_y, error, distance: torch.linalg.matrix_power(W_h, distance)
         @ W_y.T @ (2 * error)),
        ("no factor 2", "a loss with 1/2", lambda W_h, W_y, error, distance: by_power(W_h, W_y, error / 2, distance)),
        ("one step too many", "counted from the output", lambda W_h, W_y, error, distance: by_power(
            W_h, W_y, error, distance + 1)),
        ("one step too few", "range(1, distance)", edit("range(distance)", "range(1, distance)")),
        ("entrywise power", "** on a matrix", lambda W_h, W_y, error, distance: (W_h**distance).T @ W_y.T @ (2 * error)),
        ("the output's matrix once a step", "a loss at every step", lambda W_h, W_y, error, distance: sum(
            by_power(W_h, W_y, error, d) for d in range(distance + 1))),
        ("malformed", "the error's size", lambda W_h, W_y, error, distance: 2 * error),
    ],
    "14.6": [
        ("solved", "step by step", by_steps),
        ("solved", "one product of flat tables", flattened),
        ("the same step's state", "paired as they come", lambda deltas, states, h0: paired(deltas, states)),
        ("transposed", "states from the left", lambda deltas, states, h0: by_steps(deltas, states, h0).T),
        ("mean over the batch", "divided by the batch",
         lambda deltas, states, h0: by_steps(deltas, states, h0) / len(h0)),
        ("without the first step", "states before only", lambda deltas, states, h0: paired(deltas[1:], states[:-1])),
        ("the last step only", "no sum over time", lambda deltas, states, h0: deltas[-1].T @ states[-2]),
        ("wrong", "rolled round: the last state for h0", rolled),
        ("malformed", "a matrix for each step", lambda deltas, states, h0: deltas.mT @ states),
    ],
}  # fmt: skip
