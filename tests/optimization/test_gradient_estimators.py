"""Gradient estimators: worked examples by hand, then properties on random problems."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lessons.gradient_estimators import (
    FUNCTIONS,
    balance,
    episode_noise,
    square,
    step,
)
from course_lib.optimization.gradient_estimators import (
    best_baseline,
    categorical_gradient,
    categorical_score_gradients,
    cosine_variances,
    gaussian_expectation,
    gumbel_noise,
    gumbel_softmax,
    leave_one_out,
    pathwise_gradients,
    quadratic_score_variance,
    score_gradients,
)

MEAN = st.floats(-3.0, 3.0)
STD = st.floats(0.2, 3.0)
BASELINE = st.floats(-10.0, 10.0)
SEEDS = st.integers(0, 2**31)


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=rng(seed), dtype=torch.float64)


def moments(estimate, *, mean, std):
    """Mean and variance of estimate(x) by quadrature: exact for polynomials."""
    first = gaussian_expectation(estimate, mean=mean, std=std)
    return first, gaussian_expectation(lambda x: estimate(x) ** 2, mean=mean, std=std) - first**2


# Worked examples


def test_square_at_one_has_gradient_two_and_variances_thirty_and_four():
    score = moments(lambda x: x**2 * (x - 1), mean=1.0, std=1.0)
    assert score == pytest.approx((2, 30), abs=1e-9)
    assert quadratic_score_variance(mean=1, std=1) == 30
    assert moments(lambda x: 2 * x, mean=1.0, std=1.0) == pytest.approx((2, 4), abs=1e-9)


def test_baselines_take_thirty_to_eighteen_and_to_fourteen():
    assert [quadratic_score_variance(mean=1, std=1, baseline=b) for b in (0, 2, 4)] == [30, 18, 14]
    assert min(quadratic_score_variance(mean=1, std=1, baseline=b) for b in range(-20, 21)) == 14


def test_samples_agree_with_the_worked_example():
    # The fourth moment of the score estimate is 44628, so 400,000 samples know its variance to about 1%.
    noise = normal(400_000, 1, seed=0)
    score = score_gradients(square, vector(1.0), std=1.0, noise=noise)
    pathwise = pathwise_gradients(square, vector(1.0), std=1.0, noise=noise)
    assert float(score.mean()) == pytest.approx(2, abs=0.05)
    assert float(score.var()) == pytest.approx(30, rel=0.08)
    assert float(pathwise.mean()) == pytest.approx(2, abs=0.02)
    assert float(pathwise.var()) == pytest.approx(4, rel=0.03)


def test_step_has_gradient_phi_of_one_and_reparameterised_gradient_zero():
    exact = math.exp(-0.5) / math.sqrt(2 * math.pi)
    assert exact == pytest.approx(0.24197072451914337, abs=1e-16)
    assert FUNCTIONS["1[x > 0]"][1](1.0, 1.0) == pytest.approx(exact, abs=1e-15)
    noise = normal(400_000, 1, seed=1)
    assert float(score_gradients(step, vector(1.0), std=1.0, noise=noise).mean()) == pytest.approx(
        exact, abs=0.006
    )
    assert pathwise_gradients(step, vector(1.0), std=1.0, noise=noise).abs().max() == 0


@pytest.mark.parametrize(
    ("k", "without", "best"), [(1, 30, 14), (2, 56, 20), (4, 30 + 66 + 36, 32), (16, 1260, 104)]
)
def test_variance_of_a_coordinate_grows_with_the_dimension(k, without, best):
    assert quadratic_score_variance(mean=1, std=1, dimension=k) == without
    assert quadratic_score_variance(mean=1, std=1, dimension=k, baseline=2 * k + 2) == best


def test_relaxed_gradient_of_a_fair_coin_is_one_sixth_instead_of_a_quarter():
    u = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    y = gumbel_softmax(vector(0, 0), torch.stack([u.logit(), 0 * u], dim=1), temperature=1.0)[:, 0]
    assert float((y * (1 - y)).mean()) == pytest.approx(1 / 6, abs=1e-6)
    assert float(categorical_gradient(vector(0, 0), vector(1, 0))[0]) == pytest.approx(1 / 4, abs=1e-15)


# Gaussian


@given(mean=MEAN, std=STD, baseline=BASELINE)
def test_the_quadratic_variance_is_the_one_of_quadrature(mean, std, baseline):
    first, variance = moments(lambda x: (x**2 - baseline) * (x - mean) / std**2, mean=mean, std=std)
    assert first == pytest.approx(2 * mean, rel=1e-8, abs=1e-8)
    exact = quadratic_score_variance(mean=mean, std=std, baseline=baseline)
    assert exact == pytest.approx(variance, rel=1e-7, abs=1e-7)


@given(mean=MEAN, std=STD)
def test_closed_form_without_baseline_and_with_the_best(mean, std):
    plain = mean**4 / std**2 + 14 * mean**2 + 15 * std**2
    assert quadratic_score_variance(mean=mean, std=std) == pytest.approx(plain, rel=1e-9)
    best = mean**2 + 3 * std**2
    lowest = quadratic_score_variance(mean=mean, std=std, baseline=best)
    assert lowest == pytest.approx(8 * mean**2 + 6 * std**2, rel=1e-7)
    for b in (best - 0.1, best + 0.1, mean**2 + std**2):
        assert quadratic_score_variance(mean=mean, std=std, baseline=b) >= lowest


@given(mean=MEAN, std=STD, dimension=st.integers(1, 3), baseline=BASELINE)
def test_the_variance_in_more_dimensions_is_the_one_of_tensor_quadrature(mean, std, dimension, baseline):
    points, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(6))
    noise = torch.cartesian_prod(*[points] * dimension).reshape(-1, dimension)
    mass = torch.cartesian_prod(*[weights / weights.sum()] * dimension).reshape(-1, dimension).prod(dim=1)
    center = torch.full((dimension,), mean, dtype=torch.float64)
    found = score_gradients(square, center, std=std, noise=noise, baseline=baseline)
    first = mass @ found
    torch.testing.assert_close(first, 2 * center, rtol=1e-8, atol=1e-8)
    exact = quadratic_score_variance(mean=mean, std=std, dimension=dimension, baseline=baseline)
    assert float((mass @ found**2 - first**2)[0]) == pytest.approx(exact, rel=1e-7, abs=1e-6)


@given(mean=MEAN, std=STD, frequency=st.floats(0.0, 3.0))
def test_cosine_variances_are_those_of_quadrature(mean, std, frequency):
    frequency = frequency / std  # the quadrature resolves a few waves within the Gaussian
    score, pathwise = cosine_variances(frequency=frequency, mean=mean, std=std)
    estimates = (
        lambda x: torch.cos(frequency * x) * (x - mean) / std**2,
        lambda x: -frequency * torch.sin(frequency * x),
    )
    for estimate, exact in zip(estimates, (score, pathwise), strict=True):
        assert moments(estimate, mean=mean, std=std)[1] == pytest.approx(exact, rel=1e-6, abs=1e-7 / std**2)
    assert score <= 1 / std**2 * (1 + 1e-12)


@given(mean=MEAN, std=STD, degree=st.integers(0, 6))
def test_both_estimators_have_the_same_mean_for_polynomials(mean, std, degree):
    score = gaussian_expectation(lambda x: x**degree * (x - mean) / std**2, mean=mean, std=std)
    slope = lambda x: degree * x ** max(degree - 1, 0)  # noqa: E731
    pathwise = gaussian_expectation(slope, mean=mean, std=std)
    assert score == pytest.approx(pathwise, rel=1e-7, abs=1e-7)


@given(seed=SEEDS, std=STD, k=st.integers(1, 4))
def test_a_sample_of_each_estimator_is_what_autograd_gives(seed, std, k):
    noise, center = normal(5, k, seed=seed), normal(k, seed=seed + 1)
    f = lambda x: torch.sin(x).sum(dim=1) + x.prod(dim=1)  # noqa: E731
    x = center + std * noise
    leaf = center.repeat(5, 1).requires_grad_()
    log_prob = torch.distributions.Normal(leaf, std).log_prob(x).sum()
    (scores,) = torch.autograd.grad(log_prob, leaf)
    expected = (f(x) - 0.5)[:, None] * scores
    found = score_gradients(f, center, std=std, noise=noise, baseline=0.5)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    by_path = torch.autograd.grad(f(leaf + std * noise).sum(), leaf)[0]
    torch.testing.assert_close(pathwise_gradients(f, center, std=std, noise=noise), by_path)


@given(degree=st.integers(0, 11), std=st.floats(0.0, 3.0))
def test_quadrature_knows_the_moments_of_a_gaussian(degree, std):
    exact = 0.0 if degree % 2 else math.prod(range(1, degree, 2)) * std**degree
    found = gaussian_expectation(lambda x: x**degree, mean=0.0, std=std, nodes=6)
    # An odd moment is a difference of terms of the size of the next even one.
    size = math.prod(range(1, degree + 2, 2)) * std**degree
    assert found == pytest.approx(exact, rel=1e-12, abs=1e-14 * size)


def test_estimates_follow_the_dtype_of_the_mean():
    noise, center = torch.randn(3, 2, generator=rng(0)), torch.zeros(2)
    assert score_gradients(square, center, std=1.0, noise=noise).dtype == torch.float32
    assert pathwise_gradients(square, center, std=1.0, noise=noise).dtype == torch.float32


# Baselines


@given(seed=SEEDS, n=st.integers(2, 8))
def test_leaving_one_out_is_the_mean_of_the_others(seed, n):
    values = normal(n, seed=seed)
    expected = torch.stack([torch.cat([values[:i], values[i + 1 :]]).mean() for i in range(n)])
    torch.testing.assert_close(leave_one_out(values), expected)


@given(seed=SEEDS, n=st.integers(2, 3))
def test_leaving_one_out_is_unbiased_and_the_mean_of_all_shrinks(seed, n):
    logits, f = normal(3, seed=seed), normal(3, seed=seed + 1)
    p, own, others = logits.softmax(0), torch.zeros(3).double(), torch.zeros(3).double()
    for outcome in torch.cartesian_prod(*[torch.arange(3)] * n):
        values = f[outcome]
        for total, baseline in ((own, float(values.mean())), (others, leave_one_out(values))):
            found = categorical_score_gradients(logits, values, drawn=outcome, baseline=baseline)
            total += p[outcome].prod() * found.mean(0)
    exact = categorical_gradient(logits, f)
    torch.testing.assert_close(others, exact, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(own, (1 - 1 / n) * exact, rtol=1e-9, atol=1e-12)


@given(seed=SEEDS, k=st.integers(1, 4))
def test_the_best_baseline_is_the_lowest_point_of_the_second_moment(seed, k):
    values, scores = normal(20, seed=seed), normal(20, k, seed=seed + 1)
    second_moment = lambda b: float(((values - b)[:, None] * scores).square().sum())  # noqa: E731
    best = best_baseline(values, scores)
    assert all(second_moment(best) <= second_moment(best + shift) for shift in (-0.1, -1e-3, 1e-3, 0.1))


# Categorical


@given(seed=SEEDS, n=st.integers(2, 6), baseline=BASELINE)
def test_the_categorical_gradient_is_autograds_and_the_mean_of_the_estimates(seed, n, baseline):
    logits, f = normal(n, seed=seed).requires_grad_(), normal(n, seed=seed + 1)
    (exact,) = torch.autograd.grad(logits.softmax(0) @ f, logits)
    found = categorical_gradient(logits.detach(), f)
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-12)
    estimates = categorical_score_gradients(logits.detach(), f, drawn=torch.arange(n), baseline=baseline)
    torch.testing.assert_close(logits.detach().softmax(0) @ estimates, exact, rtol=1e-8, atol=1e-10)


@given(seed=SEEDS, temperature=st.floats(0.05, 5.0), n=st.integers(2, 5))
def test_a_relaxed_sample_is_a_distribution_whose_largest_entry_is_the_sample(seed, temperature, n):
    logits, noise = normal(n, seed=seed), gumbel_noise(50, n, generator=rng(seed))
    y = gumbel_softmax(logits, noise, temperature=temperature)
    torch.testing.assert_close(y.sum(dim=1), torch.ones(50, dtype=torch.float64))
    assert (y >= 0).all()
    assert (y.argmax(dim=1) == (logits + noise).argmax(dim=1)).all()


def test_gumbel_noise_samples_the_softmax_and_is_finite():
    logits = vector(1.0, 0.0, -1.0)
    noise = gumbel_noise(200_000, 3, generator=rng(0))
    assert torch.isfinite(noise).all()
    shares = torch.bincount((logits + noise).argmax(dim=1), minlength=3) / 200_000
    assert float((shares - logits.softmax(0)).abs().max()) < 0.006
    assert gumbel_noise(3, generator=rng(0), dtype=torch.float32).dtype == torch.float32


# Errors


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan])
def test_a_spread_that_is_not_positive_is_refused(std):
    noise, center = torch.zeros(2, 1), torch.zeros(1)
    for call in (
        lambda: score_gradients(square, center, std=std, noise=noise),
        lambda: pathwise_gradients(square, center, std=std, noise=noise),
        lambda: quadratic_score_variance(mean=1, std=std),
        lambda: cosine_variances(frequency=1, mean=1, std=std),
    ):
        with pytest.raises(ValueError, match=r"^std must be above 0"):
            call()


def test_other_arguments_out_of_range_are_refused_by_name():
    with pytest.raises(ValueError, match="std must be 0 or more, got -1"):
        gaussian_expectation(torch.sin, mean=0.0, std=-1.0)
    for nodes in (0, 181):
        with pytest.raises(ValueError, match=f"nodes must lie in 1 to 180, got {nodes}"):
            gaussian_expectation(torch.sin, mean=0.0, std=1.0, nodes=nodes)
    with pytest.raises(ValueError, match="dimension must be 1 or more, got 0"):
        quadratic_score_variance(mean=1, std=1, dimension=0)
    with pytest.raises(ValueError, match="values must hold at least 2 samples, got 1"):
        leave_one_out(vector(1.0))
    with pytest.raises(ValueError, match="scores must not all be 0"):
        best_baseline(vector(1.0, 2.0), torch.zeros(2, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        gumbel_softmax(vector(0, 0), torch.zeros(1, 2, dtype=torch.float64), temperature=0.0)


# What the lesson averages


def test_the_pendulum_falls_alone_and_stands_when_pushed():
    noise, start = episode_noise(rng(0))
    fallen, scores = balance(vector(0, 0), noise, start)
    assert scores.shape == (60, 2, 64)
    assert float(fallen.sum(0).mean()) < 25
    assert (fallen[1:] <= fallen[:-1]).all()  # who fell stays down
    assert (scores[1:][(fallen[:-1] == 0)[:, None].expand(-1, 2, -1)] == 0).all()
    assert float(balance(vector(15, 8), noise, start)[0].sum(0).mean()) > 57


def test_the_scores_of_the_pendulum_are_derivatives_of_log_p():
    # One step: u = -gains . state + z, so grad log p(u) = -state z.
    start = vector(0.1, -0.05)
    gains = vector(3.0, 1.0).requires_grad_()
    noise = vector(0.7, -1.2)[None]
    state = torch.stack([start, torch.zeros(2).double()])
    push = -(gains.detach() @ state) + noise[0]
    log_p = torch.distributions.Normal(-(gains @ state), 1.0).log_prob(push)
    _, scores = balance(gains.detach(), noise, start)
    for i in range(2):
        (expected,) = torch.autograd.grad(log_p[i], gains, retain_graph=True)
        torch.testing.assert_close(scores[0, :, i], expected)
