"""SGD on least squares: worked examples by hand, then bounds and exact expectations on random problems."""

from dataclasses import astuple
from fractions import Fraction
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.optimization.gradient_descent import gradient_descent
from course_lib.optimization.stochastic_gradient_descent import (
    constants,
    distance_bound_step,
    distance_factor,
    draw_indices,
    exact_rate,
    excess_loss,
    expected_change,
    expected_losses,
    loss_bound_step,
    loss_constants,
    loss_factor,
    minimum_norm_solution,
    noisy_equations,
    reduced_problem,
    stationary_variance,
    stochastic_gradient_descent,
)

SEEDS = st.integers(0, 2**31)
GAINS = st.sampled_from([1.0, 2.0])
SIZES = st.tuples(st.integers(1, 4), st.integers(0, 3))  # rows, and columns beyond them


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def zeros(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.float64)


def problem(seed: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    """Return a matrix whose smallest singular value is no accident of the draw, targets and the generator."""
    generator = rng(seed)
    left, _, right = torch.linalg.svd(normal(rows, columns, generator=generator), full_matrices=False)
    values = 0.3 + 2.7 * torch.rand(min(rows, columns), generator=generator, dtype=torch.float64)
    return left * values @ right, normal(rows, generator=generator), generator


def by_enumeration(matrix, target, start, *, step_size, steps, batch, gain):
    """Return E L(w_T) as the mean over every possible sequence of rows."""
    sequences = torch.tensor(list(product(range(len(target)), repeat=steps * batch)))
    indices = sequences.reshape(-1, steps, batch)
    paths = stochastic_gradient_descent(matrix, target, start, indices, step_size=step_size, gain=gain)
    return (paths @ matrix.T - target).square().sum(-1).mean(0)


# Worked examples


def test_one_equation_at_a_half_leaves_a_quarter_of_the_loss():
    true, printed = Fraction(1, 4), 0
    matrix, target = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    losses = expected_losses(matrix, target, zeros(2), step_size=0.5, steps=1)
    assert float(losses[1] / losses[0]) == pytest.approx(float(true), abs=1e-15)
    assert loss_factor(matrix, step_size=0.5) == pytest.approx(float(true), abs=1e-15)
    # The printed constants 4/n and 4/n belong to c = 2, where one step of 1/2 does solve the equation.
    assert loss_factor(matrix, step_size=0.5, gain=2.0) == pytest.approx(printed, abs=1e-15)
    assert 1 - 4 * Fraction(1, 2) + 4 * Fraction(1, 4) == printed


def test_two_labels_that_contradict_each_other_keep_a_variance_of_one_ninth():
    ones, labels = torch.ones(2, 1, dtype=torch.float64), torch.tensor([0.0, 2.0], dtype=torch.float64)
    assert stationary_variance(labels, step_size=0.2) == pytest.approx(float(Fraction(1, 9)), abs=1e-15)
    v = Fraction(1, 9)
    assert (1 - Fraction(1, 5)) ** 2 * v + Fraction(1, 25) == v
    # L = (w - 0)^2 + (w - 2)^2 = 2 + 2 (w - 1)^2, and w = 1 is the mean.
    losses = expected_losses(ones, labels, zeros(1), step_size=0.2, steps=300)
    assert float(losses[-1]) == pytest.approx(2 + 2 / 9, abs=1e-12)


def test_one_step_by_hand():
    matrix = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    target, start = (
        torch.tensor([3.0, 1.0], dtype=torch.float64),
        torch.tensor([1.0, 0.0], dtype=torch.float64),
    )
    step = lambda rows, c: stochastic_gradient_descent(  # noqa: E731
        matrix, target, start, torch.tensor([[rows]]), step_size=0.1, gain=c
    )[0, 1].tolist()
    assert step([0], 1.0) == pytest.approx([1.2, 0.4])  # the residual is 2
    assert step([0], 2.0) == pytest.approx([1.4, 0.8])
    assert step([1], 1.0) == pytest.approx([1.0, 0.1])
    assert step([0, 1], 1.0) == pytest.approx([1.1, 0.25])
    assert step([0, 0], 1.0) == pytest.approx([1.2, 0.4])


def test_constants_by_hand():
    matrix = torch.diag(torch.tensor([3.0, 2.0], dtype=torch.float64))
    assert astuple(constants(matrix)) == pytest.approx((2, 4, 9, 9))
    assert constants(matrix, batch=3).rho == pytest.approx(9 / 3 + 2 / 3 * 9 / 2)
    assert constants(matrix).condition == pytest.approx(9 / 4)
    assert loss_constants(matrix) == pytest.approx((4, 81 / 2))
    assert loss_constants(matrix, gain=2.0) == pytest.approx((8, 162))
    assert loss_bound_step(matrix, gain=2.0) == pytest.approx(2 / 81)
    assert distance_bound_step(matrix, gain=2.0) == pytest.approx(1 / 18)


# The solution and the coordinates


@given(SEEDS, SIZES)
def test_the_minimum_norm_solution_solves_and_is_the_shortest(seed, sizes):
    rows, extra = sizes
    matrix, target, generator = problem(seed, rows, rows + extra)
    found = minimum_norm_solution(matrix, target)
    torch.testing.assert_close(matrix @ found, target, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found, torch.linalg.pinv(matrix) @ target, rtol=1e-8, atol=1e-8)
    unseen = normal(rows + extra, generator=generator)
    unseen = unseen - torch.linalg.pinv(matrix) @ (matrix @ unseen)
    assert (found + unseen).norm() >= found.norm() - 1e-9


@given(SEEDS, SIZES, GAINS, st.floats(0.01, 0.3))
def test_the_reduced_problem_has_the_same_runs(seed, sizes, gain, step_size):
    rows, extra = sizes
    matrix, target, generator = problem(seed, rows, rows + extra)
    small, start, right = reduced_problem(matrix, target)
    indices = draw_indices(rows, runs=3, steps=12, batch=2, generator=generator)
    run = lambda x, y, w: stochastic_gradient_descent(x, y, w, indices, step_size=step_size, gain=gain)  # noqa: E731
    moved = (run(matrix, target, zeros(rows + extra)) - minimum_norm_solution(matrix, target)) @ right
    scale = float(moved.abs().max()) + 1
    torch.testing.assert_close(
        moved[..., :rows], run(small, zeros(rows), start), rtol=1e-8, atol=1e-9 * scale
    )
    assert (moved[..., rows:].abs() < 1e-9 * scale).all()
    torch.testing.assert_close(small.norm(dim=1), matrix.norm(dim=1), rtol=1e-9, atol=1e-9)


@given(SEEDS, SIZES)
def test_sgd_moves_in_the_row_space_only(seed, sizes):
    rows, extra = sizes
    matrix, target, generator = problem(seed, rows, rows + extra)
    start = normal(rows + extra, generator=generator)
    indices = draw_indices(rows, runs=2, steps=20, generator=generator)
    moved = stochastic_gradient_descent(matrix, target, start, indices, step_size=0.05) - start
    unseen = moved - moved @ torch.linalg.pinv(matrix) @ matrix
    assert float(unseen.abs().max()) < 1e-9


# Steps


@given(SEEDS, GAINS)
def test_a_batch_of_every_row_once_is_gradient_descent(seed, gain):
    matrix, target, generator = problem(seed, 4, 6)
    start = normal(6, generator=generator)
    every = torch.arange(4).expand(1, 10, 4)
    ours = stochastic_gradient_descent(matrix, target, start, every, step_size=0.08, gain=gain)[0]
    full = gradient_descent(matrix, target, start, step_size=0.08 / 4, steps=10, half=gain == 1)
    torch.testing.assert_close(ours, full, rtol=1e-9, atol=1e-9)


@given(SEEDS)
def test_a_step_size_for_each_step_is_used_in_order(seed):
    matrix, target, generator = problem(seed, 3, 5)
    indices = draw_indices(3, steps=2, generator=generator)
    sizes = torch.tensor([0.1, 0.02], dtype=torch.float64)
    both = stochastic_gradient_descent(matrix, target, zeros(5), indices, step_size=sizes)[0]
    first = stochastic_gradient_descent(matrix, target, zeros(5), indices[:, :1], step_size=0.1)[0]
    second = stochastic_gradient_descent(matrix, target, first[1], indices[:, 1:], step_size=0.02)[0]
    torch.testing.assert_close(both, torch.stack([first[0], first[1], second[1]]))


def test_indices_are_uniform_and_repeat_with_the_seed():
    indices = draw_indices(5, runs=20, steps=50, batch=10, generator=rng(0))
    assert indices.shape == (20, 50, 10)
    counts = torch.bincount(indices.flatten(), minlength=5)
    assert ((counts - 2000).abs() < 5 * 40).all()  # the standard deviation is 40
    assert torch.equal(indices, draw_indices(5, runs=20, steps=50, batch=10, generator=rng(0)))


# Exact expectations


@pytest.mark.parametrize(("rows", "columns"), [(2, 4), (3, 1)])
@pytest.mark.parametrize(("steps", "batch"), [(4, 1), (2, 2), (1, 3)])
@given(seed=SEEDS, gain=GAINS, step_size=st.floats(0.01, 0.5))
def test_expected_losses_are_the_mean_over_all_sequences(rows, columns, steps, batch, seed, gain, step_size):
    matrix, target, generator = problem(seed, rows, columns)
    start = normal(columns, generator=generator)
    options = {"step_size": step_size, "steps": steps, "batch": batch, "gain": gain}
    exact = expected_losses(matrix, target, start, **options)
    torch.testing.assert_close(
        exact, by_enumeration(matrix, target, start, **options), rtol=1e-9, atol=1e-9 * float(exact.max())
    )


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_rounding_does_not_bring_a_loss_back_that_is_gone(batch):
    matrix = normal(16, 2, generator=rng(5)) / 2**0.5
    target = matrix @ torch.ones(2, dtype=torch.float64)
    step_size = 1.35 * distance_bound_step(matrix, batch=batch)
    losses = expected_losses(matrix, target, zeros(2), step_size=step_size, steps=2000, batch=batch)
    assert (losses[500:] < 1e-20).all()


@given(SEEDS, SIZES, GAINS, st.floats(0.01, 0.5))
def test_the_expected_change_is_that_of_the_exact_losses(seed, sizes, gain, step_size):
    rows, extra = sizes
    matrix, target, _ = problem(seed, rows, rows + extra)
    first, second = expected_change(
        matrix, -minimum_norm_solution(matrix, target), step_size=step_size, gain=gain
    )
    losses = expected_losses(matrix, target, zeros(rows + extra), step_size=step_size, steps=1, gain=gain)
    assert first <= 0 <= second
    assert first + second == pytest.approx(float(losses[1] - losses[0]), rel=1e-8, abs=1e-9)


# Bounds


@given(SEEDS, SIZES, GAINS, st.floats(0.0, 1.0))
def test_gain_and_price_keep_their_bounds_and_reach_them(seed, sizes, gain, step_size):
    rows, extra = sizes
    matrix, _, generator = problem(seed, rows, rows + extra)
    small, *_ = reduced_problem(matrix, zeros(rows))
    linear, quadratic = loss_constants(matrix, gain=gain)
    for error in (*normal(10, rows, generator=generator), *torch.eye(rows, dtype=torch.float64)):
        loss = float((small @ error).square().sum())
        first, second = expected_change(small, error, step_size=step_size, gain=gain)
        assert first <= -linear * step_size * loss + 1e-9 * loss
        assert second <= quadratic * step_size**2 * loss + 1e-9 * loss
    last = torch.eye(rows, dtype=torch.float64)[-1]
    first, _ = expected_change(small, last, step_size=step_size, gain=gain)
    assert first == pytest.approx(-linear * step_size * float((small @ last).square().sum()), abs=1e-9)


@given(SEEDS, SIZES, GAINS, st.integers(1, 4), st.floats(0.02, 2.5))
def test_losses_and_distances_keep_their_bounds(seed, sizes, gain, batch, relative):
    rows, extra = sizes
    matrix, target, _ = problem(seed, rows, rows + extra)
    step_size = relative * distance_bound_step(matrix, batch=batch, gain=gain)
    options = {"step_size": step_size, "batch": batch, "gain": gain}
    t = torch.arange(9, dtype=torch.float64)
    losses = expected_losses(matrix, target, zeros(rows + extra), steps=8, **options)
    assert (losses <= losses[0] * abs(loss_factor(matrix, **options)) ** t * (1 + 1e-9) + 1e-12).all()
    # E||w - w*||^2 is E||R w - R w*||^2 with orthonormal rows R of the same span, by enumeration for one step.
    solution = minimum_norm_solution(matrix, target)
    sequences = torch.tensor(list(product(range(rows), repeat=batch)))[:, None]
    after = stochastic_gradient_descent(
        matrix, target, zeros(rows + extra), sequences, step_size=step_size, gain=gain
    )[:, 1]
    distance = float((after - solution).square().sum(1).mean())
    bound = distance_factor(matrix, **options) * float(solution.square().sum())
    assert distance <= bound * (1 + 1e-9) + 1e-12


@given(SEEDS, SIZES, GAINS, st.floats(0.05, 3.0))
def test_the_optima_of_the_bounds(seed, sizes, gain, other):
    rows, extra = sizes
    matrix, *_ = problem(seed, rows, rows + extra)
    known = constants(matrix)
    for factor, best, gained in (
        (loss_factor, loss_bound_step(matrix, gain=gain), known.smallest / known.condition),
        (distance_factor, distance_bound_step(matrix, gain=gain), known.smallest),
    ):
        at_best = factor(matrix, step_size=best, gain=gain)
        assert at_best == pytest.approx(1 - gained / (rows * known.rho), abs=1e-9)
        assert at_best <= factor(matrix, step_size=other * best, gain=gain) + 1e-12
        assert factor(matrix, step_size=2 * best, gain=gain) == pytest.approx(1, abs=1e-9)
    ratio = distance_bound_step(matrix, gain=gain) / loss_bound_step(matrix, gain=gain)
    assert ratio == pytest.approx(known.condition, rel=1e-9)


@given(SEEDS, st.integers(1, 3), st.floats(0.1, 1.9), GAINS)
def test_the_exact_rate_is_that_of_all_batches_and_below_the_bound(seed, batch, relative, gain):
    matrix, *_ = problem(seed, 3, 5)
    step_size = relative * distance_bound_step(matrix, batch=batch, gain=gain)
    rate = exact_rate(matrix, step_size=step_size, batch=batch, gain=gain)
    assert rate <= distance_factor(matrix, step_size=step_size, batch=batch, gain=gain) + 1e-9
    small, *_ = reduced_problem(matrix, zeros(3))
    eye, total = torch.eye(3, dtype=torch.float64), torch.zeros(9, 9, dtype=torch.float64)
    for rows in product(range(3), repeat=batch):
        step = eye - gain * step_size / batch * small[list(rows)].T @ small[list(rows)]
        total += torch.kron(step, step) / 3**batch
    assert rate == pytest.approx(float(torch.linalg.eigvals(total).abs().max()), rel=1e-9)


def test_the_exact_rate_is_what_the_losses_settle_at():
    matrix, target, _ = problem(0, 3, 5)
    step_size = distance_bound_step(matrix)
    losses = expected_losses(matrix, target, zeros(5), step_size=step_size, steps=161)
    assert float(losses[161] / losses[160]) == pytest.approx(
        exact_rate(matrix, step_size=step_size), rel=1e-4
    )


@given(SEEDS)
def test_larger_batches_allow_longer_steps_up_to_the_curvature(seed):
    matrix, *_ = problem(seed, 4, 6)
    steps = [distance_bound_step(matrix, batch=b) for b in (1, 2, 4, 8, 10**9)]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(steps))
    assert all(s <= b * steps[0] * (1 + 1e-12) for s, b in zip(steps, (1, 2, 4, 8), strict=False))
    assert steps[-1] == pytest.approx(4 / constants(matrix).largest, rel=1e-6)


def test_the_step_of_the_loss_bound_is_not_the_fastest():
    matrix, target, _ = problem(3, 4, 6)
    left = [
        float(expected_losses(matrix, target, zeros(6), step_size=s, steps=200)[-1])
        for s in (loss_bound_step(matrix), distance_bound_step(matrix))
    ]
    assert left[1] < left[0] / 100


# The floor


@given(SEEDS, st.floats(0.05, 1.8), GAINS, st.integers(1, 4))
def test_the_stationary_variance_is_where_the_losses_settle(seed, scale, gain, batch):
    labels = normal(3, generator=rng(seed))
    ones = torch.ones(3, 1, dtype=torch.float64)
    options = {"step_size": scale / gain, "batch": batch, "gain": gain}
    losses = expected_losses(ones, labels, zeros(1), steps=600, **options)
    variance = stationary_variance(labels, **options)
    smallest = float((labels - labels.mean()).square().sum())
    assert float(losses[-1]) == pytest.approx(smallest + 3 * variance, rel=1e-8, abs=1e-10)


def test_steps_of_one_over_t_average_the_labels():
    labels, ones = torch.tensor([0.0, 2.0, 7.0], dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    indices = draw_indices(3, runs=4, steps=30, generator=rng(2))
    count = torch.arange(1, 31, dtype=torch.float64)
    path = stochastic_gradient_descent(ones, labels, zeros(1), indices, step_size=1 / count)
    torch.testing.assert_close(path[:, 1:, 0], labels[indices[:, :, 0]].cumsum(1) / count)


# Shapes, dtypes and errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_input(dtype):
    matrix, target, start = (
        torch.eye(2, 3, dtype=dtype),
        torch.ones(2, dtype=dtype),
        torch.zeros(3, dtype=dtype),
    )
    indices = draw_indices(2, steps=3, generator=rng(0))
    assert stochastic_gradient_descent(matrix, target, start, indices, step_size=0.1).dtype == dtype
    assert expected_losses(matrix, target, start, step_size=0.1, steps=2).dtype == dtype
    assert minimum_norm_solution(matrix, target).dtype == dtype


def test_no_steps_give_the_start():
    start, indices = torch.ones(2, dtype=torch.float64), draw_indices(2, runs=3, steps=0, generator=rng(0))
    matrix = torch.eye(2, dtype=torch.float64)
    path = stochastic_gradient_descent(matrix, zeros(2), start, indices, step_size=0.1)
    assert path.tolist() == [[[1.0, 1.0]]] * 3
    assert expected_losses(matrix, zeros(2), start, step_size=0.1, steps=0).tolist() == [2.0]


@pytest.mark.parametrize("function", [minimum_norm_solution, reduced_problem])
@pytest.mark.parametrize("matrix", [torch.ones(2, 3), torch.eye(3, 2), torch.zeros(1, 2)])
def test_dependent_rows_are_refused(function, matrix):
    with pytest.raises(ValueError, match="matrix must have independent rows, got rank"):
        function(matrix.double(), torch.ones(len(matrix), dtype=torch.float64))


@pytest.mark.parametrize("bad", [{"rows": 0}, {"runs": 0}, {"batch": 0}, {"steps": -1}])
def test_draws_of_nothing_are_refused(bad):
    wanted = {"rows": 2, "runs": 1, "steps": 1, "batch": 1, **bad}
    with pytest.raises(ValueError, match="rows, runs and batch must be 1 or more"):
        draw_indices(wanted.pop("rows"), **wanted, generator=rng(0))


@pytest.mark.parametrize("index", [-1, 2])
def test_indices_of_no_row_are_refused(index):
    with pytest.raises(ValueError, match=r"indices must lie in \[0, 1\]"):
        stochastic_gradient_descent(
            torch.eye(2), torch.zeros(2), torch.zeros(2), torch.tensor([[[index]]]), step_size=0.1
        )


@pytest.mark.parametrize("bad", [{"steps": -1}, {"batch": 0}])
def test_expected_losses_of_no_steps_or_rows_are_refused(bad):
    with pytest.raises(ValueError, match="steps must be 0 or more and batch 1 or more"):
        expected_losses(torch.eye(2), torch.zeros(2), torch.zeros(2), **{"step_size": 0.1, "steps": 1, **bad})


BOUNDS = [
    constants,
    loss_constants,
    loss_bound_step,
    distance_bound_step,
    lambda m, **o: loss_factor(m, step_size=0.1, **o),
    lambda m, **o: distance_factor(m, step_size=0.1, **o),
    lambda m, **o: exact_rate(m, step_size=0.1, **o),
]


@pytest.mark.parametrize("function", BOUNDS)
def test_bounds_need_a_matrix_that_moves_something_and_a_batch(function):
    with pytest.raises(ValueError, match="matrix must have an entry that is not zero"):
        function(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="batch must be 1 or more, got 0"):
        function(torch.eye(2), batch=0)


@pytest.mark.parametrize("step_size", [0.0, -0.1, 1.0, 5.0, float("nan")])
def test_a_floor_needs_a_step_that_settles(step_size):
    with pytest.raises(ValueError, match=r"gain \* step_size must lie in \(0, 2\)"):
        stationary_variance(torch.tensor([0.0, 2.0]), step_size=step_size, gain=2.0)


def test_a_floor_needs_a_batch():
    with pytest.raises(ValueError, match="batch must be 1 or more, got 0"):
        stationary_variance(torch.tensor([0.0, 2.0]), step_size=0.1, batch=0)


# Equations that contradict each other


def test_noisy_equations_are_a_teacher_plus_noise_on_rows_of_length_one():
    matrix, target = noisy_equations(200, 3, noise=0.5, seed=1)
    torch.testing.assert_close(matrix.norm(dim=1), torch.ones(200, dtype=torch.float64))
    best = torch.linalg.lstsq(matrix, target[:, None]).solution[:, 0]
    assert 0.4 < float((target - matrix @ best).std()) < 0.6
    same, exact = noisy_equations(200, 3, noise=0.0, seed=1)
    assert torch.equal(same, matrix)
    teacher = torch.linalg.lstsq(same, exact[:, None]).solution[:, 0]
    torch.testing.assert_close(same @ teacher, exact)
    for wrong in ({"rows": 0, "columns": 3, "noise": 1.0}, {"rows": 4, "columns": 3, "noise": -1.0}):
        with pytest.raises(ValueError, match="must be 1 or more and noise 0 or more"):
            noisy_equations(**wrong, seed=1)


def test_excess_loss_is_the_loss_less_the_least_one_by_equation():
    matrix, target = noisy_equations(6, 2, noise=1.0, seed=3)
    weights = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.float64)
    loss = lambda w: float((target - matrix @ w).square().sum())  # noqa: E731
    least = loss(torch.linalg.lstsq(matrix, target[:, None]).solution[:, 0])
    expected = [(loss(w) - least) / 6 for w in weights]
    assert excess_loss(matrix, target, weights).tolist() == pytest.approx(expected)


def test_the_mean_of_late_iterates_lies_far_below_the_last_one():
    matrix, target = noisy_equations(60, 3, noise=1.0, seed=0)
    indices = draw_indices(60, runs=40, steps=800, generator=rng(2))
    path = stochastic_gradient_descent(matrix, target, zeros(3), indices, step_size=1.0)
    last, mean = (float(excess_loss(matrix, target, w).mean()) for w in (path[:, -1], path[:, 400:].mean(1)))
    assert 20 * mean < last
