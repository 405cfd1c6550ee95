"""Ridge from three sides: worked examples as fractions, then properties on random problems."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from course_lib.optimization import ridge as module
from course_lib.optimization.ridge import (
    augmented_system,
    conditional_normal,
    fit_noisy_rows,
    matching_penalty,
    mean_factor,
    mean_limit,
    mean_step_limit,
    moments,
    most_probable,
    noisy_copies,
    noisy_sgd,
    posterior,
    ridge,
    ridge_flops,
    second_moment_factor,
    second_moment_limit,
    second_moment_step_limit,
    shrinkage,
    stationary_moments,
    three_point_noise,
    typical_factor,
)

SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 6)
PENALTIES = st.floats(0.01, 100.0)
INPUTS = st.floats(-3.0, 3.0)
NOISES = st.floats(0.05, 2.0)


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def problem(seed: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = rng(seed)
    return normal(rows, columns, generator=generator), normal(rows, generator=generator)


def relative_gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / (1 + b.norm()))


# Worked examples


@pytest.mark.parametrize("system", ["auto", "primal", "dual"])
def test_one_feature_two_samples(system):
    matrix, target = vector(1, 2)[:, None], vector(1, 3)
    assert float(ridge(matrix, target, 0.5, system=system)[0]) == pytest.approx(Fraction(14, 11), abs=1e-14)
    # The primal system is the number 11/2; a likelihood of variance 1 amounts to lambda = 1.
    assert float(matrix.T @ matrix) + 0.5 == 11 / 2
    assert float(ridge(matrix, target, 1.0, system=system)[0]) == pytest.approx(Fraction(7, 6), abs=1e-14)


def test_the_posterior_of_one_feature_and_two_samples():
    mean, covariance = posterior(vector(1, 2)[:, None], vector(1, 3), noise_variance=0.5)
    assert float(mean[0]) == pytest.approx(Fraction(14, 11), abs=1e-14)
    assert float(covariance[0, 0]) == pytest.approx(Fraction(1, 11), abs=1e-14)


def test_expected_loss_of_a_matrix_by_hand():
    matrix, weights = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64), vector(1, -1)
    target = vector(1, 1)
    losses = (noisy_copies(matrix, noise=0.5) @ weights - target).square().sum(-1)
    assert float((matrix @ weights - target).square().sum()) == 8
    assert float(losses.mean()) == pytest.approx(9, abs=1e-13)


def test_limits_for_input_and_noise_one():
    assert mean_limit(1.0, noise=1.0) == 1
    assert second_moment_limit(1.0, noise=1.0) == pytest.approx(Fraction(2, 5), abs=1e-15)
    assert second_moment_factor(1.0, noise=1.0, step_size=0.45) == pytest.approx(1.225, abs=1e-14)
    assert second_moment_factor(1.0, noise=1.0, step_size=0.4) == pytest.approx(1, abs=1e-14)
    assert mean_factor(1.0, noise=1.0, step_size=0.9) == pytest.approx(-0.8, abs=1e-14)


def test_fourth_moment_of_a_shifted_normal_is_ten():
    noise, chances = three_point_noise(1, noise=1.0)
    assert float(chances @ (1 + noise[0]) ** 4) == pytest.approx(10, abs=1e-12)


def test_stationary_moments_for_target_two():
    mean, variance = stationary_moments(1.0, 2.0, noise=1.0, step_size=0.1)
    assert mean == 1
    assert variance == pytest.approx(Fraction(1, 15), abs=1e-15)


# Ridge


@given(SEEDS, SIZES, SIZES, PENALTIES)
def test_both_systems_solve_the_penalised_problem(seed, rows, columns, penalty):
    matrix, target = problem(seed, rows, columns)
    primal, dual, auto = (ridge(matrix, target, penalty, system=s) for s in ("primal", "dual", "auto"))
    assert relative_gap(primal, dual) < 1e-10
    assert torch.equal(auto, primal if columns <= rows else dual)
    weights = auto.clone().requires_grad_()
    loss = (matrix @ weights - target).square().sum() + penalty * weights.square().sum()
    gradient = torch.autograd.grad(loss, weights)[0]
    assert float(gradient.norm()) < 1e-9 * (1 + float((matrix.T @ target).norm()))


@given(SEEDS, SIZES, SIZES, PENALTIES)
def test_the_augmented_system_and_the_singular_values_give_ridge(seed, rows, columns, penalty):
    matrix, target = problem(seed, rows, columns)
    expected = ridge(matrix, target, penalty)
    longer, longer_target = augmented_system(matrix, target, penalty)
    assert longer.shape == (rows + columns, columns)
    stacked = torch.linalg.lstsq(longer, longer_target[:, None]).solution[:, 0]
    assert relative_gap(stacked, expected) < 1e-9
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    # Divided by s after the shrinkage, s^2 / (s^2 + lambda) becomes s / (s^2 + lambda).
    by_values = right.T @ (shrinkage(values, penalty) / values * (left.T @ target))
    assert relative_gap(by_values, expected) < 1e-9


@given(SEEDS, SIZES, SIZES, st.floats(0.05, 1.0))
def test_least_squares_on_the_noisy_copies_is_ridge(seed, rows, columns, noise):
    matrix, target = problem(seed, rows, columns)
    copies = noisy_copies(matrix, noise=noise)
    assert copies.shape == (2 * columns, rows, columns)
    solution = torch.linalg.lstsq(copies.reshape(-1, columns), target.repeat(2 * columns)[:, None]).solution
    assert relative_gap(solution[:, 0], ridge(matrix, target, rows * noise**2)) < 1e-8


@given(SEEDS, SIZES, SIZES, st.floats(0.0, 2.0))
def test_the_noise_of_the_copies_has_mean_zero_and_covariance_sigma_squared(seed, rows, columns, noise):
    matrix, _ = problem(seed, rows, columns)
    added = noisy_copies(matrix, noise=noise) - matrix
    assert float(added.mean(0).abs().max()) < 1e-14
    for row in range(rows):
        covariance = added[:, row].T @ added[:, row] / len(added)
        expected = noise**2 * torch.eye(columns, dtype=torch.float64)
        torch.testing.assert_close(covariance, expected, rtol=1e-10, atol=1e-12)


def test_the_dual_keeps_its_accuracy_where_the_primal_loses_it():
    matrix, target = problem(0, 10, 200)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    exact = right.T @ (values / (values.square() + 1e-8) * (left.T @ target))
    assert relative_gap(ridge(matrix, target, 1e-8), exact) < 1e-12
    assert relative_gap(ridge(matrix, target, 1e-8, system="primal"), exact) > 1e-10


@pytest.mark.parametrize(("rows", "columns"), [(3, 7), (7, 3), (4, 4)])
def test_operations_of_the_smaller_system(rows, columns):
    primal, dual, auto = (ridge_flops(rows, columns, system=s) for s in ("primal", "dual", "auto"))
    assert primal == 2 * rows * columns**2 + columns**3 / 3
    assert dual == 2 * rows**2 * columns + rows**3 / 3
    assert auto == min(primal, dual)


# Noisy gradient descent


@pytest.mark.parametrize("order", range(6))
@given(noise=st.floats(0.0, 2.0))
def test_the_coin_has_the_moments_of_a_normal_variable(order, noise):
    drawn, chances = three_point_noise(1, noise=noise)
    expected = (1, 0, noise**2, 0, 3 * noise**4, 0)[order]
    assert float(chances @ drawn[0] ** order) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_coins_are_independent_and_their_chances_add_up(steps):
    drawn, chances = three_point_noise(steps, noise=0.7)
    assert drawn.shape == (steps, 3**steps)
    assert float(chances.sum()) == pytest.approx(1, abs=1e-14)
    covariance = (drawn * chances) @ drawn.T
    torch.testing.assert_close(covariance, 0.49 * torch.eye(steps, dtype=torch.float64))


@given(SEEDS, INPUTS, INPUTS, INPUTS, st.floats(0.001, 1.0))
def test_a_noisy_step_goes_against_the_gradient_of_the_noisy_loss(seed, x, y, start, step_size):
    noise = normal(1, 4, generator=rng(seed))
    weights = torch.full((4,), start, dtype=torch.float64, requires_grad=True)
    loss = 0.5 * ((x + noise[0]) * weights - y).square().sum()
    expected = weights - step_size * torch.autograd.grad(loss, weights)[0]
    path = noisy_sgd(x, y, start, noise, step_size=step_size)
    torch.testing.assert_close(path[1], expected.detach(), rtol=1e-10, atol=1e-10)


@given(INPUTS, INPUTS, INPUTS, NOISES, st.floats(0.0, 1.5))
def test_moments_are_averages_over_all_paths_of_the_iteration_as_run(x, y, start, noise, relative_step):
    step_size = relative_step / (x**2 + noise**2)
    drawn, chances = three_point_noise(4, noise=noise)
    path = noisy_sgd(x, y, start, drawn, step_size=step_size)
    mean, square = moments(x, y, start, noise=noise, step_size=step_size, steps=4)
    torch.testing.assert_close(path @ chances, mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(path.square() @ chances, square, rtol=1e-8, atol=1e-8)


@given(INPUTS, st.floats(0.0, 2.0))
def test_limits_are_where_the_factors_pass_one(x, noise):
    assume(x**2 + noise**2 > 1e-4)
    first, second = mean_limit(x, noise=noise), second_moment_limit(x, noise=noise)
    assert second <= first * (1 + 1e-12)
    for limit, factor in (
        (first, lambda s: abs(mean_factor(x, noise=noise, step_size=s))),
        (second, lambda s: second_moment_factor(x, noise=noise, step_size=s)),
    ):
        assert factor(0.99 * limit) < 1 < factor(1.01 * limit)
        assert factor(-0.01 * limit) > 1


@given(INPUTS, NOISES)
def test_the_limit_one_over_the_power_is_safe_exactly_for_small_noise(x, noise):
    printed, ratio = 1 / (x**2 + noise**2), x**2 / noise**2
    assume(abs(ratio - (1 + math.sqrt(2))) > 1e-6)
    assert (second_moment_limit(x, noise=noise) > printed) == (ratio > 1 + math.sqrt(2))


@given(INPUTS, INPUTS, st.floats(0.0, 2.0), st.floats(0.05, 0.9))
def test_stationary_moments_are_the_limits_of_the_recursion(x, y, noise, relative_step):
    assume(x**2 + noise**2 > 1e-2)
    step_size = relative_step * second_moment_limit(x, noise=noise)
    mean, variance = stationary_moments(x, y, noise=noise, step_size=step_size)
    means, squares = moments(x, y, 1.0, noise=noise, step_size=step_size, steps=3000)
    assert float(means[-1]) == pytest.approx(mean, rel=1e-8, abs=1e-8)
    assert float(squares[-1] - means[-1] ** 2) == pytest.approx(variance, rel=1e-6, abs=1e-6)
    # One sample is a data set with m = 1: the mean is the ridge solution with lambda = sigma^2.
    if noise > 0.05:
        by_ridge = ridge(vector(x)[:, None], vector(y), noise**2)
        assert mean == pytest.approx(float(by_ridge[0]), rel=1e-9, abs=1e-9)


@given(INPUTS, NOISES, st.floats(0.01, 3.0))
def test_the_typical_factor_is_the_mean_logarithm(x, noise, step_size):
    # A midpoint sum over the density; its error at the two logarithmic poles is below its spacing, 0.0002.
    z = (torch.arange(-50_000, 50_000, dtype=torch.float64) + 0.5) * 2e-4
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * 2e-4
    summed = float(density @ (1 - step_size * (x + noise * z) ** 2).abs().log())
    found = float(typical_factor(x, noise=noise, step_sizes=vector(step_size)))
    assert math.log(found) == pytest.approx(summed, abs=2e-3)
    # Jensen: E log|a| <= 1/2 log E a^2.
    assert found**2 <= second_moment_factor(x, noise=noise, step_size=step_size) * (1 + 1e-9)


def test_the_typical_factor_of_a_centred_input_in_closed_form():
    # For x = 0 and eta -> infinity, log|a| -> log eta + 2 log|N|, with E log|Z| = -(gamma + log 2) / 2.
    euler = 0.5772156649015329
    found = float(typical_factor(0.0, noise=1.0, step_sizes=vector(1e16)))
    assert math.log(found) - math.log(1e16) == pytest.approx(-(euler + math.log(2)), abs=1e-7)


def test_the_typical_factor_without_noise_is_the_factor():
    steps = vector(0.1, 0.5, 2.0)
    torch.testing.assert_close(typical_factor(1.0, noise=0.0, step_sizes=steps), (1 - steps).abs())
    small = typical_factor(1.0, noise=1e-4, step_sizes=steps)
    torch.testing.assert_close(small, (1 - steps).abs(), rtol=1e-6, atol=1e-6)


# Several columns


def spectral_radius(matrix: torch.Tensor, noise: float, step_size: float, order: int) -> float:
    """Spectral radius of E A (order 1) or of E A kron A (order 2), summed over rows and coins."""
    rows, columns = matrix.shape
    drawn, chances = three_point_noise(columns, noise=noise)
    total = torch.zeros(columns**order, columns**order, dtype=torch.float64)
    for row in matrix:
        for added, chance in zip(drawn.T, chances, strict=True):
            seen = row + added
            factor = torch.eye(columns, dtype=torch.float64) - step_size * torch.outer(seen, seen)
            total += chance / rows * (factor if order == 1 else torch.kron(factor, factor))
    return float(torch.linalg.eigvals(total).abs().max())


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 2), (2, 3), (1, 2)])
@pytest.mark.parametrize("noise", [0.2, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_step_limits_are_where_the_spectral_radii_pass_one(rows, columns, noise, seed):
    matrix, _ = problem(seed, rows, columns)
    limits = mean_step_limit(matrix, noise=noise), second_moment_step_limit(matrix, noise=noise)
    assert limits[1] < limits[0]
    for order, limit in enumerate(limits, start=1):
        assert spectral_radius(matrix, noise, 0.99 * limit, order) < 1
        assert spectral_radius(matrix, noise, 1.01 * limit, order) > 1


@given(INPUTS, NOISES)
def test_one_row_and_one_column_are_the_scalar_case(x, noise):
    matrix = torch.tensor([[x]], dtype=torch.float64)
    assert mean_step_limit(matrix, noise=noise) == pytest.approx(mean_limit(x, noise=noise), rel=1e-10)
    found = second_moment_step_limit(matrix, noise=noise)
    assert found == pytest.approx(second_moment_limit(x, noise=noise), rel=1e-10)


# Conditional mean


@given(SEEDS, st.integers(1, 4), st.integers(1, 4))
def test_the_conditional_normal_has_the_joint_density_divided_by_the_marginal(seed, d, m):
    generator = rng(seed)
    root = normal(d + m, d + m, generator=generator)
    covariance = root @ root.T + torch.eye(d + m, dtype=torch.float64)
    mean = normal(d + m, generator=generator)
    y, w = normal(m, generator=generator), normal(d, generator=generator)
    conditional = conditional_normal(
        mean[:d], mean[d:], covariance[:d, :d], covariance[:d, d:], covariance[d:, d:], y
    )

    def log_density(at, centre, spread):
        return torch.distributions.MultivariateNormal(centre, spread).log_prob(at)

    joint = log_density(torch.cat([w, y]), mean, covariance)
    marginal = log_density(y, mean[d:], covariance[d:, d:])
    spread = (conditional[1] + conditional[1].T) / 2
    assert float(log_density(w, conditional[0], spread)) == pytest.approx(
        float(joint - marginal), rel=1e-7, abs=1e-7
    )


@given(SEEDS, SIZES, SIZES, st.floats(0.1, 5.0), st.floats(0.1, 5.0))
def test_the_posterior_is_ridge_with_the_ratio_of_the_variances(seed, rows, columns, noise, prior):
    matrix, target = problem(seed, rows, columns)
    mean, covariance = posterior(matrix, target, noise_variance=noise, prior_variance=prior)
    assert relative_gap(mean, ridge(matrix, target, noise / prior)) < 1e-9
    eye = torch.eye(columns, dtype=torch.float64)
    expected = noise * torch.linalg.inv(matrix.T @ matrix + noise / prior * eye)
    torch.testing.assert_close(covariance, expected, rtol=1e-8, atol=1e-8)


@given(SEEDS, SIZES, SIZES, st.floats(0.1, 5.0))
def test_the_posterior_density_is_largest_at_ridge(seed, rows, columns, penalty):
    matrix, target = problem(seed, rows, columns)
    weights = ridge(matrix, target, penalty).requires_grad_()
    prior = torch.distributions.Normal(torch.zeros(columns, dtype=torch.float64), 1.0)
    likelihood = torch.distributions.Normal(matrix @ weights, math.sqrt(penalty))
    log_density = prior.log_prob(weights).sum() + likelihood.log_prob(target).sum()
    gradient = torch.autograd.grad(log_density, weights)[0]
    assert float(gradient.norm()) < 1e-9 * (1 + float((matrix.T @ target).norm()) / penalty)


# Shapes, dtypes and errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_input(dtype):
    matrix, target = torch.eye(2, dtype=dtype), torch.ones(2, dtype=dtype)
    for system in ("primal", "dual"):
        assert ridge(matrix, target, 0.5, system=system).dtype == dtype
    assert augmented_system(matrix, target, 0.5)[0].dtype == dtype
    assert noisy_copies(matrix, noise=0.1).dtype == dtype
    assert three_point_noise(2, noise=0.1, dtype=dtype)[0].dtype == dtype
    assert typical_factor(1.0, noise=0.5, step_sizes=target).dtype == dtype
    assert posterior(matrix, target, noise_variance=0.5)[1].dtype == dtype


@pytest.mark.parametrize("penalty", [0.0, -1.0, math.nan, math.inf])
def test_a_penalty_that_is_not_above_zero_is_refused(penalty):
    matrix, target = torch.eye(2, dtype=torch.float64), vector(1, 1)
    for call in (
        lambda: ridge(matrix, target, penalty),
        lambda: shrinkage(target, penalty),
        lambda: augmented_system(matrix, target, penalty),
    ):
        with pytest.raises(ValueError, match="penalty must be a finite number above 0"):
            call()


def test_an_unknown_system_is_refused():
    # Below the shape checks, which know the three names from the annotation.
    with pytest.raises(ValueError, match="system must be 'auto', 'primal' or 'dual', got 'both'"):
        module._smaller(2, 2, "both")


def test_a_penalty_below_rounding_is_named():
    matrix, target = torch.ones(3, 3, dtype=torch.float32) * 100, torch.ones(3)
    with pytest.raises(RuntimeError, match=r"penalty 1e-12 is too small for torch.float32"):
        ridge(matrix, target, 1e-12)


@pytest.mark.parametrize("noise", [-0.1, math.nan, math.inf])
def test_noise_that_is_no_standard_deviation_is_refused(noise):
    matrix = torch.eye(2, dtype=torch.float64)
    for call in (
        lambda: noisy_copies(matrix, noise=noise),
        lambda: three_point_noise(2, noise=noise),
        lambda: mean_limit(1.0, noise=noise),
        lambda: second_moment_limit(1.0, noise=noise),
        lambda: stationary_moments(1.0, 1.0, noise=noise, step_size=0.1),
        lambda: moments(1.0, 1.0, 0.0, noise=noise, step_size=0.1, steps=2),
        lambda: typical_factor(1.0, noise=noise, step_sizes=vector(0.1)),
        lambda: mean_step_limit(matrix, noise=noise),
        lambda: second_moment_step_limit(matrix, noise=noise),
    ):
        with pytest.raises(ValueError, match="noise must be a finite standard deviation"):
            call()


def test_no_input_and_no_noise_have_no_limit():
    for limit in (mean_limit, second_moment_limit):
        with pytest.raises(ValueError, match="x and noise must not both be 0"):
            limit(0.0, noise=0.0)
    with pytest.raises(ValueError, match="matrix and noise must not both be 0"):
        mean_step_limit(torch.zeros(2, 2, dtype=torch.float64), noise=0.0)
    with pytest.raises(ValueError, match="above 0, got 0"):
        second_moment_step_limit(torch.eye(2, dtype=torch.float64), noise=0.0)


@pytest.mark.parametrize("step_size", [0.0, -0.1, 0.4000001, math.nan])
def test_steps_without_a_stationary_second_moment_are_refused(step_size):
    with pytest.raises(ValueError, match=r"step_size must lie in \(0, 0.4\)"):
        stationary_moments(1.0, 2.0, noise=1.0, step_size=step_size)


@pytest.mark.parametrize("steps", [0, 13])
def test_too_many_coins_are_refused(steps):
    with pytest.raises(ValueError, match=rf"steps must lie in \[1, 12\], got {steps}"):
        three_point_noise(steps, noise=1.0)


def test_negative_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be 0 or more, got -1"):
        moments(1.0, 1.0, 0.0, noise=1.0, step_size=0.1, steps=-1)


def test_a_step_size_of_zero_has_no_typical_factor():
    with pytest.raises(ValueError, match="step_sizes must be above 0"):
        typical_factor(1.0, noise=1.0, step_sizes=vector(0.1, 0.0))


@pytest.mark.parametrize("name", ["noise_variance", "prior_variance"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_variance_that_is_not_above_zero_is_refused(name, value):
    settings = {"noise_variance": 1.0, "prior_variance": 1.0, name: value}
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0"):
        posterior(torch.eye(2, dtype=torch.float64), vector(1, 1), **settings)


def test_a_singular_covariance_of_y_is_refused():
    zero, one = vector(0), torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(torch.linalg.LinAlgError):
        conditional_normal(zero, zero, one, one, 0 * one, zero)


def test_the_most_probable_weights_by_hand():
    """One feature (1, 2), targets (1, 3), v = 1/2, p = 1: 7 / (5 + 1/2) = 14/11; with p = 4 it is 7 / (5 + 1/8)."""
    column, target = torch.tensor([[1.0], [2.0]], dtype=torch.float64), vector(1.0, 3.0)
    for prior_variance, expected in ((1.0, Fraction(14, 11)), (4.0, Fraction(56, 41))):
        found = most_probable(column, target, noise_variance=0.5, prior_variance=prior_variance)
        assert float(found) == pytest.approx(float(expected), abs=1e-12)


def test_the_most_probable_weights_have_the_largest_density_nearby():
    generator = torch.Generator().manual_seed(0)
    matrix, target = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((4, 3), (4,))
    )
    found = most_probable(matrix, target, noise_variance=0.3, prior_variance=2.0)
    others = found + 1e-3 * torch.randn(200, 3, generator=generator, dtype=torch.float64)
    log_density = lambda w: -(w @ matrix.T - target).square().sum(-1) / 0.6 - w.square().sum(-1) / 4  # noqa: E731
    assert (log_density(others) < log_density(found)).all()


@given(seed=SEEDS, penalty=st.floats(0.01, 30.0))
def test_the_matching_penalty_finds_back_what_ridge_was_given(seed, penalty):
    generator = torch.Generator().manual_seed(seed)
    matrix, target = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((6, 3), (6,))
    )
    weights = ridge(matrix, target, penalty)
    assume(float(weights.norm()) > 1e-2)
    assert matching_penalty(matrix, target, weights) == pytest.approx(penalty, rel=1e-4)


def test_the_matching_penalty_stops_at_its_ends():
    matrix, target = torch.eye(2, dtype=torch.float64), vector(1.0, 1.0)
    assert matching_penalty(matrix, target, 2 * target) == pytest.approx(1e-3)
    assert matching_penalty(matrix, target, 0 * target, high=5.0) == pytest.approx(5.0)
    with pytest.raises(ValueError, match="0 < low < high"):
        matching_penalty(matrix, target, target, low=2.0, high=1.0)


@pytest.mark.parametrize("rows", [5, 20])
def test_least_squares_on_many_noisy_rows_is_near_ridge_with_m_sigma_squared(rows):
    generator = torch.Generator().manual_seed(1)
    matrix, target = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((rows, 3), (rows,))
    )
    found = fit_noisy_rows(matrix, target, noise=0.5, copies=20_000, generator=generator)
    assert matching_penalty(matrix, target, found) == pytest.approx(rows * 0.25, rel=0.1)
    plain = fit_noisy_rows(matrix, target, noise=0.0, copies=2, generator=generator)
    torch.testing.assert_close(plain, torch.linalg.pinv(matrix) @ target)
    with pytest.raises(ValueError, match="copies must be 1 or more"):
        fit_noisy_rows(matrix, target, noise=0.5, copies=0, generator=generator)
