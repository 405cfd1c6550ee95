"""Neuron resonance: a neuron finds a feature when it fires about as often as the feature occurs (lesson 36).

The training of bias-adapted sparse autoencoders (arXiv:2506.14002), stripped to its core. A neuron is a unit
vector w. Its threshold t is set so that it fires in a share p of the rows, and its direction becomes the sum of
the rows that make it fire, each weighted by how far it is above the threshold. Neurons do not interact.
"""

import math
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor


def firing_count(n_rows: int, frequency: float) -> int:
    """Number of rows in which a neuron of target frequency p fires: p N, rounded, at least 1.

    Raises:
        ValueError: p is not in (0, 1), or it asks for all rows.
    """
    count = max(1, round(frequency * n_rows)) if 0 < frequency < 1 else 0
    if not 0 < count < n_rows:
        raise ValueError(
            f"frequency is {frequency} with {n_rows} rows; expected a share in (0, 1) that leaves a row out"
        )
    return count


def thresholds(projections: Float[Tensor, "rows neurons"], *, frequency: float) -> Float[Tensor, " neurons"]:
    """The (1 - p) quantile t of each neuron's projections w . x: a share p of the rows lies above it.

    Raises:
        ValueError: see `firing_count`.
    """
    count = firing_count(len(projections), frequency)
    # The largest value that does not fire. kthvalue works along the last dimension fastest.
    return projections.T.contiguous().kthvalue(len(projections) - count, dim=1).values


def resonance_step(
    neurons: Float[Tensor, "neurons d_model"], rows: Float[Tensor, "rows d_model"], *, frequency: float
) -> Float[Tensor, "neurons d_model"]:
    """w <- sum_i relu(w . x_i - t) x_i, scaled to length 1, with t such that w fires in a share p of the rows.

    A neuron that no row lifts above its threshold (all its largest projections are equal) stays as it is.

    Raises:
        ValueError: see `firing_count`.
    """
    projections = rows @ neurons.T
    active = torch.relu(projections - thresholds(projections, frequency=frequency))
    moved = active.T @ rows
    norms = moved.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, moved / norms.clamp(min=torch.finfo(norms.dtype).tiny), neurons)


def resonate(
    neurons: Float[Tensor, "neurons d_model"],
    rows: Float[Tensor, "rows d_model"],
    *,
    frequency: float,
    steps: int = 12,
) -> Float[Tensor, "neurons d_model"]:
    """Take `steps` resonance steps from the given unit neurons.

    Raises:
        ValueError: see `firing_count`.
    """
    for _ in range(steps):
        neurons = resonance_step(neurons, rows, frequency=frequency)
    return neurons


def random_neurons(
    n_neurons: int, d_model: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "neurons d_model"]:
    """Unit vectors in random directions: where training starts."""
    neurons = torch.randn(n_neurons, d_model, generator=generator, dtype=dtype, device=generator.device)
    return neurons / neurons.norm(dim=1, keepdim=True)


def resonance_band(n_atoms: int, active: int) -> tuple[float, float]:
    """(n^-1, n^-((1 + 1/s) / 2)): target frequencies for which recovery is proven, up to constants.

    The theorem of arXiv:2506.14002 as second-hand sources give it, with constants and its other two upper
    limits left out: n^(-2 (1 + eps)^2 / s), larger than this one from s = 4 on for small eps, and d^(1 - c) / n.

    Raises:
        ValueError: fewer than two atoms, or `active` is not in 1 ... n_atoms.
    """
    if not (n_atoms >= 2 and 1 <= active <= n_atoms):
        raise ValueError(
            f"n_atoms is {n_atoms} and active is {active}; expected at least 2 atoms and 1 <= active <= n_atoms"
        )
    return 1 / n_atoms, n_atoms ** (-(1 + 1 / active) / 2)


def bias_for_frequency(frequency: float, *, deviation: float | int = 1.0) -> float:
    """b = tau Phi^-1(p): with this bias a neuron whose input is N(0, tau^2) fires in a share p of the rows.

    Phi is the standard normal distribution function. The bias is negative for p < 1/2.

    Raises:
        ValueError: p is not in (0, 1), or `deviation` is not a finite number above 0.
    """
    if not (0 < frequency < 1 and 0 < deviation < math.inf):
        raise ValueError(
            f"frequency is {frequency} and deviation {deviation}; expected a share in (0, 1) and a number above 0"
        )
    return deviation * NormalDist().inv_cdf(frequency)
