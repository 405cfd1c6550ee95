"""Scores of normality: what normal rows give, what others give, and agreement with scipy."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from course_lib.representation.normality import mardia_score, moment_scores


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=st.integers(0, 10_000), n=st.integers(8, 60))
def test_scores_are_fishers_moments_over_their_errors(seed, n):
    code = normal(n, 3, seed=seed).exp() + 2
    scores = moment_scores(code)
    skewness, excess = stats.skew(code.numpy()), stats.kurtosis(code.numpy())
    skewness_sd = math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
    excess_sd = math.sqrt(24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5)))
    assert scores.skewness.tolist() == pytest.approx((skewness / skewness_sd).tolist(), rel=1e-6, abs=1e-6)
    wanted = ((excess + 6 / (n + 1)) / excess_sd).tolist()
    assert scores.kurtosis.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_over_many_normal_samples_scores_have_mean_0_and_variance_1():
    # 20,000 columns of 12 rows: the formulas are exact for every number of rows, not only for many.
    skewness, kurtosis = moment_scores(normal(12, 20_000))
    for scores in (skewness, kurtosis):
        assert float(scores.mean()) == pytest.approx(0, abs=0.04)
    assert float(skewness.var()) == pytest.approx(1, abs=0.06)
    assert float(kurtosis.var()) == pytest.approx(1, abs=0.25)
    mardia = torch.tensor([mardia_score(normal(400, 3, seed=s)) for s in range(300)])
    assert float(mardia.mean()) == pytest.approx(0, abs=0.35)
    assert float(mardia.std()) == pytest.approx(1, abs=0.3)


def test_a_relu_unit_is_found_out():
    scores = moment_scores(torch.relu(normal(3000, 1)))
    assert float(scores.skewness[0]) > 25
    g1 = scores.skewness[0] * math.sqrt(6 * 2998 / (3001 * 3003))
    assert float(g1) == pytest.approx(1.6406, abs=0.25)


def test_mardia_sees_what_single_units_do_not():
    # Independent signs on shared sizes: both units have a mixture's tails alike, and tails come together.
    size = torch.where(normal(2000, 1) > 0, 1.5, 0.5)
    assert mardia_score(size * normal(2000, 2, seed=1)) > 10
    assert abs(mardia_score(normal(2000, 2, seed=1))) < 5


@given(seed=st.integers(0, 10_000))
def test_scores_do_not_depend_on_scale_and_mardia_not_on_the_basis(seed):
    code = normal(40, 3, seed=seed).exp()
    moved = moment_scores(3 * code - 7)
    for mine, other in zip(moved, moment_scores(code), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8)
    mix = normal(3, 3, seed=seed + 1) + 4 * torch.eye(3, dtype=torch.float64)
    if torch.linalg.cond(mix) < 100:
        assert mardia_score(code @ mix + 1) == pytest.approx(mardia_score(code), rel=1e-6, abs=1e-6)


def test_mardia_is_the_mean_squared_mahalanobis_distance():
    code = normal(50, 3).exp()
    z = code - code.mean(dim=0)
    inverse = torch.linalg.inv(z.T @ z / 50)
    b = torch.einsum("ni,ij,nj->n", z, inverse, z).square().mean()
    assert mardia_score(code) == pytest.approx(float((b - 15 * 49 / 51) / math.sqrt(8 * 15 / 50)), rel=1e-9)


def test_errors_say_what_came():
    with pytest.raises(ValueError, match="7 rows"):
        moment_scores(normal(7, 2))
    constant = normal(20, 2)
    constant[:, 1] = 0.1
    with pytest.raises(ValueError, match="unit 1 is constant"):
        moment_scores(constant)
    with pytest.raises(ValueError, match="singular"):
        mardia_score(constant)
    with pytest.raises(ValueError, match="4 rows"):
        mardia_score(normal(4, 3))
