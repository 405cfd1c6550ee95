"""Gradient descent on least squares: worked examples by hand, then properties on random problems."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from course_lib.optimization.gradient_descent import (
    best_heavy_ball,
    best_step,
    closed_form,
    contraction_factors,
    gradient_descent,
    heavy_ball,
    heavy_ball_rate,
    heavy_ball_steps_to_share,
    heavy_ball_steps_to_shares,
    least_squares_loss,
    sharpness,
    stability_limit,
    steps_to_accuracy,
    svd_coordinates,
    worst_rate,
)

SIGMA = st.floats(0.1, 10.0)
SPECTRA = st.lists(SIGMA, min_size=1, max_size=6)
SEEDS = st.integers(0, 2**31)


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


# Worked examples


def test_two_directions_best_step_rate_and_limit():
    sigma = vector(3, 0.5)
    assert best_step(sigma) == pytest.approx(4 / 37, abs=1e-15)
    assert worst_rate(sigma, step_size=4 / 37) == pytest.approx(35 / 37, abs=1e-15)
    assert stability_limit(sigma) == pytest.approx(1 / 9, abs=1e-16)


def test_steps_that_the_worst_rate_needs_to_a_hundredth():
    # A scalar problem whose factor is 35/37 needs t > ln(1/100) / ln(35/37).
    bound = math.log(0.01) / math.log(35 / 37)
    assert bound == pytest.approx(82.87173872679007, abs=1e-9)
    assert steps_to_accuracy(0.5, step_size=4 / 37, accuracy=0.01) == 83


def test_one_step_of_the_diagonal_problem():
    path = gradient_descent(
        torch.diag(vector(3, 0.5)), vector(3, 1), vector(0.2, -0.4), step_size=0.03, steps=1
    )
    torch.testing.assert_close(path[1], vector(79 / 125, -91 / 250), rtol=0, atol=1e-15)
    # The printed map lost the square of sigma; the two differ visibly.
    assert (path[1] - vector(88 / 125, -179 / 500)).abs().max() > 0.005


def test_fifth_iterate_of_the_scalar_problem():
    by_formula = closed_form(vector(2), vector(3), vector(0), step_size=0.1, steps=5)[5, 0]
    by_steps = gradient_descent(vector(2)[:, None], vector(3), vector(0), step_size=0.1, steps=5)[5, 0]
    assert float(by_formula) == pytest.approx(4686 / 3125, abs=1e-14)
    assert float(by_steps) == pytest.approx(4686 / 3125, abs=1e-14)


@pytest.mark.parametrize(
    ("step_size", "bound", "first"), [(0.8, 9.015151103887694, 10), (0.1, 20.637702317032343, 21)]
)
def test_steps_to_a_hundredth_on_both_sides_of_the_overshoot(step_size, bound, first):
    assert math.log(0.01) / math.log(abs(1 - 2 * step_size)) == pytest.approx(bound, abs=1e-9)
    assert steps_to_accuracy(1.0, step_size=step_size, accuracy=0.01) == first


def test_losses_of_a_matrix_by_hand():
    matrix, target = torch.tensor([[1.0, 2.0], [0.0, -1.0], [2.0, 0.0]], dtype=torch.float64), vector(1, 1, 0)
    weights = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    # Residuals (1, 1, 0) and (-2, 2, -2).
    assert least_squares_loss(matrix, target, weights).tolist() == [2.0, 12.0]
    assert least_squares_loss(matrix, target, weights, half=True).tolist() == [1.0, 6.0]
    assert float(least_squares_loss(matrix, target, weights[1])) == 12.0


# Properties


@given(SEEDS, st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_a_step_goes_against_the_gradient(seed, rows, columns, half):
    generator = rng(seed)
    matrix, target = normal(rows, columns, generator=generator), normal(rows, generator=generator)
    weights = normal(columns, generator=generator).requires_grad_()
    loss = least_squares_loss(matrix, target, weights, half=half)
    gradient = torch.autograd.grad(loss, weights)[0]
    path = gradient_descent(matrix, target, weights.detach(), step_size=0.07, steps=1, half=half)
    torch.testing.assert_close(path[1], weights.detach() - 0.07 * gradient, rtol=1e-10, atol=1e-10)


@given(SPECTRA, st.booleans())
def test_just_below_the_limit_converges_and_just_above_diverges(values, half):
    sigma = vector(*values)
    limit = stability_limit(sigma, half=half)
    error = torch.ones_like(sigma)
    below, above = (
        closed_form(sigma, 0 * sigma, error, step_size=scale * limit, steps=2000, half=half)
        for scale in (0.99, 1.01)
    )
    steepest = int(sigma.argmax())
    # 0.98^2000 < 1e-17 and 1.02^2000 > 1e17 along the steepest direction; no other one grows below the limit.
    assert abs(below[-1, steepest]) < 1e-15
    assert (below[-1].abs() < error).all()
    assert abs(above[-1, steepest]) > 1e15


@given(SPECTRA)
def test_the_limit_holds_for_the_iteration_as_run(values):
    sigma = vector(*values)
    matrix, still = torch.diag(sigma), 0 * sigma
    below, above = (
        gradient_descent(matrix, still, still + 1, step_size=scale * stability_limit(sigma), steps=150)
        for scale in (0.9, 1.1)
    )
    assert below[-1].norm() < below[0].norm()
    assert above[-1].norm() > 1e6 * above[0].norm()


@given(SEEDS, st.integers(1, 5), st.integers(0, 12), st.floats(0.0, 1.2), st.booleans())
def test_closed_form_equals_the_iteration(seed, r, steps, relative_step, half):
    generator = rng(seed)
    sigma = torch.rand(r, generator=generator, dtype=torch.float64) * 3
    sigma[torch.rand(r, generator=generator) < 0.25] = 0.0
    target, start = normal(r, generator=generator) * sigma, normal(r, generator=generator)
    step_size = relative_step / max(float(sigma.max()) ** 2, 1e-3)
    run = gradient_descent(torch.diag(sigma), target, start, step_size=step_size, steps=steps, half=half)
    formula = closed_form(sigma, target, start, step_size=step_size, steps=steps, half=half)
    torch.testing.assert_close(formula, run, rtol=1e-8, atol=1e-8)


def test_a_direction_without_curvature_stays_where_it_started():
    # The target has a part along the dead direction, which no weight can reach.
    sigma, target, start = vector(2, 0), vector(1, 5), vector(-1, 0.75)
    for path in (
        closed_form(sigma, target, start, step_size=0.1, steps=4),
        gradient_descent(torch.diag(sigma), target, start, step_size=0.1, steps=4),
    ):
        assert path.shape == (5, 2)
        assert path[:, 1].tolist() == [0.75] * 5
        assert path[4, 0] != -1


@given(SPECTRA, st.floats(1e-3, 2.0), st.booleans())
def test_best_step_beats_any_other(values, relative_step, half):
    sigma = vector(*values)
    best = best_step(sigma, half=half)
    rate = worst_rate(sigma, step_size=best, half=half)
    other = worst_rate(sigma, step_size=relative_step * stability_limit(sigma, half=half), half=half)
    assert rate <= other + 1e-12
    kappa = (max(values) / min(values)) ** 2
    assert rate == pytest.approx((kappa - 1) / (kappa + 1), abs=1e-12)


def test_zeros_do_not_count_for_the_best_step_and_the_rate():
    assert best_step(vector(3, 0.5, 0)) == best_step(vector(3, 0.5))
    assert worst_rate(vector(3, 0.5, 0), step_size=0.05) == worst_rate(vector(3, 0.5), step_size=0.05)


@given(SPECTRA)
def test_half_doubles_the_bounds_and_halves_the_gain(values):
    sigma = vector(*values)
    assert stability_limit(sigma, half=True) == pytest.approx(2 * stability_limit(sigma), rel=1e-14)
    assert best_step(sigma, half=True) == pytest.approx(2 * best_step(sigma), rel=1e-14)
    torch.testing.assert_close(
        contraction_factors(sigma, step_size=0.2, half=True), contraction_factors(sigma, step_size=0.1)
    )


@pytest.mark.parametrize(("rows", "columns", "rank"), [(6, 3, 3), (3, 6, 3), (4, 4, 4), (5, 4, 2), (3, 5, 1)])
@given(seed=SEEDS)
def test_svd_coordinates_keep_loss_and_path(rows, columns, rank, seed):
    generator = rng(seed)
    matrix = normal(rows, rank, generator=generator) @ normal(rank, columns, generator=generator)
    target, start = normal(rows, generator=generator), normal(columns, generator=generator)
    sigma, reduced, right, unreachable = svd_coordinates(matrix, target)
    assert sigma.shape == reduced.shape == (columns,)
    assert (sigma[rank:] < 1e-10).all()
    torch.testing.assert_close(right.T @ right, torch.eye(columns, dtype=torch.float64))
    step_size = 0.9 / float(sigma.max()) ** 2
    path = gradient_descent(matrix, target, start, step_size=step_size, steps=15)
    rotated = gradient_descent(torch.diag(sigma), reduced, right.T @ start, step_size=step_size, steps=15)
    torch.testing.assert_close(rotated @ right.T, path, rtol=1e-8, atol=1e-8)
    loss = least_squares_loss(matrix, target, path)
    torch.testing.assert_close(
        least_squares_loss(torch.diag(sigma), reduced, rotated) + unreachable, loss, rtol=1e-8, atol=1e-8
    )
    torch.testing.assert_close((rotated - rotated[0])[:, rank:], torch.zeros(16, columns - rank).double())


def first_by_counting(factor: float, accuracy: float) -> int:
    t = 1
    while factor**t >= accuracy:
        t += 1
    return t


@given(st.floats(0.2, 4.0), st.floats(0.01, 0.99), st.floats(1e-12, 0.999))
def test_steps_to_accuracy_counts_the_first_such_step(sigma, relative_step, accuracy):
    step_size = relative_step / sigma**2
    factor = abs(1 - 2 * step_size * sigma**2)
    assume(factor < 0.999)
    found = steps_to_accuracy(sigma, step_size=step_size, accuracy=accuracy)
    assert found == first_by_counting(factor, accuracy)


@pytest.mark.parametrize("exponent", [4, 10, 20, 26, 40, 46])
@pytest.mark.parametrize("accuracy", [0.9, 0.5, 1e-3, 1e-300])
def test_steps_to_accuracy_with_a_factor_very_near_one(exponent, accuracy):
    # 2 eta sigma^2 = 2^-exponent is exact, so the factor is exactly 1 - 2^-exponent.
    step_size, factor = 2.0 ** (-exponent - 1), 1 - 2.0**-exponent
    found = steps_to_accuracy(1.0, step_size=step_size, accuracy=accuracy)
    assert factor**found < accuracy <= factor ** (found - 1)


@pytest.mark.parametrize("exponent", [1, 2, 3, 10, 60, 1000])
def test_steps_to_accuracy_where_the_bound_is_a_whole_number(exponent):
    # The factor is 1/2 and the accuracy a power of it: after `exponent` steps the error equals epsilon.
    assert steps_to_accuracy(1.0, step_size=0.25, accuracy=0.5**exponent) == exponent + 1
    assert steps_to_accuracy(1.0, step_size=0.75, accuracy=0.5**exponent) == exponent + 1


@pytest.mark.parametrize("accuracy", [0.999, 0.5, 1e-300])
def test_a_factor_of_exactly_zero_needs_one_step(accuracy):
    assert steps_to_accuracy(2.0, step_size=0.125, accuracy=accuracy) == 1


# Sharpness


@given(SEEDS, st.integers(1, 8), st.integers(1, 8))
def test_sharpness_of_a_quadratic_is_twice_the_largest_squared_singular_value(seed, rows, columns):
    generator = rng(seed)
    matrix, target = normal(rows, columns, generator=generator), normal(rows, generator=generator)
    found = sharpness(
        lambda w: least_squares_loss(matrix, target, w),
        normal(columns, generator=generator),
        generator=generator,
        tolerance=1e-12,
    )
    expected = 2 * float(torch.linalg.svdvals(matrix)[0]) ** 2
    assert found == pytest.approx(expected, rel=1e-9)


def small_loss(weights: torch.Tensor) -> torch.Tensor:
    """1/2 mean squared error of a tanh network, 1 to 4 to 1, on five points."""
    x = torch.linspace(-1, 1, 5, dtype=weights.dtype)[:, None]
    hidden = torch.tanh(x * weights[:4] + weights[4:8])
    return 0.5 * (hidden @ weights[8:12] + weights[12] - x[:, 0] ** 2).square().mean()


@pytest.mark.parametrize("seed", range(6))
def test_sharpness_of_a_network_equals_the_dense_hessian(seed):
    weights = normal(13, generator=rng(seed))
    dense = torch.linalg.eigvalsh(torch.func.hessian(small_loss)(weights))
    found = sharpness(small_loss, weights, generator=rng(seed + 100), tolerance=1e-10)
    assert found == pytest.approx(float(dense[-1]), rel=1e-7)
    # The largest eigenvalue is meant, not the one that is largest in absolute value.
    flipped = sharpness(lambda w: -small_loss(w), weights, generator=rng(seed + 100), tolerance=1e-10)
    assert flipped == pytest.approx(-float(dense[0]), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 1e9])
def test_sharpness_does_not_depend_on_the_unit_of_the_loss(scale):
    curvatures = vector(1, 2, 3, 7)
    found = sharpness(
        lambda w: 0.5 * scale * (curvatures * w.square()).sum(),
        vector(0, 0, 0, 0),
        generator=rng(0),
        tolerance=1e-12,
    )
    assert found == pytest.approx(7 * scale, rel=1e-9, abs=0)


@pytest.mark.parametrize("curvature", [5.0, -3.0])
def test_sharpness_of_one_weight(curvature):
    found = sharpness(lambda w: 0.5 * curvature * w.square().sum(), vector(0.3), generator=rng(0))
    assert found == pytest.approx(curvature, rel=1e-12)


@pytest.mark.parametrize("size", [1, 6])
def test_sharpness_of_a_linear_loss_is_zero(size):
    assert sharpness(lambda w: w.sum(), torch.ones(size, dtype=torch.float64), generator=rng(0)) == 0


def test_sharpness_stops_after_the_allowed_products():
    hessian = 2 * torch.arange(1.0, 51.0, dtype=torch.float64)
    few = sharpness(
        lambda w: (hessian / 2 * w.square()).sum(),
        torch.zeros(50, dtype=torch.float64),
        generator=rng(0),
        tolerance=0.0,
        most_products=3,
    )
    # Three products with the Hessian find its largest value on the span of v, H v and H^2 v.
    v = torch.randn(50, generator=rng(0), dtype=torch.float64)
    span = torch.linalg.qr(torch.stack([v, hessian * v, hessian**2 * v], dim=1)).Q
    assert few == pytest.approx(
        float(torch.linalg.eigvalsh(span.T @ (hessian[:, None] * span))[-1]), rel=1e-9
    )
    assert few < 99


def test_sharpness_says_that_the_weights_diverged():
    with pytest.raises(RuntimeError, match="diverged"):
        sharpness(lambda w: (w**4).sum(), vector(math.inf, 1), generator=rng(0))


# Shapes, dtypes and errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_input(dtype):
    matrix, target, start = torch.eye(2, dtype=dtype), torch.ones(2, dtype=dtype), torch.zeros(2, dtype=dtype)
    assert gradient_descent(matrix, target, start, step_size=0.1, steps=3).dtype == dtype
    assert closed_form(target, target, start, step_size=0.1, steps=3).dtype == dtype
    assert svd_coordinates(matrix, target)[0].dtype == dtype


def test_no_steps_give_the_start():
    start = vector(1, 2)
    path = gradient_descent(torch.eye(2, dtype=torch.float64), start, start, step_size=0.1, steps=0)
    assert np.array_equal(path, start[None])


@pytest.mark.parametrize("function", [gradient_descent, closed_form])
def test_negative_steps_are_refused(function):
    first = torch.eye(1, dtype=torch.float64) if function is gradient_descent else vector(1)
    with pytest.raises(ValueError, match="steps must be 0 or more, got -1"):
        function(first, vector(1), vector(0), step_size=0.1, steps=-1)


@pytest.mark.parametrize("function", [stability_limit, best_step, lambda s: worst_rate(s, step_size=0.1)])
@pytest.mark.parametrize(
    ("values", "message"), [((0.0, 0.0), "singular_values must contain one above 0"), ((1.0, -2.0), "-2.0")]
)
def test_spectra_that_have_no_bound_are_refused(function, values, message):
    with pytest.raises(ValueError, match=message):
        function(vector(*values))


@pytest.mark.parametrize("accuracy", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_an_accuracy_outside_its_range_is_refused(accuracy):
    with pytest.raises(ValueError, match=r"accuracy must lie in \(0, 1\)"):
        steps_to_accuracy(1.0, step_size=0.1, accuracy=accuracy)


@pytest.mark.parametrize("step_size", [0.0, -0.1, 0.25, 0.3, math.nan, math.inf])
def test_a_step_size_that_does_not_shrink_the_error_is_refused(step_size):
    with pytest.raises(ValueError, match=r"step_size must lie in \(0, 0.25\) for singular_value 2"):
        steps_to_accuracy(2.0, step_size=step_size, accuracy=0.1)


def test_a_direction_without_curvature_reaches_no_accuracy():
    with pytest.raises(ValueError, match="singular_value"):
        steps_to_accuracy(0.0, step_size=0.1, accuracy=0.1)


# Momentum


@pytest.mark.parametrize("half", [False, True])
def test_the_best_heavy_ball_of_two_directions_by_hand(half):
    step_size, momentum = best_heavy_ball(vector(3, 0, 1), half=half)
    assert step_size == pytest.approx((2 if half else 1) / 8, abs=1e-15)
    assert momentum == pytest.approx(1 / 4, abs=1e-15)
    rate = heavy_ball_rate(vector(3, 0, 1), step_size=step_size, momentum=momentum, half=half)
    assert rate == pytest.approx(1 / 2, abs=1e-7)


@given(SEEDS, st.floats(0.0, 0.9), st.booleans())
def test_heavy_ball_is_what_torch_calls_momentum(seed, momentum, half):
    generator = rng(seed)
    matrix, target, start = (normal(*s, generator=generator) for s in ((5, 3), (5,), (3,)))
    path = heavy_ball(matrix, target, start, step_size=0.02, momentum=momentum, steps=9, half=half)
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([weights], lr=0.02, momentum=momentum)
    for _ in range(9):
        optimizer.zero_grad()
        least_squares_loss(matrix, target, weights, half=half).backward()
        optimizer.step()
    torch.testing.assert_close(path[-1], weights.detach(), rtol=1e-9, atol=1e-9)
    assert path.shape == (10, 3)


@given(SPECTRA, st.floats(0.0, 0.95), st.floats(0.01, 5.0), st.booleans())
def test_the_rate_of_momentum_is_the_spectral_radius_of_two_steps(values, momentum, relative_step, half):
    sigma = vector(*values)
    step_size = relative_step / float(sigma.max()) ** 2
    rate = heavy_ball_rate(sigma, step_size=step_size, momentum=momentum, half=half)
    steps = torch.tensor(
        [[[1 + momentum - (1 if half else 2) * step_size * s**2, -momentum], [1, 0]] for s in values]
    )
    assert rate == pytest.approx(float(torch.linalg.eigvals(steps.double()).abs().max()), abs=1e-6)


@given(SPECTRA, st.floats(0.8, 1.25), st.floats(0.8, 1.25))
def test_no_neighbour_of_the_best_heavy_ball_is_faster(values, in_step, in_momentum):
    sigma = vector(*values)
    step_size, momentum = best_heavy_ball(sigma)
    best = heavy_ball_rate(sigma, step_size=step_size, momentum=momentum)
    other = min(in_momentum * momentum, 0.999)
    assert heavy_ball_rate(sigma, step_size=in_step * step_size, momentum=other) >= best - 1e-6


def test_momentum_says_what_it_cannot_take():
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\), got 1"):
        heavy_ball_rate(vector(1), step_size=0.1, momentum=1.0)
    with pytest.raises(ValueError, match="steps must be 0 or more, got -1"):
        heavy_ball(vector(1)[:, None], vector(1), vector(1), step_size=0.1, momentum=0.5, steps=-1)


def test_one_run_counts_the_steps_to_all_shares_that_runs_of_their_own_count():
    sigmas = torch.tensor([1.0, 0.6, 0.2], dtype=torch.float64)
    shares = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    pairs = {
        "step_sizes": torch.tensor([0.3, 0.9, 1.2, 3.0], dtype=torch.float64),  # the last one diverges
        "momenta": torch.tensor([0.0, 0.3, 0.5, 0.0], dtype=torch.float64),
    }
    goals = [0.4, 0.1, 0.01, 0.0099, 1e-5]
    found = heavy_ball_steps_to_shares(sigmas, shares, **pairs, goals=goals)
    assert found == [heavy_ball_steps_to_share(sigmas, shares, **pairs, share=goal)[0] for goal in goals]
    for steps, goal in zip(found, goals, strict=True):
        runs = []
        for size, momentum in zip(*(v.tolist() for v in pairs.values()), strict=True):
            path = heavy_ball(
                torch.diag(sigmas),
                sigmas,
                torch.zeros_like(sigmas),
                step_size=size,
                momentum=momentum,
                steps=steps,
            )
            runs.append(((path - 1).square() * shares).sum(1))
        left = torch.stack(runs)
        assert left[:, steps].min() <= goal < left[:, steps - 1].min()
    with pytest.raises(ValueError, match="goals must fall"):
        heavy_ball_steps_to_shares(sigmas, shares, **pairs, goals=[0.01, 0.1])
    with pytest.raises(RuntimeError, match="within 3 steps"):
        heavy_ball_steps_to_shares(sigmas, shares, **pairs, goals=[0.01], most=3)
