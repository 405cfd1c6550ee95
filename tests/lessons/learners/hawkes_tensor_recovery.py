"""What learners of lesson 31 answer, and what gives its predictions away."""

import math

import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "31.P1": [r"delay is a phase", r"(?i)rank (is )?1|rank one|rank-1|rank-one"],
    "31.P2": [r"(?i)separable"],
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


def with_values(M, t, change):
    u, s, vh = torch.linalg.svd(M, full_matrices=False)
    return u @ torch.diag(change(s)) @ vh


def by_full_svd(M, t):
    u, s, vh = torch.linalg.svd(M)
    return sum(max(0.0, float(s[i] - t)) * torch.outer(u[:, i], vh[i]) for i in range(3))


def by_projection(M, t):
    """Moreau: M less its projection on the ball of spectral norm t."""
    return M - with_values(M, t, lambda s: s.clamp(max=t))


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
    "31.3": [
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
    "31.4": [
        ("solved", "a full SVD", by_full_svd),
        ("solved", "less a projection", by_projection),
        ("no floor", "s - t", lambda M, t: with_values(M, t, lambda s: s - t)),
        ("hard", "large ones kept", lambda M, t: with_values(M, t, lambda s: torch.where(s > t, s, 0 * s))),
        ("entries", "softshrink of the matrix", lambda M, t: functional.softshrink(M, float(t))),
        ("squares", "eigenvalues", lambda M, t: with_values(M, t, lambda s: torch.relu(s**2 - t))),
        ("ridge", "one factor", lambda M, t: M / (1 + t)),
        ("V not transposed", "the third result taken for V", edit("@ vh", "@ vh.T")),
        ("wrong", "half of t", lambda M, t: with_values(M, t, lambda s: torch.relu(s - t / 2))),
        ("malformed", "the singular values", lambda M, t: torch.relu(torch.linalg.svdvals(M) - t)),
    ],
    "31.5": [
        ("solved", "both late", delays(0, 3, 0, 3)),
        ("solved", "one entry cut", delays(1, 0, 2, 0)),
        ("all fits", "short delays", delays(1, 0, 1, 0)),
        ("all fits", "no delays", delays(0, 0, 0, 0)),
        ("equal rows", "both receive late", delays(3, 3, 0, 1)),
        ("equal columns", "both send late", delays(0, 1, 3, 3)),
        ("wrong", "outside of the window", delays(4, 0, 4, 0)),
        ("malformed", "lists", {"d": [0, 1], "e": [0, 2]}),
    ],
}  # fmt: skip
