"""A proportion of at most eta: risks, closed forms with the range where they hold, and the solver's certificate."""

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch.distributions import Binomial

from course_lib.theory import restricted_minimax as rm

F64 = torch.float64
ENDS = {1: 0.75, 2: 0.4226, 3: 0.2901, 4: 0.2205, 5: 0.1777, 10: 0.0901, 20: 0.0454, 50: 0.0182}


def vector(*entries):
    return torch.tensor(entries, dtype=F64)


# Risk


@pytest.mark.parametrize("n", [1, 5, 50, 200])
def test_likelihood_is_scipys_with_both_ends(n):
    theta = torch.tensor([0.0, 0.03, 0.5, 1.0], dtype=F64)
    wanted = binom.pmf(np.arange(n + 1), n, theta.numpy()[:, None])
    np.testing.assert_allclose(rm.likelihood(theta, n), wanted, rtol=1e-9, atol=1e-300)
    assert rm.likelihood(theta.reshape(2, 2), n).shape == (2, 2, n + 1)


def test_risk_worked_example():
    # a = 1/5, b = 1/2: a^2 + theta (b^2 - a^2 - 2a) + theta^2 (1 + 2a - 2b) = .04 - .19 theta + .4 theta^2
    theta = torch.linspace(0, 1, 11, dtype=F64)
    found = rm.risk(vector(0.2, 0.5), theta)
    torch.testing.assert_close(found, 0.04 - 0.19 * theta + 0.4 * theta**2)
    assert not torch.allclose(found, 0.04 - 0.19 * theta + 0.6 * theta**2)  # 1 - 2a instead of 1 + 2a - 2b


def test_risk_is_the_mean_squared_error_of_draws():
    rule = vector(0.1, 0.2, 0.4, 0.5)
    torch.manual_seed(0)
    counts = Binomial(3, vector(0.3)).sample((200_000,)).long()
    measured = (rule[counts.flatten()] - 0.3).square().mean()
    assert float(rm.risk(rule, vector(0.3))) == pytest.approx(float(measured), rel=0.02)


def test_risk_of_several_rules_is_that_of_each_term_by_term():
    rules = torch.rand(3, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    theta = torch.linspace(0, 1, 7, dtype=F64)
    by_sum = [[rm.risk_by_sum(rule, t) for t in theta] for rule in rules]
    torch.testing.assert_close(rm.risk(rules, theta), torch.tensor(by_sum, dtype=F64))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_slope_by_hand_is_autograds(n):
    rule = torch.rand(n + 1, dtype=F64, generator=torch.Generator().manual_seed(n)).requires_grad_()
    theta = torch.tensor([0.05, 0.4, 0.9], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(rm.risk, (rule, theta))
    (wanted,) = torch.autograd.grad(rm.risk(rule, theta).sum(), theta)
    torch.testing.assert_close(rm.risk_slope(rule, theta), wanted)


def test_worst_case_finds_a_peak_between_the_grids_points():
    # The plain estimate x / n has the risk theta (1 - theta) / n.
    plain = torch.arange(11, dtype=F64) / 10
    value, peaks = rm.worst_case(plain, 0.9, cells=7)
    assert value == pytest.approx(0.025, abs=1e-15)
    torch.testing.assert_close(peaks, vector(0.5))
    assert rm.worst_case(plain, 0.3)[0] == pytest.approx(0.021)
    assert rm.worst_case(plain, 0.3)[1].tolist() == [0.3]


# Bayes


def test_bayes_rule_worked_example():
    # Weight 1/2 on 0 and on 1/2, n = 1: P(X = 0) = 3/4, and delta_0 = (1/2)(1/2)(1/2) / (3/4) = 1/6.
    atoms, weights = vector(0, 0.5), vector(0.5, 0.5)
    torch.testing.assert_close(rm.bayes_rule(atoms, weights, 1), vector(1 / 6, 1 / 2))
    assert float(rm.bayes_risk(atoms, weights, 1)) == pytest.approx((1 / 36 + (1 / 9 + 0) / 2) / 2)


def test_no_rule_beats_the_bayes_rule():
    generator = torch.Generator().manual_seed(0)
    atoms, weights = torch.rand(4, dtype=F64, generator=generator), vector(0.1, 0.2, 0.3, 0.4)
    best = rm.bayes_rule(atoms, weights, 6)
    others = best + 0.01 * torch.randn(200, 7, dtype=F64, generator=generator)
    assert ((rm.risk(others, atoms) @ weights) > rm.bayes_risk(atoms, weights, 6)).all()


def test_counts_that_cannot_occur_get_the_priors_mean():
    assert rm.bayes_rule(vector(0, 1), vector(0.25, 0.75), 2).tolist() == [0, 0.75, 1]


# Closed forms


@pytest.mark.parametrize("eta", [0.01, 0.1, 0.3, 0.5, 0.6, 0.75])
def test_one_trial_up_to_three_quarters(eta):
    s = (1 - eta) ** 0.5
    found = rm.two_point(1, eta)
    assert rm.one_trial_rule(eta) == pytest.approx((s * (1 - s), eta))
    np.testing.assert_allclose(found.rule, rm.one_trial_rule(eta))
    assert found.upper == pytest.approx((s * (1 - s)) ** 2)
    assert abs(found.gap) < 1e-12


def test_figures_of_one_trial():
    assert rm.one_trial_rule(0.1) == pytest.approx((0.04868, 0.1), abs=1e-5)
    assert rm.two_point(1, 0.1).upper == pytest.approx(0.00237, abs=1e-5)
    assert rm.one_trial_rule(0.5) == pytest.approx(((2**0.5 - 1) / 2, 0.5))
    assert float(rm.two_point(1, 0.5).weights[1]) == pytest.approx(0.5858, abs=1e-4)
    clipped = rm.classical_rule(1).clamp(max=0.5)
    assert [rm.worst_case(rule, 0.5)[0] for rule in (vector(0, 0.5), clipped)] == pytest.approx(
        [0.125, 0.0625]
    )


@pytest.mark.parametrize("eta", [0.75, 0.8, 1.0])
def test_one_trial_from_three_quarters_on_nothing_changes(eta):
    assert rm.one_trial_rule(eta) == pytest.approx((0.25, 0.75))
    found = rm.Solution.of(*rm.classical_prior(1), n=1, eta=eta)
    assert found.atoms.tolist() == pytest.approx([0, 0.75])
    assert (found.lower, found.upper) == pytest.approx((1 / 16, 1 / 16))


@pytest.mark.parametrize("n", ENDS)
def test_two_points_suffice_exactly_up_to_the_limit(n):
    limit = rm.two_point_limit(n)
    assert limit == pytest.approx(ENDS[n], abs=6e-5)
    for eta in (limit * 0.1, limit * 0.7, limit * (1 - 1e-6)):
        assert abs(rm.two_point(n, eta).gap) < 1e-11
    if n > 1:
        assert rm.two_point(n, 1.1 * limit).gap > 1e-5


def test_the_limit_of_two_trials_and_of_many():
    assert rm.two_point_limit(2) == pytest.approx(1 - 3**-0.5)
    assert 10**6 * rm.two_point_limit(10**6) == pytest.approx(0.91296, abs=1e-5)


def test_two_points_need_the_square_root_in_s():
    # The neighbour s = (1 - eta)^n has unequal risks.
    n, eta = 4, 0.15
    s = (1 - eta) ** n
    wrong = rm.Solution.of(vector(0, eta), vector(s, 1) / (1 + s), n=n, eta=eta)
    assert wrong.gap > 0.05


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 50])
def test_the_classical_rule_has_one_risk_and_a_short_prior(n):
    atoms, weights = rm.classical_prior(n)
    assert len(atoms) == (n // 2 + 1 if n % 2 == 0 else (n + 3) // 2)
    assert (weights > 0).all()
    assert float(weights.sum()) == pytest.approx(1)
    torch.testing.assert_close(rm.bayes_rule(atoms, weights, n), rm.classical_rule(n))
    theta = torch.linspace(0, 1, 9, dtype=F64)
    torch.testing.assert_close(
        rm.risk(rm.classical_rule(n), theta), torch.full((9,), 1 / (4 * (1 + n**0.5) ** 2), dtype=F64)
    )
    moments = [float(weights @ atoms**k) for k in range(1, n + 2)]
    k = np.arange(n + 1)
    assert moments == pytest.approx(
        np.cumprod((n**0.5 / 2 + k) / (n**0.5 + k)).tolist()
    )  # those of the Beta prior


# The solver


@pytest.mark.parametrize(
    ("n", "eta"), [(5, 0.1), (5, 0.5), (10, 0.3), (20, 0.3), (20, 0.5), (50, 0.1), (50, 0.4)]
)
def test_rule_and_prior_prove_each_other(n, eta):
    found = rm.minimax(n, eta)
    assert abs(found.gap) < 1e-10
    assert (found.atoms.diff() > 0).all()
    assert float(found.weights.sum()) == pytest.approx(1)
    at_atoms = rm.risk(found.rule, found.atoms)
    torch.testing.assert_close(at_atoms, torch.full_like(at_atoms, found.lower), rtol=1e-8, atol=0)
    inner = (found.atoms > 0) & (found.atoms < eta)
    assert (rm.risk_slope(found.rule, found.atoms)[inner].abs() < 1e-6 * found.lower / eta + 1e-12).all()


def test_figures_beyond_two_points():
    np.testing.assert_allclose(rm.minimax(5, 0.5).atoms, [0, 0.1406, 0.5], atol=1e-4)
    np.testing.assert_allclose(rm.minimax(20, 0.3).atoms, [0.0321, 0.1320, 0.3], atol=1e-4)
    assert rm.minimax(20, 0.3).lower == pytest.approx(0.0037791, abs=1e-7)
    whole = rm.minimax(5, 1)
    assert whole.upper == pytest.approx(0.023873, abs=1e-6)
    np.testing.assert_allclose(whole.rule, rm.classical_rule(5), atol=1e-4)


@pytest.mark.parametrize("n", [1, 4, 20])
def test_solver_finds_the_closed_forms(n):
    eta = 0.9 * rm.two_point_limit(n)
    np.testing.assert_allclose(rm.minimax(n, eta).rule, rm.two_point(n, eta).rule, rtol=1e-6)
    limit = rm.classical_limit(n)
    classical = rm.worst_case(rm.classical_rule(n), 1)[0]
    assert rm.minimax(n, (1 + limit) / 2).upper == pytest.approx(classical, rel=1e-9)
    if n > 1:
        assert rm.minimax(n, 0.9 * limit).upper < classical * (1 - 1e-5)


def test_updates_and_newton_agree_on_one_grid():
    slow = rm.prior_by_updates(3, 0.5, points=11, steps=600)
    fast = rm.prior_on_grid(3, 0.5, atoms=slow.atoms)
    assert slow.lower == pytest.approx(fast.lower, rel=2e-4)
    assert slow.lower <= fast.lower * (1 + 1e-9)
    assert abs(rm.prior_by_updates(3, 0.5, points=11, steps=30).lower / fast.lower - 1) > 2e-4


@pytest.mark.parametrize(("n", "eta"), [(1, 0.5), (5, 0.5), (20, 0.3)])
def test_cones_find_the_same_largest_risk(n, eta):
    rule = rm.minimax_by_cones(n, eta)
    assert rm.worst_case(rule, eta)[0] == pytest.approx(rm.minimax(n, eta).upper, rel=1e-5)


def test_a_gap_that_is_too_large_is_an_error():
    with pytest.raises(RuntimeError, match="the gap between both bounds"):
        rm.minimax(5, 0.5, gap=-1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rm.minimax(0, 0.5), r"n must be a whole number of trials, at least 1, got 0"),
        (lambda: rm.minimax(3, 0), r"eta must lie in \(0, 1\], got 0"),
        (lambda: rm.worst_case(vector(0, 1), 1.5), r"eta must lie in \(0, 1\], got 1.5"),
        (lambda: rm.two_point(2, 1), r"eta must be below 1 for two points"),
        (lambda: rm.one_trial_rule(-0.1), r"eta must lie in \(0, 1\], got -0.1"),
        (lambda: rm.likelihood(vector(0.5), 0), r"n must be a whole number"),
        (lambda: rm.likelihood(vector(0.5), 1001), r"n must be at most 1000 for probabilities in float64, got 1001"),
        (lambda: rm.bayes_rule(vector(0, 1), vector(1), 2), r"weights must have the shape of atoms, \(2,\), got \(1,\)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
