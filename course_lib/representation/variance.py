"""How much of the variance a narrow code keeps, and how wide it must be.

Variance "kept" always means R = 1 - E ||x - x_hat||^2 / E ||x - E x||^2, the total over all dimensions.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

ANGLE_SHARE = math.pi / 4
"""Variance of N(0, I_2) that its angle keeps: (E r)^2 / E r^2 with r the length of the vector (35.5)."""


def components_needed(variances: Float[Tensor, " components"], share: float | int) -> int:
    """Smallest number of components that keep a share of the variance.

    The smallest k with sum_{i <= k} lambda_i / sum_j lambda_j >= share, lambda sorted in decreasing order
    (35.4). For D equal variances it is ceil(share D).

    `variances` may come in any order; `share` in (0, 1]. Raises ValueError for another share, a negative or
    non-finite variance, and where all are 0.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; expected a share of the variance in (0, 1]")
    values = variances.double().sort(descending=True).values
    if not (len(values) and values.isfinite().all() and values[-1] >= 0 and values[0] > 0):
        raise ValueError(
            f"variances range from {values.min().item() if len(values) else 'nothing'} to "
            f"{values.max().item() if len(values) else 'nothing'}; expected finite numbers of at least 0, not all 0"
        )
    kept = values.cumsum(dim=0)
    # A sum of n numbers may be off by n roundings: ten times 0.1 must count as 1.
    slack = (len(values) + 4) * torch.finfo(torch.float64).eps
    return int((kept < share * kept[-1] * (1 - slack)).sum()) + 1


def kept_by_code(x: Float[Tensor, "rows d_model"], code: Float[Tensor, "as_many units"]) -> float:
    """Share of the variance of rows that the best affine decoder of their codes keeps.

    max over A, b of 1 - sum_n ||x_n - A z_n - b||^2 / sum_n ||x_n - mean||^2: least squares with an intercept. No
    code of k units keeps more than the k leading principal components of the same rows (35.3).

    Raises ValueError for another number of codes than rows, and for rows without variance.
    """
    if len(code) != len(x):
        raise ValueError(f"code has {len(code)} rows for {len(x)} rows of x; expected as many")
    # Constant columns are 0 only up to rounding once their mean is gone: compare with what they were.
    x_size, z_size = x.double().norm(), code.double().norm()
    x, z = x.double() - x.double().mean(dim=0), code.double() - code.double().mean(dim=0)
    total = x.square().sum()
    if total <= (1e-12 * x_size) ** 2:
        raise ValueError(f"{len(x)} rows of x have no variance; expected at least 2 different rows")
    # The projection of the rows on the span of the code's columns.
    u, s, _ = torch.linalg.svd(z, full_matrices=False)
    u = u[:, s > 1e-12 * z_size]
    return ((u.T @ x).square().sum() / total).item()


def relu_share(bias: float | int) -> float:
    """Variance of a standard normal number u that an affine decoder recovers from max(u + bias, 0).

    corr(u, r)^2 = Phi(b)^2 / Var r, with E r = b Phi(b) + phi(b) and E r^2 = (1 + b^2) Phi(b) + b phi(b) (35.6);
    0.7335 at b = 0, and 1 in the limit of large b, where the unit is linear.
    """
    # Through erfc, so that the far left tail does not vanish; below it everything is 0 in float64.
    cdf = math.erfc(-bias / math.sqrt(2)) / 2
    density = math.exp(-(bias**2) / 2) / math.sqrt(2 * math.pi)
    mean = bias * cdf + density
    variance = (1 + bias**2) * cdf + bias * density - mean**2
    return cdf**2 / variance if variance > 0 else 0.0


def unit_share(activation: Callable[[Tensor], Tensor]) -> float:
    """Variance of a standard normal number u that an affine decoder recovers from activation(u).

    corr(u, s(u))^2 by the trapezoidal rule with 16,001 points on [-10, 10].

    Raises ValueError where the activation is constant there.
    """
    u = torch.linspace(-10, 10, 16_001, dtype=torch.float64)
    weight = torch.exp(-u.square() / 2)
    weight = weight / weight.sum()
    s = activation(u)
    size = (weight * s.square()).sum()
    s = s - (weight * s).sum()
    variance = (weight * s.square()).sum()
    if variance <= 1e-24 * size:
        raise ValueError("activation is constant on [-10, 10]; expected a function that varies there")
    return ((weight * u * s).sum().square() / variance).item()
