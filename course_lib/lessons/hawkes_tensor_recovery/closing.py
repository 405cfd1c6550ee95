"""The processes of lesson 31, and every way to estimate their kernels that its closing experiment compares."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from course_lib.lessons.hawkes_tensor_recovery.delays import (
    Delays,
    darkest_lag,
    descent,
    peak_lags,
    random_delays,
    read_delays,
    read_totals,
    refit,
    searched,
)
from course_lib.theory.hawkes import (
    Moments,
    delayed_kernel,
    fit,
    fit_chosen,
    largest_weight,
    moments,
    scaled_to,
    simulate,
    squared_error,
)
from course_lib.theory.tensor_nuclear_norm import LOW_RANK

PLACES, WINDOW, BINS, HELD_OUT = 12, 8, 4000, 0.2
PROFILE = (1.0, 0.5)
KINDS = {"delayed": "delays 0 to 3", "separable": "no delays", "random": "no structure"}
SHARES = {
    "ridge": (4, 2, 1, 0.5, 0.25, 0.125),
    "fourier": (0.2, 0.1, 0.07, 0.05, 0.035, 0.025, 0.0175, 0.0125, 0.009),
    **dict.fromkeys(("slices", "unfolding"), (0.4, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.025, 0.0175)),
}
SHARES["cosine"] = SHARES["fourier"]
FISTA = {"max_steps": 300, "tolerance": 5e-4}


def rng(seed: int) -> torch.Generator:
    """Return a fresh generator."""
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Process:
    """A planted process and what it did: base (12,), kernel (12, 12, 8), counts (K, 12), delays of both ends (12,)."""

    base: Tensor
    kernel: Tensor
    counts: Tensor
    delays: Delays


@cache
def process(kind: str, seed: int, bins: int = BINS) -> Process:
    """Plant a kernel of spectral radius 0.8 and draw its counts.

    `kind` is one of KINDS, "short" (no delays, the profile of "delayed") or "late" ("delayed", some pairs an hour off).
    """
    g = rng(seed)
    draw = lambda *shape: torch.rand(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    a, b = draw(PLACES) + 0.1, draw(PLACES) + 0.1
    most = 4 if kind in ("delayed", "late") else 1  # every delay below it equally often
    d, e = (torch.randperm(PLACES, generator=g) % most for _ in range(2))
    lag = torch.arange(WINDOW, dtype=torch.float64)
    profile = 0.7**lag if kind == "separable" else torch.tensor(PROFILE, dtype=torch.float64)
    kernel = delayed_kernel(a, b, profile, d, e, p=WINDOW)
    if kind == "late":  # a tenth of the pairs answers an hour later than d_i + e_j
        late = (torch.rand(PLACES, PLACES, generator=g, dtype=torch.float64) < 0.1) & (kernel[..., -1] == 0)
        kernel = torch.where(late[..., None], kernel.roll(1, -1), kernel)
    if kind == "random":  # at each lag every place answers one other place
        rows = [torch.diag(draw(PLACES) + 0.5)[torch.randperm(PLACES, generator=g)] for _ in range(WINDOW)]
        kernel = torch.stack(rows, dim=-1)
    base, kernel = 0.1 + 0.2 * draw(PLACES), scaled_to(kernel, 0.8)
    return Process(base, kernel, simulate(base, kernel, bins, generator=rng(100 + seed)), (d, e))


def error(found: Tensor, truth: Tensor) -> float:
    """Return the length of the error over that of the truth."""
    return float((found - truth).norm() / truth.norm())


# Norms


def cosines(p: int = WINDOW) -> Tensor:
    """Return the orthonormal cosine transform (p, p): frequencies as in the DFT, ends that are not joined."""
    k = torch.arange(p, dtype=torch.float64)
    rows = torch.cos(math.pi * (k + 0.5) * k[:, None] / p) * math.sqrt(2 / p)
    rows[0] /= math.sqrt(2)
    return rows


def turned(given: Moments, q: Tensor) -> Moments:
    """Return the moments for kernels whose lags went through the orthonormal transform q (p, p)."""
    whole = torch.kron(torch.eye(len(given.mean), dtype=q.dtype), q)
    return Moments(
        whole @ given.gram @ whole.T, given.cross @ whole.T, whole @ given.past_mean, given.mean, given.variance, given.n
    )  # fmt: skip


def split(counts: Tensor) -> tuple[Moments, Moments]:
    """Return the moments of the earlier bins, and those of the last fifth."""
    cut = round(len(counts) * (1 - HELD_OUT))
    return moments(counts[:cut], WINDOW), moments(counts[cut - WINDOW :], WINDOW)


def held_out_error(late: Moments, early: Moments, kernel: Tensor) -> float:
    """Return the squared error on later bins of a kernel that was fitted to the earlier ones."""
    return float(squared_error(late, kernel, early.mean - kernel.flatten(-2) @ early.past_mean))


def best_of(counts: Tensor, name: str) -> tuple[Tensor, float]:
    """Return the fit to all bins with the weight that the last fifth chooses, and that weight as a share of the edge."""
    penalty, q = ("slices", cosines()) if name == "cosine" else (name, torch.eye(WINDOW, dtype=torch.float64))
    early, late = (turned(one, q) for one in split(counts))
    start, scored = None, []
    options = FISTA if penalty in LOW_RANK else {}
    for share in sorted(SHARES[name], reverse=True):
        tried = fit(early, penalty, share * largest_weight(early, penalty), start=start, **options)
        start = tried.kernel
        scored.append((held_out_error(late, early, tried.kernel), share))
    share = min(scored)[1]
    given = turned(moments(counts, WINDOW), q)
    return fit(given, penalty, share * largest_weight(given, penalty), start=start, **options).kernel @ q, share


@cache
def norm_fit(kind: str, seed: int, name: str, bins: int = BINS) -> Tensor:
    """Return the kernel that a penalty gives, its weight chosen on held-out bins; "none" is plain least squares."""
    counts = process(kind, seed, bins).counts
    if name == "none":
        return fit(moments(counts, WINDOW), "none").kernel
    return best_of(counts, name)[0]


def rank_one(kernel: Tensor) -> Tensor:
    """Keep the largest singular value of each DFT slice: rank 1 at each frequency, nothing shrunk."""
    u, s, vh = torch.linalg.svd(torch.fft.fft(kernel, norm="ortho").movedim(-1, 0))
    slices = s[:, :1, None] * u[:, :, :1] * vh[:, :1]
    return torch.fft.ifft(slices.movedim(0, -1), norm="ortho").real


SIMPLE = ("none, at least 0", "ridge, at least 0", "fourier, at least 0", "rank 1", "rank 1, at least 0")


def simple_fit(kind: str, seed: int, name: str, bins: int = BINS) -> Tensor:
    """Return a rival of one line: least squares or a norm's fit with negative entries set to 0, or cut to rank 1."""
    start = name.removesuffix(", at least 0")
    found = rank_one(norm_fit(kind, seed, "none", bins)) if start == "rank 1" else norm_fit(kind, seed, start, bins)
    return found if start == name else found.clamp(min=0)


# The form


def formed(counts: Tensor, name: str, *, truth: Delays, seed: int) -> tuple[Tensor, Delays]:
    """Return kernel and delays of one of the arms that know the form (31.3)."""
    given = moments(counts, WINDOW)
    plain = fit(given, "none").kernel
    zero = torch.zeros(PLACES, dtype=torch.long)
    if name in ("10 starts", "40 starts"):
        found = searched(given, int(name.split()[0]), generator=rng(seed))
        return found.kernel, (found.d, found.e)
    start = name.removesuffix(", corrected")
    if start == "peaks of Fourier":
        options = {"shares": SHARES["fourier"], **FISTA}
        delays = peak_lags(fit_chosen(counts, WINDOW, "fourier", **options).kernel)
    else:
        delays = {
            "read": lambda: read_delays(plain),
            "read at f = 1": lambda: read_delays(plain, (1,)),
            "totals": lambda: read_totals(plain),
            "darkest": lambda: darkest_lag(plain),
            "peaks": lambda: peak_lags(plain),
            "no delays": lambda: (zero, zero),
            "random": lambda: random_delays(PLACES, generator=rng(seed)),
            "true": lambda: truth,
        }[start]()
    found = refit(given, delays) if start == name else descent(given, delays)
    return found.kernel, (found.d, found.e)


def form_fit(kind: str, seed: int, name: str, bins: int = BINS) -> tuple[Tensor, Delays]:
    """The same for a process of the page."""
    given = process(kind, seed, bins)
    return formed(given.counts, name, truth=given.delays, seed=seed)


CANDIDATES = ("ridge", "slices", "fourier", "cosine", "read, corrected", "no delays")


def chosen(kind: str, seed: int, bins: int = BINS) -> str:
    """Return which of CANDIDATES, fitted to the first 80% of the bins, has the least squared error on the last 20%."""
    given = process(kind, seed, bins)
    early, late = split(given.counts)
    first = given.counts[: round(len(given.counts) * (1 - HELD_OUT))]
    scores = {}
    for name in CANDIDATES:
        knows = name not in SHARES
        found = formed(first, name, truth=given.delays, seed=seed) if knows else best_of(first, name)
        scores[name] = held_out_error(late, early, found[0])
    return min(scores, key=scores.__getitem__)
