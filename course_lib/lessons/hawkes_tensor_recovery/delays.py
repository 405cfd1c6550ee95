"""Delays read from a noisy kernel, and kernels of the form a_i b_j h(tau - d_i - e_j) fitted to counts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.theory.hawkes import Moments, delayed_kernel

Delays = tuple[Tensor, Tensor]
LARGEST = 3  # delays at each end are 0 ... 3 bins


def arrows(kernel: Tensor, frequencies: tuple[int, ...] = (1, 2, 3)) -> tuple[Tensor, Tensor]:
    """Return the leading left and right singular vectors of DFT slices, each times its singular value.

    Shapes: kernel (N, N, p); both results (frequencies, N), complex.
    """
    slices = torch.fft.fft(kernel, norm="ortho").movedim(-1, 0)[list(frequencies)]
    u, s, vh = torch.linalg.svd(slices)
    return u[:, :, 0] * s[:, :1], vh[:, 0] * s[:, :1]


def read_off(found: Tensor, p: int, frequencies: tuple[int, ...] = (1, 2, 3)) -> Tensor:
    """Return the delays of one end, 0 ... 3, whose turns fit the arrows best (31.5); the smallest is 0.

    Arrows of one frequency have a common unknown turn, so all are compared with the place whose arrows are longest. Each of
    the four delays of that place is tried, and the one with the largest total is kept.

    Shapes: found (frequencies, N), complex; p is the window.
    """
    longest = int(found.abs().sum(0).argmax())
    reference = found[:, longest] / found[:, longest].abs()
    each = torch.arange(LARGEST + 1)
    best, delays = -torch.inf, each
    for own in each:
        turns = 2 * torch.pi / p * torch.outer(each - own, torch.tensor(frequencies)).to(found.real.dtype)
        back = torch.polar(torch.ones_like(turns), turns)
        fit = torch.einsum("fi,f,sf->si", found, reference.conj(), back).real
        if (total := float(fit.amax(0).sum())) > best:
            best, delays = total, fit.argmax(0)
    return delays - delays.min()


def read_delays(kernel: Tensor, frequencies: tuple[int, ...] = (1, 2, 3)) -> Delays:
    """Return the delays of both ends, read from the turns of the leading singular vectors."""
    return tuple(read_off(one, kernel.shape[-1], frequencies) for one in arrows(kernel, frequencies))


def read_totals(kernel: Tensor) -> Delays:
    """The rival without singular vectors: the same turns of the row totals, and of the column totals, of the kernel."""
    ends = (kernel.sum(1), kernel.sum(0))
    return tuple(read_off(torch.fft.fft(end)[:, 1:4].T, kernel.shape[-1]) for end in ends)


def darkest_lag(kernel: Tensor) -> Delays:
    """The rival that looks: the lag at which the total of each row, and of each column, is largest."""
    ends = (kernel.sum(1).argmax(-1), kernel.sum(0).argmax(-1))
    return tuple((end - end.min()).clamp(max=LARGEST) for end in ends)


def random_delays(n: int, *, generator: torch.Generator) -> Delays:
    """Return delays that know nothing."""
    return tuple(torch.randint(0, LARGEST + 1, (n,), generator=generator) for _ in range(2))


def peak_lags(kernel: Tensor, rounds: int = 50) -> Delays:
    """The rival in time: the lag of each pair's largest entry, fitted by d_i + e_j with the entries as weights."""
    weight, at = kernel.max(-1)
    weight, at = weight.clamp(min=0), at.to(kernel.dtype)
    d, e = torch.zeros(2, len(at), dtype=kernel.dtype)
    for _ in range(rounds):
        d = ((at - e) * weight).sum(1) / weight.sum(1)
        e = ((at - d[:, None]) * weight).sum(0) / weight.sum(0)
    return tuple((end - end.min()).round().long().clamp(max=LARGEST) for end in (d, e))


def largest_squares(kernel: Tensor, *, generator: torch.Generator, starts: int = 20, rounds: int = 20) -> Delays:
    """The strongest rival in time: the delays for which the squares of positive entries at lags d_i + e_j add up to most.

    Each end in turn takes its best delays for those of the other end, from several random starts; the best is kept.
    """
    squares = kernel.clamp(min=0).square()
    each = torch.arange(LARGEST + 1)
    best, kept = -1.0, random_delays(len(kernel), generator=generator)
    for _ in range(starts):
        d, e = random_delays(len(kernel), generator=generator)
        for _ in range(rounds):
            # at[i, j, s]: the square of pair i, j at delay s of one end and the present one of the other
            at = squares.gather(2, (each + e[:, None]).expand(len(squares), -1, -1))
            d = at.sum(1).argmax(1)
            at = squares.gather(2, (each + d[:, None])[:, None].expand(-1, len(squares), -1))
            e = at.sum(0).argmax(1)
        total = float(squares.gather(2, (d[:, None] + e)[..., None]).sum())
        if total > best:
            best, kept = total, (d - d.min(), e - e.min())
    return kept


def read_correctly(found: Tensor, truth: Tensor) -> int:
    """Return how many delays of one end are right, up to a common shift."""
    return max(int((found + shift == truth).sum()) for shift in range(-LARGEST, LARGEST + 1))


def right_of_24(found: Delays, truth: Delays) -> int:
    """Return how many delays of both ends are right, each end up to a shift of its own."""
    return sum(read_correctly(one, true) for one, true in zip(found, truth, strict=True))


# The form, fitted


@dataclass(frozen=True)
class Form:
    """A kernel a_i b_j h(tau - d_i - e_j): strengths (N,), (N,), profile (p,), delays (N,), (N,)."""

    a: Tensor
    b: Tensor
    h: Tensor
    d: Tensor
    e: Tensor

    @property
    def kernel(self) -> Tensor:
        """The kernel, (N, N, p); what would come after the window is cut off."""
        return delayed_kernel(self.a, self.b, self.h, self.d, self.e, p=len(self.h))


def refit(given: Moments, delays: Delays, *, start: Form | None = None, rounds: int = 40) -> Form:
    """Least squares over the strengths and the profile, one after the other, for given delays."""
    n, p = len(given.mean), given.p
    d, e = delays
    ones = given.mean.new_ones(n)
    eye = torch.eye(p, dtype=given.mean.dtype)
    at = torch.stack([delayed_kernel(ones, ones, row, d, e, p=p) for row in eye], dim=-1)  # (N, N, p, p)
    a, b, h = (ones, ones, ones[:1].expand(p) / p) if start is None else (start.a, start.b, start.h)
    gram, cross = given.gram, given.cross
    for _ in range(rounds):
        rows = (a[:, None, None, None] * b[:, None, None] * at).flatten(1, 2)
        normal = torch.einsum("iak,ab,ibl->kl", rows, gram, rows)
        normal = normal + 1e-9 * normal.trace() * eye  # a lag of h that no pair shows stays 0
        h = torch.linalg.solve(normal, torch.einsum("iak,ia->k", rows, cross))
        h = h / h.norm()
        row = (b[:, None] * (at @ h)).flatten(1)
        a = (row * cross).sum(1) / (row @ gram * row).sum(1)
        one = a[:, None, None] * (at @ h)
        normal = torch.einsum("ijt,jtku,iku->jk", one, gram.reshape(n, p, n, p), one)
        b = torch.linalg.solve(normal, torch.einsum("ijt,ijt->j", one, cross.reshape(n, n, p)))
    return Form(a, b, h, d, e)


def descent(given: Moments, delays: Delays, *, sweeps: int = 10) -> Form:
    """Improve delays one at a time on the squared error, strengths and profile in between, until none changes."""
    form = refit(given, delays, rounds=10)
    n, p = len(given.mean), given.p
    for _ in range(sweeps):
        old = form
        fits = []
        for delay in range(LARGEST + 1):  # rows do not touch each other
            row = delayed_kernel(torch.ones_like(form.a), form.b, form.h, torch.full_like(form.d, delay), form.e, p=p)
            row = row.flatten(1)
            fits.append((row * given.cross).sum(1).square() / (row @ given.gram * row).sum(1))
        form = refit(given, (torch.stack(fits).argmax(0), form.e), start=form, rounds=4)
        e = form.e.clone()
        for j in range(n):
            costs = []
            for delay in range(LARGEST + 1):
                e[j] = delay
                flat = delayed_kernel(form.a, form.b, form.h, form.d, e, p=p).flatten(1)
                costs.append(float((flat @ given.gram * flat - 2 * flat * given.cross).sum()))
            e[j] = min(range(LARGEST + 1), key=costs.__getitem__)
        form = refit(given, (form.d, e), start=form, rounds=4)
        if bool((form.d == old.d).all() and (form.e == old.e).all()):
            break
    return refit(given, (form.d, form.e), start=form, rounds=30)


def searched(given: Moments, starts: int, *, generator: torch.Generator) -> Form:
    """The rival that knows the form too: `descent` from random delays, the best of so many starts by its squared error."""
    n = len(given.mean)
    found = [descent(given, random_delays(n, generator=generator)) for _ in range(starts)]

    def cost(form: Form) -> float:
        flat = form.kernel.flatten(1)
        return float((flat @ given.gram * flat - 2 * flat * given.cross).sum())

    return min(found, key=cost)
