"""What lesson 05 trains at the end: the twelve weights of lesson 04's curve, from rows with fresh noise at each step.

Several arms read the same number of noisy rows: one row a step, one row a step with the length of its gradient clipped,
and the mean gradient of several rows a step. What is scored is the mean of the weights over the last half of the steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from course_lib.lessons.ridge_noise_and_map.pictures import wiggly_data

NOISE, ROWS_READ = 0.5, 4000
CAP = 1e30  # what has grown beyond it is written as this number
ONE, FOUR, SIXTEEN = "1 row a step", "4 rows a step", "16 rows a step"
THRESHOLDS = (0.3, 1.0, 3.0, 10.0)
CLIPPED = tuple(f"1 row a step, clipped at {threshold:g}" for threshold in THRESHOLDS)
ARMS = (ONE, *CLIPPED, FOUR, SIXTEEN)


@dataclass(frozen=True)
class Problem:
    """Twelve rows `matrix` (12, 12), a target for each, and the weights `best` at which the mean noisy loss is smallest."""

    matrix: Tensor
    target: Tensor
    correlation: Tensor
    best: Tensor

    def excess(self, weights: Tensor) -> Tensor:
        """Return how far the mean of the squared error on a fresh noisy row lies above its smallest value."""
        away = weights - self.best
        return ((away @ self.correlation) * away).sum(-1)


@cache
def problem(seed: int) -> Problem:
    """Return lesson 04's twelve points, their targets with other errors for another seed (its own is 29)."""
    _, matrix, target, *_ = wiggly_data(seed=seed)
    correlation = matrix.T @ matrix / len(matrix) + NOISE**2 * torch.eye(matrix.shape[1], dtype=matrix.dtype)
    best = torch.linalg.solve(correlation, matrix.T @ target / len(matrix))
    return Problem(matrix, target, correlation, best)


def _arm(name: str) -> tuple[int, float | None]:
    if name not in ARMS:
        raise ValueError(f"arm must be one of {', '.join(ARMS)}, got {name!r}")
    rows = {FOUR: 4, SIXTEEN: 16}.get(name, 1)
    return rows, dict(zip(CLIPPED, THRESHOLDS, strict=True)).get(name)


def excesses(
    arm: str, step_sizes: Sequence[float], seeds: Sequence[int], *, runs: int, rows_read: int = ROWS_READ
) -> Tensor:
    """Return the excess (step sizes, seeds, runs) of the mean of the weights over the last half of the steps.

    Each step size and each arm meets the same rows in the same order. The gradient is that of half the squared error.
    Growth beyond `CAP` is cut there.

    Raises:
        ValueError: the arm is unknown.
    """
    rows, threshold = _arm(arm)
    problems = [problem(seed) for seed in seeds]
    matrix, target = problems[0].matrix, torch.stack([one.target for one in problems])
    columns, eta = matrix.shape[1], torch.tensor(step_sizes, dtype=matrix.dtype)[:, None, None, None]
    generator = torch.Generator().manual_seed(38)
    weights = matrix.new_zeros(len(step_sizes), len(seeds), runs, columns)
    total, steps = torch.zeros_like(weights), rows_read // rows
    for step in range(steps):
        shape = (len(seeds), runs, rows)
        places = torch.randint(len(matrix), shape, generator=generator)
        seen = matrix[places] + NOISE * torch.randn(*shape, columns, generator=generator, dtype=matrix.dtype)
        wanted = target.gather(1, places.flatten(1)).view(shape)
        errors = (seen @ weights[..., None])[..., 0] - wanted
        gradient = (errors[..., None, :] @ seen)[..., 0, :] / rows
        if threshold is not None:
            gradient = gradient * (threshold / gradient.norm(dim=-1, keepdim=True)).clamp(max=1)
        weights = weights - eta * gradient
        if step >= steps // 2:
            total += weights
    means = total / (steps - steps // 2)
    found = torch.stack([one.excess(means[:, place]) for place, one in enumerate(problems)], dim=1)
    return found.nan_to_num(nan=CAP, posinf=CAP).clamp(max=CAP)
