"""Is a sample normal? Moments, in units of the standard errors that they would have if it were.

A score within a few units of 0 is what a normal distribution gives; a score of 20 is not. The scores need
independent rows. They see skewness and tails only: a distribution with the normal's first four moments passes.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class MomentScores(NamedTuple):
    """Scores of each unit's skewness and excess kurtosis."""

    skewness: Float[Tensor, " units"]
    kurtosis: Float[Tensor, " units"]


def moment_scores(code: Float[Tensor, "rows units"]) -> MomentScores:
    """Skewness and excess kurtosis of each unit, divided by their standard errors for normal rows.

    g_1 = m_3 / m_2^(3/2) and g_2 = m_4 / m_2^2 - 3, with m_p the central moments of the N rows. For normal rows
    E g_1 = 0, Var g_1 = 6 (N - 2) / ((N + 1)(N + 3)), E g_2 = -6 / (N + 1) and
    Var g_2 = 24 N (N - 2)(N - 3) / ((N + 1)^2 (N + 3)(N + 5)), for every N; the scores are (g - E g) / sd.

    Raises ValueError for fewer than 8 rows and for a unit that is constant. Source: Fisher (1930).
    """
    n = _check_rows(code, at_least=8)
    z = code.double() - code.double().mean(dim=0)
    spread = z.square().mean(dim=0)
    # A constant such as 0.1 may differ from its computed mean by a rounding.
    constant = spread <= 1e-24 * code.double().square().mean(dim=0)
    if constant.any():
        unit = int(constant.nonzero()[0])
        raise ValueError(f"unit {unit} is constant; expected units that vary")
    z = z / spread.sqrt()
    skewness, excess = z.pow(3).mean(dim=0), z.pow(4).mean(dim=0) - 3
    skewness_sd = math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
    excess_sd = math.sqrt(24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5)))
    return MomentScores(skewness / skewness_sd, (excess + 6 / (n + 1)) / excess_sd)


def mardia_score(code: Float[Tensor, "rows units"]) -> float:
    """Kurtosis of all units together, divided by its standard error for normal rows.

    b = (1/N) sum_n (z_n^T S^-1 z_n)^2, z the centred rows and S their covariance (divided by N). For normal rows
    of k units E b = k (k + 2)(N - 1)/(N + 1) and Var b is about 8 k (k + 2) / N. It does not depend on the
    basis that the code is written in.

    Raises ValueError unless there are more than k + 1 rows, and for a singular covariance. Source: Mardia (1970).
    """
    k = code.shape[1]
    n = _check_rows(code, at_least=k + 2)
    z = code.double() - code.double().mean(dim=0)
    u, s, _ = torch.linalg.svd(z, full_matrices=False)
    if s[-1] <= 1e-10 * s[0]:
        raise ValueError(
            f"the covariance of the {k} units is singular; expected units that are not redundant"
        )
    distances = n * u.square().sum(dim=1)  # z^T S^-1 z, free of the basis
    b = distances.square().mean().item()
    return (b - k * (k + 2) * (n - 1) / (n + 1)) / math.sqrt(8 * k * (k + 2) / n)


def _check_rows(code: Tensor, *, at_least: int) -> int:
    if len(code) < at_least:
        raise ValueError(f"code has {len(code)} rows; expected at least {at_least} for {code.shape[1]} units")
    return len(code)
