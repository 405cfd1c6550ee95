"""The closing experiment of lesson 09: walk down a bowl with waves, by one estimator or the other.

In k coordinates, f(x) is the sum over the coordinates of (x_j - 3)^2 / 2 + cos(2^T x_j). The samples are x = mu + z / 2 with
standard normal noise z, and mu starts at 0 and should reach 3: the waves, whose mean over the samples is nearly 0, hide
where the bowl goes. Each step draws 16 samples and moves mu against an estimate of the gradient. All step sizes of a sweep
are walked side by side and meet the same noise.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

START, GOAL, STD = 0.0, 3.0, 0.5
SAMPLES, STEPS = 16, 200
LIMIT = 3.0  # of clipped derivatives: the size of the true gradient at the start
ARMS = (
    "path",
    "score",
    "mix",
    "path, derivatives clipped",
    "path, mean clipped",
    "score, antithetic pairs",
    "score, no baseline",
)


def bowl(x: Tensor, *, doublings: int) -> Tensor:
    """Return (x - 3)^2 / 2 + cos(2^T x), entry by entry."""
    return (x - GOAL).square() / 2 + torch.cos(2.0**doublings * x)


def bowl_slope(x: Tensor, *, doublings: int) -> Tensor:
    """Return the derivative of `bowl`, entry by entry."""
    return x - GOAL - 2.0**doublings * torch.sin(2.0**doublings * x)


def by_path(x: Tensor, *, doublings: int) -> Tensor:
    """Return the derivative at each sample; shapes (..., samples, k)."""
    return bowl_slope(x, doublings=doublings)


def by_score(x: Tensor, noise: Tensor, *, doublings: int, baseline: bool = True) -> Tensor:
    """Return f at each sample, less its mean over the others, times the score z / sigma; shapes (..., samples, k)."""
    values = bowl(x, doublings=doublings).sum(-1)
    if baseline:
        values = (values - values.mean(-1, keepdim=True)) * SAMPLES / (SAMPLES - 1)
    return values[..., None] * noise / STD


def _estimate(arm: str, x: Tensor, noise: Tensor, doublings: int) -> Tensor:
    """Return the gradient that an arm takes a step against; shape (step sizes, k)."""
    if arm in ("score, antithetic pairs", "score, no baseline"):
        return by_score(x, noise, doublings=doublings, baseline=False).mean(1)
    if arm == "score":
        return by_score(x, noise, doublings=doublings).mean(1)
    path = by_path(x, doublings=doublings)
    if arm == "path, derivatives clipped":
        return path.clamp(-LIMIT, LIMIT).mean(1)
    if arm == "path, mean clipped":
        return path.mean(1).clamp(-LIMIT, LIMIT)
    if arm == "mix":
        score = by_score(x, noise, doublings=doublings)
        noisy = [found.var(1).mean(1, keepdim=True) for found in (path, score)]
        share = noisy[1] / (noisy[0] + noisy[1])  # of the path: the less noisy one gets the larger share
        return share * path.mean(1) + (1 - share) * score.mean(1)
    return path.mean(1)


def walk(
    arm: str,
    *,
    dimension: int,
    doublings: int,
    step_sizes: Sequence[float],
    seed: int,
    falling: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the mean distance |mu_j - 3| over the coordinates before each step and at the end.

    Shapes: (201, step sizes). `falling` lets every step size fall to 0 on a line. A walk that has left the numbers is
    infinitely far.

    Raises:
        ValueError: `arm` is not among ARMS.
    """
    if arm not in ARMS:
        raise ValueError(f"arm must be one of {', '.join(ARMS)}, got {arm!r}")
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(step_sizes, dtype=dtype)[:, None]
    mean = torch.full((len(sizes), dimension), START, dtype=dtype)
    distances = [(mean - GOAL).abs().mean(1)]
    for step in range(STEPS):
        noise = torch.randn(SAMPLES, dimension, generator=generator, dtype=dtype)
        if arm == "score, antithetic pairs":
            noise = torch.cat([noise[: SAMPLES // 2], -noise[: SAMPLES // 2]])
        gradient = _estimate(arm, mean[:, None] + STD * noise, noise, doublings)
        mean = mean - (1 - step / STEPS if falling else 1.0) * sizes * gradient
        distances.append((mean - GOAL).abs().mean(1))
    return torch.stack(distances).nan_to_num(nan=torch.inf)
