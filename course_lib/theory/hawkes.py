"""Hawkes processes in discrete time: events that excite later events, simulated, and their kernel estimated (lesson 31).

y_k(i) counts the events at place i in the time bin k. They are Poisson with the rate

    lambda_k(i) = mu_i + sum_j sum_tau A[i, j, tau] y_(k-tau)(j),   tau = 1 ... p,

and A, of shape (N, N, p), is the kernel: the entry [i, j, tau - 1] is how many events at i, on average, one event at j
causes directly tau bins later. Estimates here minimise the mean squared error of the rate plus a penalty on A. All the
data enter through lagged products of counts (`Moments`), so no step costs more for a longer record.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.checks import check_finite, checked
from course_lib.theory.tensor_nuclear_norm import LOW_RANK, matrices, prox

Penalty = Literal["none", "ridge", "fourier", "slices", "unfolding"]
PENALTIES = ("none", "ridge", *LOW_RANK)


# Kernels


def delayed_kernel(
    gain_to: Float[Tensor, " N"],
    gain_from: Float[Tensor, " N"],
    profile: Float[Tensor, " width"],
    delay_to: Int[Tensor, " N"],
    delay_from: Int[Tensor, " N"],
    *,
    p: int,
) -> Float[Tensor, "N N p"]:
    """A[i, j, tau] = a_i b_j h(tau - d_i - e_j) (31.3), the profile h being cut off where it leaves the window of p lags.

    Raises:
        ValueError: a delay is negative or p is not positive.
    """
    if p < 1 or min(int(delay_to.min()), int(delay_from.min())) < 0:
        raise ValueError(
            f"p must be positive and delays at least 0, got p = {p} and {delay_to}, {delay_from}"
        )
    at = torch.arange(p, device=delay_to.device) - (delay_to[:, None] + delay_from)[..., None]
    inside = (at >= 0) & (at < len(profile))
    return gain_to[:, None, None] * gain_from[:, None] * profile[at.clamp(0, len(profile) - 1)] * inside


@checked
def spectral_radius(kernel: Float[Tensor, "*runs N N p"]) -> Float[Tensor, "*runs"]:
    """Largest modulus of the eigenvalues of sum_tau A[:, :, tau]: the process is stationary where it is below 1 (31.8).

    Raises:
        ValueError: an entry is not finite.
    """
    check_finite("kernel", kernel)  # some routines for eigenvalues end the process at a NaN
    return torch.linalg.eigvals(kernel.sum(-1)).abs().amax(-1)


@checked
def scaled_to(kernel: Float[Tensor, "*runs N N p"], radius: float | int) -> Float[Tensor, "*runs N N p"]:
    """Return the kernel times a number, so that its spectral radius is `radius`."""
    return kernel * (radius / spectral_radius(kernel))[..., None, None, None]


@checked
def stationary_rate(
    base: Float[Tensor, "*runs N"], kernel: Float[Tensor, "*runs N N p"]
) -> Float[Tensor, "*runs N"]:
    """m = (I - sum_tau A)^-1 mu (31.8): events per bin in the long run."""
    eye = torch.eye(base.shape[-1], dtype=base.dtype, device=base.device)
    return torch.linalg.solve(eye - kernel.sum(-1), base)


# Simulation and rates


def rate_by_loops(
    counts: Float[Tensor, "K N"], base: Float[Tensor, " N"], kernel: Float[Tensor, "N N p"], k: int
) -> Float[Tensor, " N"]:
    """lambda_k, term by term (31.1), to be read; before the record's start there are no events."""
    rate = base.clone()
    for tau in range(1, min(kernel.shape[-1], k) + 1):
        rate = rate + kernel[..., tau - 1] @ counts[k - tau]
    return rate


@checked
def rates(
    counts: Float[Tensor, "*runs K N"], base: Float[Tensor, "*runs N"], kernel: Float[Tensor, "*runs N N p"]
) -> Float[Tensor, "*runs K-p N"]:
    """lambda_k for k = p ... K - 1, all at once.

    Raises:
        ValueError: the record is not longer than the window of p lags.
    """
    p, steps = kernel.shape[-1], counts.shape[-2]
    if steps <= p:
        raise ValueError(f"counts must have more than p = {p} time bins, got {steps}")
    total = base.unsqueeze(-2).expand(*counts.shape[:-2], steps - p, -1)
    for tau in range(1, p + 1):
        total = total + counts[..., p - tau : steps - tau, :] @ kernel[..., tau - 1].mT
    return total


def simulate(
    base: Float[Tensor, "*runs N"],
    kernel: Float[Tensor, "*runs N N p"],
    n_steps: int,
    *,
    generator: torch.Generator,
    burn_in: int = 200,
) -> Float[Tensor, "*runs n_steps N"]:
    """Draw counts bin by bin, after `burn_in` bins that are dropped; dimensions in front are runs of their own.

    Raises:
        ValueError: an entry is negative, or the process explodes: its spectral radius is 1 or more.
    """
    if float(base.min()) < 0 or float(kernel.min()) < 0:
        raise ValueError("base and kernel must be at least 0: a Poisson rate cannot be negative")
    if float(largest := spectral_radius(kernel).max()) >= 1:
        raise ValueError(
            f"kernel must have a spectral radius below 1, got {float(largest):.3f}: each event causes "
            "on average at least one more, and the counts explode; see scaled_to"
        )
    *runs, n, p = kernel.shape[:-1] + kernel.shape[-1:]
    total = burn_in + n_steps
    # Newest first, so that the last p bins are one contiguous block, as the columns of `response` want them.
    record = base.new_zeros(*runs[:-1], total + p, n)
    response = kernel.permute(*range(kernel.ndim - 3), -1, -2, -3).reshape(*runs[:-1], p * n, n).contiguous()
    for k in range(total):
        at = total - 1 - k
        past = record[..., at + 1 : at + 1 + p, :].reshape(*runs[:-1], 1, p * n)
        rate = base + (past @ response).squeeze(-2)
        record[..., at, :] = torch.poisson(rate, generator=generator)
    return record[..., :n_steps, :].flip(-2)


def log_likelihood(
    counts: Float[Tensor, "*runs K N"],
    rate: Float[Tensor, "*runs K N"],
    *,
    floor: float | int = 1e-2,
) -> Float[Tensor, "*runs"]:
    """sum (y log lambda - lambda - log y!) / sum y: Poisson log-likelihood for each event, in nats.

    A fit by least squares may give rates of 0 and less; they count as `floor`, in events per bin.
    """
    rate = rate.clamp(min=floor)
    terms = torch.xlogy(counts, rate) - rate - torch.lgamma(counts + 1)
    return terms.sum(dim=(-1, -2)) / counts.sum(dim=(-1, -2))


# Moments


@dataclass(frozen=True)
class Moments:
    """Means of centred products of counts: all that least squares needs of a record.

    Shapes: `gram` (..., N p, N p) and `cross` (..., N, N p), the past in the order (place, lag) as in a flattened kernel;
    `past_mean` (..., N p), `mean` and `variance` (..., N); `n` is how many bins they are means over.
    """

    gram: Float[Tensor, "*runs Np Np"]
    cross: Float[Tensor, "*runs N Np"]
    past_mean: Float[Tensor, "*runs Np"]
    mean: Float[Tensor, "*runs N"]
    variance: Float[Tensor, "*runs N"]
    n: int

    @property
    def p(self) -> int:
        """The number of lags."""
        return self.gram.shape[-1] // self.mean.shape[-1]


def moments_by_rows(counts: Float[Tensor, "*runs K N"], p: int) -> Moments:
    """Moments from the matrix of all pasts, one row of N p numbers for each bin, to be read."""
    steps = counts.shape[-2]
    past = torch.stack([counts[..., p - tau : steps - tau, :] for tau in range(1, p + 1)], dim=-1).flatten(-2)
    now = counts[..., p:, :]
    x, y = past - past.mean(-2, keepdim=True), now - now.mean(-2, keepdim=True)
    n = steps - p
    return Moments(x.mT @ x / n, y.mT @ x / n, past.mean(-2), now.mean(-2), y.square().mean(-2), n)


def moments(counts: Float[Tensor, "*runs K N"], p: int) -> Moments:
    """The same from p + 1 products of counts with later counts: p times fewer multiplications, and no row is formed.

    Shifting both lags of a product by one bin drops the last term of the sum and adds one in front (31.9). Whole
    numbers are added up exactly in float64, so nothing is lost in the recursion.

    Shapes: memory N p x N p, whatever K. Raises: ValueError where the record is not longer than p.
    """
    steps, n_places = counts.shape[-2:]
    if p < 1 or steps <= p:
        raise ValueError(f"counts must have more than p >= 1 time bins, got {steps} with p = {p}")
    lead, n = counts.shape[:-2], steps - p
    now = counts[..., p:, :]
    lagged = [counts[..., p - tau : steps - tau, :] for tau in range(p + 1)]
    # (..., tau, i, sigma, j): products of the counts tau bins ago at i and sigma bins ago at j
    blocks = counts.new_empty(*lead, p + 1, n_places, p + 1, n_places)
    blocks[..., 0, :, :, :] = torch.stack([now.mT @ x for x in lagged], dim=-2)
    first, last = counts[..., :p, :].flip(-2), counts[..., steps - p :, :].flip(-2)
    outer = lambda x: torch.einsum("...si,...tj->...sitj", x, x)  # noqa: E731
    moved = outer(first) - outer(last)
    for tau in range(p):
        blocks[..., tau + 1, :, 1:, :] = blocks[..., tau, :, :-1, :] + moved[..., tau, :, :, :]
        blocks[..., tau + 1, :, 0, :] = blocks[..., 0, :, tau + 1, :].mT
    sums = torch.stack([x.sum(-2) for x in lagged], dim=-2)  # (..., p + 1, N)
    blocks = blocks / n - torch.einsum("...si,...tj->...sitj", sums, sums) / n**2
    size = n_places * p
    ordered = blocks[..., 1:, :, 1:, :].transpose(-4, -3).transpose(-2, -1)
    return Moments(
        ordered.reshape(*lead, size, size),
        blocks[..., 0, :, 1:, :].mT.reshape(*lead, n_places, size),
        sums[..., 1:, :].mT.reshape(*lead, size) / n,
        sums[..., 0, :] / n,
        blocks[..., 0, :, 0, :].diagonal(dim1=-2, dim2=-1).clone(),
        n,
    )


# Fits


@dataclass(frozen=True)
class Fit:
    """An estimate: `kernel` (..., N, N, p), `base` (..., N), the penalty's `weight` and how many `steps` were taken."""

    kernel: Float[Tensor, "..."]
    base: Float[Tensor, "..."]
    weight: float | int | Tensor
    steps: int


def _checked(penalty: str) -> None:
    if penalty not in PENALTIES:
        raise ValueError(f"penalty must be one of {list(PENALTIES)}, got {penalty!r}")


def squared_error(
    given: Moments, kernel: Float[Tensor, "*runs N N p"], base: Float[Tensor, "*runs N"]
) -> Float[Tensor, "*runs"]:
    """Mean squared error of the rate over a record, summed over places, from its moments alone."""
    flat = kernel.flatten(-2)
    centred = given.variance - (flat * (2 * given.cross - flat @ given.gram)).sum(-1)
    offset = given.mean - base - (flat @ given.past_mean.unsqueeze(-1)).squeeze(-1)
    return (centred + offset.square()).sum(-1)


def slope(given: Moments, kernel: Float[Tensor, "*runs N N p"]) -> Float[Tensor, "*runs N N p"]:
    """Gradient with respect to A of half the mean squared error, A Gram - cross, the best mu put in (31.2)."""
    return (kernel.flatten(-2) @ given.gram - given.cross).reshape(kernel.shape)


def largest_weight(given: Moments, penalty: str) -> Float[Tensor, "*runs"]:
    """From which weight on a low-rank penalty gives the kernel 0 (31.6); for "ridge" the mean eigenvalue of the Gram matrix.

    A scale for grids of weights: that of "fourier" is the largest singular value of the DFT slices of the slope at 0.
    """
    _checked(penalty)
    if penalty not in LOW_RANK:
        return given.gram.diagonal(dim1=-2, dim2=-1).mean(-1)
    n = given.mean.shape[-1]
    at_zero = given.cross.reshape(*given.cross.shape[:-1], n, given.p)
    return torch.linalg.svdvals(matrices(at_zero, penalty)).amax(dim=(-1, -2))


def largest_step(given: Moments) -> Float[Tensor, "*runs"]:
    """1 / (largest eigenvalue of the Gram matrix): the longest step for which the proximal method is sure to converge."""
    return 1 / torch.linalg.eigvalsh(given.gram)[..., -1]


def fista_step(
    kernel: Tensor,
    ahead: Tensor,
    t: float | int,
    given: Moments,
    *,
    step: Tensor,
    weight: Tensor,
    penalty: str,
) -> tuple[Tensor, Tensor, float]:
    """One accelerated proximal step: down the slope from `ahead`, shrink, extrapolate.

    Source: Beck and Teboulle (2009). Shapes: `step` and `weight` (...,), a number for each kernel of the batch.
    """
    new = prox(ahead - step[..., None, None, None] * slope(given, ahead), step * weight, penalty)
    later = (1 + (1 + 4 * t * t) ** 0.5) / 2
    return new, new + (t - 1) / later * (new - kernel), later


def fit(
    given: Moments,
    penalty: str,
    weight: float | int | Tensor = 0.0,
    *,
    start: Tensor | None = None,
    step: Tensor | None = None,
    max_steps: int = 500,
    tolerance: float | int = 1e-4,
) -> Fit:
    """argmin_(A, mu) 1/2 (mean squared error) + weight * penalty(A) (31.6).

    "none" (the shortest A where many fit) and "ridge" (the penalty is ||A||^2 / 2) in closed form, the others by FISTA from
    `start` with `step`, by default `largest_step`, until a step changes A by less than `tolerance` of its length in every
    run. The check reads a number back once in ten steps.

    Shapes: `weight` is a number or (runs,), one for each run.

    Raises:
        ValueError: the penalty is unknown or a weight is negative.
    """
    _checked(penalty)
    lead, n = given.mean.shape[:-1], given.mean.shape[-1]
    weight = torch.as_tensor(weight, dtype=given.gram.dtype, device=given.gram.device).expand(lead)
    if float(weight.min()) < 0:
        raise ValueError(f"weight must be at least 0, got {weight}")
    taken = 0
    if penalty == "none":
        flat = given.cross @ torch.linalg.pinv(given.gram, hermitian=True)
        kernel = flat.reshape(*lead, n, n, given.p)
    elif penalty == "ridge":
        eye = torch.eye(n * given.p, dtype=given.gram.dtype, device=given.gram.device)
        factor = torch.linalg.cholesky(given.gram + weight[..., None, None] * eye)
        kernel = torch.cholesky_solve(given.cross.mT, factor).mT.reshape(*lead, n, n, given.p)
    else:
        step = largest_step(given) if step is None else step
        kernel = given.cross.new_zeros(*lead, n, n, given.p) if start is None else start
        ahead, t = kernel, 1.0
        for taken in range(1, max_steps + 1):
            old = kernel
            kernel, ahead, t = fista_step(old, ahead, t, given, step=step, weight=weight, penalty=penalty)
            if taken % 10 == 0:
                length = lambda x: x.flatten(-3).norm(dim=-1)  # noqa: E731
                if bool((length(kernel - old) <= tolerance * length(kernel)).all()):
                    break
    base = given.mean - (kernel.flatten(-2) @ given.past_mean.unsqueeze(-1)).squeeze(-1)
    return Fit(kernel, base, weight, taken)


def fit_chosen(
    counts: Float[Tensor, "*runs K N"],
    p: int,
    penalty: str,
    *,
    shares: tuple[float | int, ...],
    held_out: float | int = 0.2,
    **options: Any,
) -> Fit:
    """Fit with the weight, in shares of `largest_weight`, whose fit to the earlier part predicts the last part best.

    `held_out` is the share of the record that chooses; the returned fit uses all of it. `options` are those of `fit`.

    Raises:
        ValueError: `held_out` is outside (0, 1), or there is no share.
    """
    if not 0 < held_out < 1 or not shares:
        raise ValueError(f"held_out must lie in (0, 1) and shares hold a number, got {held_out} and {shares}")
    everything = moments(counts, p)
    if penalty == "none":
        return fit(everything, penalty)
    cut = round(counts.shape[-2] * (1 - held_out))
    early, late = moments(counts[..., :cut, :], p), moments(counts[..., cut - p :, :], p)
    scale, start, errors = largest_weight(early, penalty), None, []
    if penalty in LOW_RANK:
        options = {"step": largest_step(early), **options}
    for share in sorted(shares, reverse=True):  # each starts where the next larger weight ended
        tried = fit(early, penalty, share * scale, start=start, **options)
        start = tried.kernel
        errors.append(squared_error(late, tried.kernel, tried.base))
    chosen = torch.tensor(sorted(shares, reverse=True), dtype=scale.dtype, device=scale.device)
    weight = chosen[torch.stack(errors).argmin(0)] * largest_weight(everything, penalty)
    if penalty in LOW_RANK:
        options["step"] = largest_step(everything)
    return fit(everything, penalty, weight, start=start, **options)
