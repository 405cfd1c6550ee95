"""Variance kept by codes: worked numbers, the bound, and agreement with independent computations."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.representation.variance import (
    ANGLE_SHARE,
    components_needed,
    kept_by_code,
    relu_share,
    unit_share,
)
from course_lib.sae.metrics import pca_curve


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Components


@pytest.mark.parametrize(
    ("share", "k"), [(1 / 8, 128), (1 / 2, 512), (9 / 10, 922), (19 / 20, 973), (99 / 100, 1014), (1, 1024)]
)
@pytest.mark.parametrize("value", [1.0, 0.1, 3e-7])
def test_of_equal_variances_the_ceiling_is_needed(share, k, value):
    assert components_needed(torch.full((1024,), value), share) == k


def test_the_order_does_not_matter_and_a_large_variance_counts_first():
    variances = torch.tensor([1.0, 5.0, 2.0, 2.0])
    assert components_needed(variances, 0.5) == 1
    assert components_needed(variances, 0.51) == 2
    assert components_needed(variances.flip(0), 0.9) == components_needed(variances, 0.9) == 3


def test_sums_that_are_off_by_rounding_count_as_reached():
    assert components_needed(torch.full((10,), 0.1), 0.7) == 7
    assert components_needed(torch.full((10,), 0.1), 1) == 10


@given(
    variances=st.lists(st.integers(0, 1000), min_size=1, max_size=30).filter(any),
    share=st.integers(1, 10_000),
)
def test_it_is_the_smallest_number_that_reaches_the_share(variances, share):
    k = components_needed(torch.tensor(variances, dtype=torch.float64), share / 10_000)
    ordered, wanted = sorted(variances, reverse=True), share * sum(variances)  # whole numbers: exact
    assert sum(ordered[:k]) * 10_000 >= wanted > sum(ordered[: k - 1]) * 10_000


@pytest.mark.parametrize("share", [0, -0.1, 1.01, math.nan])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ValueError, match="share is"):
        components_needed(torch.ones(3), share)


@pytest.mark.parametrize("variances", [[], [0.0, 0.0], [1.0, -0.1], [1.0, math.nan], [1.0, math.inf]])
def test_variances_that_are_none_are_refused(variances):
    with pytest.raises(ValueError, match="variances range from"):
        components_needed(torch.tensor(variances), 0.5)


# What a code keeps


@given(seed=st.integers(0, 10_000), k=st.integers(1, 6))
def test_no_code_passes_the_principal_components_and_they_reach_the_bound(seed, k):
    x = normal(40, 6, seed=seed) @ normal(6, 6, seed=seed + 1) + 3
    bound = float(pca_curve(x)[k - 1])
    curved = torch.tanh(x @ normal(6, 9, seed=seed + 2)).square() @ normal(9, k, seed=seed + 3)
    assert -1e-9 <= kept_by_code(x, curved) <= bound + 1e-9
    u, _, _ = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)
    assert kept_by_code(x, 5 * u[:, :k] - 7) == pytest.approx(bound, abs=1e-9)


def test_it_is_the_explained_variance_of_least_squares_with_an_intercept():
    x, code = normal(50, 4) + 10, normal(50, 2, seed=1)
    x = x + torch.relu(code) @ normal(2, 4, seed=2)
    columns = torch.cat([code, torch.ones(50, 1, dtype=torch.float64)], dim=1)
    residual = x - columns @ torch.linalg.lstsq(columns, x).solution
    wanted = 1 - residual.square().sum() / (x - x.mean(dim=0)).square().sum()
    assert kept_by_code(x, code) == pytest.approx(float(wanted), abs=1e-12)


def test_constant_and_repeated_units_add_nothing():
    x, code = normal(30, 3), normal(30, 1, seed=1)
    alone = kept_by_code(x, code)
    with_more = torch.cat([code, 2 * code + 1, torch.full_like(code, 4.0)], dim=1)
    assert kept_by_code(x, with_more) == pytest.approx(alone, abs=1e-9)
    assert kept_by_code(x, torch.ones(30, 2)) == 0
    assert kept_by_code(x, torch.full((30, 2), 0.1)) == 0


def test_rows_are_checked():
    with pytest.raises(ValueError, match="code has 4 rows for 5 rows of x"):
        kept_by_code(normal(5, 2), normal(4, 1))
    with pytest.raises(ValueError, match="no variance"):
        kept_by_code(torch.full((7, 2), 0.1), normal(7, 1))


# Units


def test_a_relu_at_bias_zero_keeps_the_worked_share():
    assert relu_share(0) == pytest.approx(0.7334711, abs=1e-7)
    assert relu_share(0) == pytest.approx(0.25 / (0.5 - 1 / (2 * math.pi)), abs=1e-15)
    assert relu_share(0) * 128 / 1024 == pytest.approx(0.0916839, abs=1e-7)
    assert relu_share(3) == pytest.approx(0.9998, abs=5e-5)


@given(bias=st.floats(-4, 6))
def test_a_relu_keeps_what_the_integral_says(bias):
    assert relu_share(bias) == pytest.approx(unit_share(lambda u: torch.relu(u + bias)), abs=2e-5)


def test_far_to_the_left_nothing_is_left_and_far_to_the_right_all():
    assert 0 <= relu_share(-6) < relu_share(-5) < 1e-3
    assert relu_share(-50) == 0
    assert relu_share(30) == pytest.approx(1, abs=1e-9)


def test_units_whose_share_is_known():
    assert unit_share(lambda u: 2 * u - 5) == pytest.approx(1, abs=1e-12)
    assert unit_share(torch.square) == pytest.approx(0, abs=1e-12)
    assert unit_share(torch.sign) == pytest.approx(2 / math.pi, abs=1e-3)
    assert unit_share(lambda u: u**3) == pytest.approx(9 / 15, abs=1e-9)
    with pytest.raises(ValueError, match="constant"):
        unit_share(torch.ones_like)


def test_the_angle_keeps_a_quarter_of_pi():
    x = normal(200_000, 2)
    decoded = math.sqrt(math.pi / 2) * x / x.norm(dim=1, keepdim=True)
    kept = 1 - (x - decoded).square().sum() / x.square().sum()
    # The standard error of the ratio is below 0.001 for 200,000 rows.
    assert abs(ANGLE_SHARE - 0.7853982) < 1e-7
    assert float(kept) == pytest.approx(ANGLE_SHARE, abs=0.006)
