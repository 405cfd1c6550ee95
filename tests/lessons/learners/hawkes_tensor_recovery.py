"""What learners of lesson 31 answer, and what gives its predictions away."""

import math

import torch

GIVES_AWAY = {
    "31.P1": [r"2[234] (or 24|of (the )?24)", r"(?i)nearly all delays", r"at least 22"],
    "31.P2": [r"(?i)cosine", r"(?i)time slices win"],
}


def by_sum(base, kernel, counts):
    rate = base.clone()
    for i in range(3):
        for j in range(3):
            for lag in (1, 2):
                rate[i] += kernel[i, j, lag - 1] * counts[len(counts) - lag, j]
    return rate


def by_einsum(base, kernel, counts):
    return base + torch.einsum("ijt,tj->i", kernel, counts.flip(0)[:2])


def by_generations(base, kernel):
    """Children of children of children, until none are left."""
    mean, generation = base.clone(), base
    for _ in range(2000):
        generation = kernel.sum(-1) @ generation
        mean = mean + generation
    return mean


def by_inverse(base, kernel):
    return torch.linalg.inv(torch.eye(3).to(base) - kernel.sum(2)) @ base


def two_generations(base, kernel):
    total = kernel.sum(-1)
    return base + total @ base + total @ total @ base


def slices(first, second, norm):
    return {"first": first, "second": second, "norm": norm}


def read_by_loop(arrows, reference, p, *, sign=1, first=1, size=None):
    scores = []
    for s in range(p):
        total = 0
        for k in range(len(arrows)):
            turn = complex(
                math.cos(2 * math.pi * (k + first) * s / p),
                sign * math.sin(2 * math.pi * (k + first) * s / p),
            )
            total = total + arrows[k] * turn * reference[k].conj()
        scores.append(float(size(total) if size else total.real))
    return scores.index(max(scores))


def read_by_distance(arrows, reference, p):
    s, f = torch.arange(p), torch.arange(1, 4)
    turns = torch.polar(torch.ones(p, 3).double(), 2 * torch.pi / p * torch.outer(s, f).double())
    return int((turns * arrows - reference).abs().square().sum(1).argmin())


def delays(d1, d2, e1, e2):
    return {"d1": d1, "d2": d2, "e1": e1, "e2": e2}


ANSWERS = {
    "31.1": [
        ("solved", "three loops", by_sum),
        ("solved", "einsum with the newest bin first", by_einsum),
        ("lags reversed", "the last two bins as they come",
         lambda base, kernel, counts: base + torch.einsum("ijt,tj->i", kernel, counts[-2:])),
        ("oldest bins", "from the front", lambda base, kernel, counts: by_einsum(base, kernel, counts.flip(0))),
        ("transposed", "sum over the first index",
         lambda base, kernel, counts: by_einsum(base, kernel.transpose(0, 1), counts)),
        ("base left out", "effects alone", lambda base, kernel, counts: by_einsum(0 * base, kernel, counts)),
        ("one lag", "the last bin", lambda base, kernel, counts: base + kernel[:, :, 0] @ counts[-1]),
        ("summed kernel", "all lags on the last bin", lambda base, kernel, counts: base + kernel.sum(2) @ counts[-1]),
        ("wrong", "the mean of two bins", lambda base, kernel, counts: base + kernel.sum(2) @ counts[-2:].mean(0)),
        ("malformed", "a rate for each lag",
         lambda base, kernel, counts: torch.einsum("ijt,tj->it", kernel, counts[-2:])),
    ],
    "31.2": [
        ("solved", "one hour and four", {"second": 1, "third": 4}),
        ("solved", "floats", {"second": 1.0, "third": 4.0}),
        ("counterclockwise", "the other way round", {"second": 5, "third": 2}),
        ("frequency one", "steps of 30 degrees", {"second": 2, "third": 8}),
        ("short way round", "120 degrees", {"second": 1, "third": 2}),
        ("not from forum 1", "angles from the right", {"second": 0, "third": 3}),
        ("wrong", "too early", {"second": 1, "third": 3}),
        ("wrong", "half hours", {"second": 0.5, "third": 2}),
        ("malformed", "a list", {"delays": [1, 4]}),
    ],
    "31.3": [
        ("solved", "both late", delays(0, 3, 0, 3)),
        ("solved", "one entry cut", delays(1, 0, 2, 0)),
        ("all fits", "short delays", delays(1, 0, 1, 0)),
        ("all fits", "no delays", delays(0, 0, 0, 0)),
        ("equal rows", "both receive late", delays(3, 3, 0, 1)),
        ("equal columns", "both send late", delays(0, 1, 3, 3)),
        ("wrong", "outside of the window", delays(4, 0, 4, 0)),
        ("malformed", "lists", {"d": [0, 1], "e": [0, 2]}),
    ],
    "31.4": [
        ("solved", "a loop over the delays", read_by_loop),
        ("solved", "nearest in squares", read_by_distance),
        ("turned on", "further clockwise", lambda z, r, p: read_by_loop(z, r, p, sign=-1)),
        ("no conjugate", "angles added", lambda z, r, p: read_by_loop(z, r.conj(), p)),
        ("one frequency", "f = 1", lambda z, r, p: read_by_loop(z[:1], r[:1], p)),
        ("frequencies from zero", "from 0", lambda z, r, p: read_by_loop(z, r, p, first=0)),
        ("angles averaged", "unit arrows", lambda z, r, p: read_by_loop(z / z.abs(), r / r.abs(), p)),
        ("sizes", "size of the sum", lambda z, r, p: read_by_loop(z, r, p, size=abs)),
        ("wrong", "always the first", lambda z, r, p: 0),
        ("malformed", "all scores", lambda z, r, p: torch.zeros(p)),
    ],
    "31.5": [
        ("solved", "two and nothing", {"first": 2, "second": 0}),
        ("solved", "floats", {"first": 2.0, "second": 0.0}),
        ("no floor", "3 - 1 and 0.4 - 1", {"first": 2, "second": -0.6}),
        ("hard", "the large one kept", {"first": 3, "second": 0}),
        ("ridge", "both halved", {"first": 1.5, "second": 0.2}),
        ("unchanged", "M itself", {"first": 3, "second": 0.4}),
        ("wrong", "shrunk by a half", {"first": 2.5, "second": 0}),
        ("malformed", "a list", {"X": [2, 0]}),
    ],
    "31.6": [
        ("solved", "generation by generation", by_generations),
        ("solved", "an inverse", by_inverse),
        ("base only", "children, no grandchildren", lambda base, kernel: base + kernel.sum(-1) @ base),
        ("transposed", "from i to j", lambda base, kernel: by_inverse(base, kernel.transpose(0, 1))),
        ("sign", "inhibition", lambda base, kernel: by_inverse(base, -kernel)),
        ("identity forgotten", "solves for the kernel", lambda base, kernel: torch.linalg.solve(kernel.sum(-1), base)),
        ("mean over lags", "a quarter", lambda base, kernel: by_inverse(base, kernel / 4)),
        ("first lag", "lag 1", lambda base, kernel: by_inverse(base, kernel[..., :1])),
        ("wrong", "two generations", two_generations),
        ("malformed", "all events", lambda base, kernel: by_inverse(base, kernel).sum()),
    ],
    "31.7": [
        ("solved", "two roots of two", slices(1, 1, 2 * math.sqrt(2))),
        ("solved", "rounded", slices(1, 1, 2.828)),
        ("ranks in time", "the time slices", slices(2, 2, 4)),
        ("not orthonormal", "torch.fft.fft as it comes", slices(1, 1, 4.0)),
        ("mean over slices", "divided by p", slices(1, 1, 2.0)),
        ("one slice", "the first", slices(1, 1, math.sqrt(2))),
        ("Frobenius", "one root more", slices(1, 1, 8**0.25)),
        ("wrong", "only the second falls", slices(2, 1, 8**0.5)),
        ("malformed", "both ranks in one entry", {"ranks": (1, 1), "norm": 8**0.5}),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "31.2": ("fit(moments(one.counts, 8)", "fit(moments(one.counts[:1000], 8)"),
    "31.4": ("b[:, None] * omega ** e[:, None]", "b[:, None] * omega ** -e[:, None]"),
    "31.e1": ("delayed_kernel(a, b, h, d, e, p=6)", "delayed_kernel(a, b, h, d, e, p=9)"),
    "31.5": ("right(read_delays)", "right(lesson.read_totals)"),
    "31.e2": ('errors_of("read, corrected")', 'errors_of("peaks")'),
    "31.e3": ('errors_of("totals, corrected")', 'errors_of("totals")'),
    "31.e4": ('lesson.errors("delayed", name) for name', 'lesson.errors("separable", name) for name'),
    "31.e5": ('over("short", "slices", "fourier")', 'over("short", "cosine", "fourier")'),
    "31.e6": ("charges(one.kernel) for one", "charges(process('separable', 0).kernel) for one"),
    "31.e7": ('over("short", "cosine", "fourier")', 'over("delayed", "cosine", "fourier")'),
    "31.e8": ('process("random", seed)', 'process("separable", seed)'),
    "31.8": (
        "mean = stationary_rate(one.base, one.kernel)",
        "mean = one.base + one.kernel.sum(-1) @ one.base",
    ),
    "31.9": ("moments_by_rows(processes[0].counts, 8)", "moments_by_rows(processes[0].counts[1:], 8)"),
}
