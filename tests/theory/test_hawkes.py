"""The process against its definition and its long-run mean, moments against rows, fits against what they minimise."""

import math

import pytest
import torch

from course_lib.theory import hawkes
from course_lib.theory.hawkes import PENALTIES
from course_lib.theory.tensor_nuclear_norm import LOW_RANK, low_rank_norm, numerical_ranks


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def small(runs=(), n=3, p=4, radius=0.6, seed=0):
    """A base and a kernel without any symmetry."""
    draw = lambda *shape: torch.rand(*runs, *shape, generator=rng(seed), dtype=torch.float64)  # noqa: E731
    return 0.2 + draw(n), hawkes.scaled_to(draw(n, n, p).square(), radius)


def by_delays(p=8, delays=(0, 1, 3)):
    d = torch.tensor(delays)
    return hawkes.delayed_kernel(f64([1, 2, 3]), f64([1, 0.5, 2]), f64([1, 0.5]), d, d.flip(0), p=p)


# Kernels


def test_a_delayed_kernel_by_hand():
    kernel = hawkes.delayed_kernel(
        f64([2, 3]), f64([5, 7]), f64([1, 0.5]), torch.tensor([0, 1]), torch.tensor([2, 0]), p=4
    )
    assert kernel[0, 0].tolist() == [0, 0, 10, 5]
    assert kernel[0, 1].tolist() == [14, 7, 0, 0]
    assert kernel[1, 0].tolist() == [0, 0, 0, 15]  # cut off: the second half would be at lag 5
    assert kernel[1, 1].tolist() == [0, 21, 10.5, 0]


def test_dft_slices_have_rank_one_while_the_delays_fit_and_not_where_they_are_cut_off():
    assert numerical_ranks(by_delays(), "fourier", share=1 - 1e-12).max() == 1
    assert numerical_ranks(by_delays(), "slices", share=1 - 1e-12).max() == 3
    assert numerical_ranks(by_delays(p=6), "fourier", share=1 - 1e-6).max() > 1


def test_the_fourier_norm_does_not_depend_on_delays():
    norms = [low_rank_norm(by_delays(delays=d), "fourier") for d in ((0, 0, 0), (0, 1, 3), (3, 2, 0))]
    spectrum = torch.fft.fft(f64([1, 0.5] + [0] * 6), norm="ortho").abs().sum()
    for norm in norms:
        assert float(norm) == pytest.approx(14**0.5 * 5.25**0.5 * float(spectrum))


def test_radius_and_long_run_mean_by_hand():
    kernel = f64([[[0, 0], [0.3, 0.2]], [[0.5, 0], [0, 0]]])
    assert float(hawkes.spectral_radius(kernel)) == pytest.approx(0.5)
    # m_1 = 1 + m_2 / 2, m_2 = 2 + m_1 / 2
    torch.testing.assert_close(hawkes.stationary_rate(f64([1, 2]), kernel), f64([8 / 3, 10 / 3]))
    assert float(hawkes.spectral_radius(hawkes.scaled_to(kernel, 0.9))) == pytest.approx(0.9)


# The process


def test_rates_are_the_loop():
    base, kernel = small()
    counts = torch.randint(0, 4, (9, 3), generator=rng()).double()
    found = hawkes.rates(counts, base, kernel)
    assert found.shape == (5, 3)
    for k in range(4, 9):
        torch.testing.assert_close(found[k - 4], hawkes.rate_by_loops(counts, base, kernel, k))
    assert (hawkes.rate_by_loops(counts, base, kernel, 0) == base).all()


def test_runs_are_their_own_processes_with_the_right_mean():
    base, kernel = small(runs=(2,))
    counts = hawkes.simulate(base, kernel, 6000, generator=rng())
    assert counts.shape == (2, 6000, 3)
    torch.testing.assert_close(counts.mean(1), hawkes.stationary_rate(base, kernel), rtol=0.06, atol=0)


def test_events_follow_their_cause_in_the_order_of_lags():
    """One place rings, the other answers three bins later and never earlier: transposes and reversed lags fail."""
    kernel = torch.zeros(2, 2, 4, dtype=torch.float64)
    kernel[1, 0, 2] = 0.9
    counts = hawkes.simulate(f64([0.2, 0]), kernel, 4000, generator=rng())
    products = [float((counts[4:, 1] * counts[4 - tau : len(counts) - tau, 0]).mean()) for tau in range(1, 5)]
    mean = 0.2 * 0.18
    assert products[2] == pytest.approx(mean + 0.9 * 0.2, rel=0.15)
    assert max(products[0], products[1], products[3]) < 2 * mean
    assert counts[:, 1].mean() == pytest.approx(0.18, rel=0.1)


def test_what_explodes_or_is_negative_is_refused():
    base, kernel = small(radius=1.0001)
    with pytest.raises(ValueError, match=r"spectral radius below 1, got 1\.000"):
        hawkes.simulate(base, kernel, 10, generator=rng())
    with pytest.raises(ValueError, match="must be at least 0"):
        hawkes.simulate(-base, 0.5 * kernel, 10, generator=rng())
    with pytest.raises(ValueError, match="more than p = 4 time bins, got 4"):
        hawkes.rates(torch.zeros(4, 3, dtype=torch.float64), base, kernel)
    with pytest.raises(ValueError, match="delays at least 0"):
        by_delays(delays=(-1, 0, 2))


def test_likelihood_of_one_event_by_hand_and_against_torch():
    counts, rate = f64([[1.0, 0.0]]), f64([[0.5, -0.3]])
    assert float(hawkes.log_likelihood(counts, rate)) == pytest.approx(math.log(0.5) - 0.5 - 0.01)
    counts, rate = (
        torch.randint(0, 5, (2, 6, 3), generator=rng()).double(),
        0.1 + torch.rand(2, 6, 3, generator=rng(), dtype=torch.float64),
    )
    wanted = torch.distributions.Poisson(rate).log_prob(counts).sum((1, 2)) / counts.sum((1, 2))
    torch.testing.assert_close(hawkes.log_likelihood(counts, rate), wanted)


# Moments and fits


@pytest.mark.parametrize("runs", [(), (2,)], ids=["one", "two"])
@pytest.mark.parametrize("steps", [5, 40])
def test_moments_are_those_of_the_rows(runs, steps):
    counts = torch.randint(0, 5, (*runs, steps, 3), generator=rng()).double()
    fast, rows = hawkes.moments(counts, 4), hawkes.moments_by_rows(counts, 4)
    assert fast.n == rows.n == steps - 4
    assert fast.p == 4
    for name in ("gram", "cross", "past_mean", "mean", "variance"):
        torch.testing.assert_close(getattr(fast, name), getattr(rows, name), rtol=1e-12, atol=1e-12)


@pytest.fixture
def data():
    base, kernel = small(runs=(2,))
    counts = hawkes.simulate(base, kernel, 400, generator=rng())
    return counts, hawkes.moments(counts, 4), kernel


def test_the_error_from_moments_is_that_of_the_rates(data):
    counts, given, kernel = data
    base = torch.rand(2, 3, generator=rng(5), dtype=torch.float64)
    wanted = (counts[:, 4:] - hawkes.rates(counts, base, kernel)).square().sum(-1).mean(-1)
    torch.testing.assert_close(hawkes.squared_error(given, kernel, base), wanted)


def test_the_slope_is_autograds_with_the_best_base(data):
    _, given, kernel = data
    kernel = kernel.clone().requires_grad_()
    base = given.mean - (kernel.flatten(-2) @ given.past_mean.unsqueeze(-1)).squeeze(-1)
    (wanted,) = torch.autograd.grad(hawkes.squared_error(given, kernel, base).sum() / 2, kernel)
    torch.testing.assert_close(hawkes.slope(given, kernel.detach()), wanted)


def cost(given, found, penalty, weight):
    if penalty == "none":
        norm = 0
    elif penalty == "ridge":
        norm = found.kernel.square().sum((-1, -2, -3)) / 2
    else:
        norm = low_rank_norm(found.kernel, penalty)
    return hawkes.squared_error(given, found.kernel, found.base) / 2 + weight * norm


@pytest.mark.parametrize("penalty", PENALTIES)
def test_no_kernel_nearby_costs_less(data, penalty):
    _, given, _ = data
    weight = 0.1 * hawkes.largest_weight(given, penalty)
    found = hawkes.fit(given, penalty, weight, tolerance=1e-9)
    best = cost(given, found, penalty, weight)
    for seed in range(20):
        noise = 0.02 * torch.randn(found.kernel.shape, generator=rng(seed), dtype=torch.float64)
        moved = hawkes.Fit(found.kernel + noise, found.base, weight, 0)
        assert (cost(given, moved, penalty, weight) > best).all()
    late = hawkes.Fit(found.kernel, found.base + 0.01, weight, 0)
    assert (cost(given, late, penalty, weight) > best).all()


def test_the_unpenalised_fit_is_that_of_lstsq(data):
    counts, given, _ = data
    rows = torch.cat([torch.ones(396, 1), hawkes_rows(counts[0])], dim=1).double()
    wanted = torch.linalg.lstsq(rows, counts[0, 4:]).solution
    found = hawkes.fit(given, "none")
    torch.testing.assert_close(found.base[0], wanted[0])
    torch.testing.assert_close(found.kernel[0].flatten(-2), wanted[1:].T)


def hawkes_rows(counts, p=4):
    return torch.stack([counts[p - t : len(counts) - t] for t in range(1, p + 1)], -1).flatten(-2)


@pytest.mark.parametrize("kind", LOW_RANK)
def test_from_the_largest_weight_on_the_kernel_is_zero(data, kind):
    _, given, _ = data
    edge = hawkes.largest_weight(given, kind)
    assert float(hawkes.fit(given, kind, 1.0001 * edge).kernel.abs().max()) == 0
    below = hawkes.fit(given, kind, 0.95 * edge).kernel
    assert (below.flatten(1).norm(dim=1) > 1e-4).all()


def test_runs_together_are_runs_alone(data):
    counts, _, _ = data
    shares = (0.5, 0.2, 0.05)
    for penalty in ("none", "ridge", "fourier"):
        both = hawkes.fit_chosen(counts, 4, penalty, shares=shares, tolerance=1e-8)
        for run in (0, 1):
            alone = hawkes.fit_chosen(counts[run], 4, penalty, shares=shares, tolerance=1e-8)
            torch.testing.assert_close(alone.kernel, both.kernel[run], rtol=1e-4, atol=1e-6)


def test_the_chosen_weight_is_the_one_that_predicts_the_last_fifth_best(data):
    counts, given, _ = data
    shares = (0.8, 0.3, 0.1, 0.03)
    found = hawkes.fit_chosen(counts, 4, "fourier", shares=shares, tolerance=1e-7)
    early = hawkes.moments(counts[:, :320], 4)
    edge, errors = hawkes.largest_weight(early, "fourier"), []
    for share in shares:
        tried = hawkes.fit(early, "fourier", share * edge, tolerance=1e-7)
        rate = hawkes.rates(counts[:, 316:], tried.base, tried.kernel)
        errors.append((counts[:, 320:] - rate).square().sum(-1).mean(-1))
    wanted = f64(shares)[torch.stack(errors).argmin(0)] * hawkes.largest_weight(given, "fourier")
    torch.testing.assert_close(found.weight, wanted)


def test_bad_options_are_named(data):
    counts, given, _ = data
    with pytest.raises(ValueError, match=r"penalty must be one of .*got 'lasso'"):
        hawkes.fit(given, "lasso")
    with pytest.raises(ValueError, match="weight must be at least 0"):
        hawkes.fit(given, "ridge", -1.0)
    with pytest.raises(ValueError, match="held_out must lie in"):
        hawkes.fit_chosen(counts, 4, "ridge", shares=(1,), held_out=1)
    with pytest.raises(ValueError, match="more than p >= 1 time bins, got 4"):
        hawkes.moments(counts[:, :4], 4)
