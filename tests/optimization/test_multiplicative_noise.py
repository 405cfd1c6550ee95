"""Tail exponents, the runs that carry a mean square, and the limits for normal inputs."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.optimization.multiplicative_noise import (
    carrying_noise,
    gaussian_run_limit,
    gaussian_spread_limit,
    tail_exponent,
)
from course_lib.optimization.ridge import second_moment_factor, second_moment_limit, typical_factor

INPUTS, NOISES = st.floats(-2.0, 2.0), st.floats(0.2, 2.0)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@given(INPUTS, NOISES)
def test_the_exponent_is_two_at_the_limit_of_the_mean_square(x, noise):
    limit = second_moment_limit(x, noise=noise)
    assert tail_exponent(x, noise=noise, step_size=limit) == pytest.approx(2, abs=1e-4)
    assert tail_exponent(x, noise=noise, step_size=0.9 * limit) > 2.05


@pytest.mark.parametrize("step_size", [0.1, 0.3, 0.6, 1.0])
def test_the_mean_of_that_power_is_one(step_size):
    alpha = tail_exponent(1.0, noise=1.0, step_size=step_size)
    z = torch.arange(-16, 16, 1e-4, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    assert float((density * (1 - step_size * (1 + z) ** 2).abs() ** alpha).sum()) * 1e-4 == pytest.approx(
        1, abs=1e-4
    )


def test_there_is_no_exponent_where_single_runs_grow():
    with pytest.raises(ValueError, match="single runs grow"):
        tail_exponent(1.0, noise=1.0, step_size=1.3)


@pytest.mark.parametrize(
    ("noise", "step_size"), [(0.0, 0.1), (-1.0, 0.1), (math.inf, 0.1), (1.0, 0.0), (1.0, math.nan)]
)
def test_sizes_that_are_none_are_refused(noise, step_size):
    for call in (
        lambda: tail_exponent(1.0, noise=noise, step_size=step_size),
        lambda: carrying_noise(1.0, noise=noise, step_size=step_size, shape=(1,), generator=rng()),
    ):
        with pytest.raises(ValueError, match="must be a finite"):
            call()


@pytest.mark.parametrize(("x", "noise", "step_size"), [(1.0, 1.0, 0.45), (0.5, 1.2, 0.3)])
def test_carrying_noise_is_the_normal_one_weighted_by_the_squared_factor(x, noise, step_size):
    drawn = carrying_noise(x, noise=noise, step_size=step_size, shape=(1000, 400), generator=rng())
    assert drawn.shape == (1000, 400)
    normal = noise * torch.randn(2_000_000, generator=rng(1), dtype=torch.float64)
    weight = (1 - step_size * (x + normal) ** 2).square()
    assert float(weight.mean()) == pytest.approx(
        second_moment_factor(x, noise=noise, step_size=step_size), rel=0.02
    )
    for function in (lambda n: n, lambda n: n**2, lambda n: (n > noise).double()):
        weighted = float((weight * function(normal)).mean() / weight.mean())
        assert float(function(drawn).mean()) == pytest.approx(weighted, abs=0.03)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_the_gaussian_limit_is_where_the_mean_square_is_kept(columns, rows):
    seen = torch.randn(400_000, rows, columns, generator=rng(), dtype=torch.float64)
    start = torch.zeros(columns, dtype=torch.float64)
    start[0] = 1
    change = torch.einsum("nr,nrd->nd", seen @ start, seen) / rows
    limit = gaussian_spread_limit(columns, rows_a_step=rows)
    assert float((start - limit * change).square().sum(1).mean()) == pytest.approx(1, abs=0.03)
    assert float((start - 0.5 * limit * change).square().sum(1).mean()) < 0.97


def test_a_single_run_of_one_weight_has_the_limit_of_the_typical_factor():
    limit = gaussian_run_limit(1)
    around = typical_factor(
        0.0, noise=1.0, step_sizes=torch.tensor([0.995 * limit, 1.005 * limit], dtype=torch.float64)
    )
    assert around[0] < 1 < around[1]


@pytest.mark.parametrize("columns", [2, 4, 12])
def test_at_the_limit_of_a_single_run_the_mean_logarithm_is_zero(columns):
    seen = torch.randn(400_000, columns, generator=rng(), dtype=torch.float64)
    limit = gaussian_run_limit(columns)
    assert limit > gaussian_spread_limit(columns)
    after = -limit * seen[:, :1] * seen
    after[:, 0] += 1
    logs = after.norm(dim=1).log()
    assert abs(float(logs.mean())) < 4 * float(logs.std()) / len(logs) ** 0.5


@pytest.mark.parametrize("call", [gaussian_run_limit, gaussian_spread_limit])
def test_counts_below_one_are_refused(call):
    with pytest.raises(ValueError, match="1 or more"):
        call(0)
    with pytest.raises(ValueError, match="1 or more"):
        gaussian_spread_limit(1, rows_a_step=0)
