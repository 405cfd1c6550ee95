"""Chains against their own draws, the criterion against sums and exact numbers, and its two laws."""

import math
from itertools import combinations

import pytest
import torch

from course_lib.theory import markov_chains as mc
from course_lib.theory.markov_chains import Chains


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def sets(reach):
    return [lags for size in range(reach + 1) for lags in combinations(range(1, reach + 1), size)]


@pytest.fixture
def flip():
    """Two states, a flip with probability 0.1."""
    return mc.next_table(Chains(f64([[[0.9, 0.1], [0.1, 0.9]]]), (1,)), 2)


@pytest.mark.parametrize(
    ("lags", "value", "plain"),
    [((), 0, 0), ((1,), 0.32, 0.64), ((1, 2), 0.2624, 0.64), ((2,), 0.2048, 0.4096)],
)
def test_two_states_that_flip(flip, lags, value, plain):
    assert float(mc.criterion(flip, lags)) == pytest.approx(value, abs=1e-12)
    assert mc.criterion_by_sums(flip[0], lags) == pytest.approx(value, abs=1e-12)
    assert float(mc.chi_square(flip, lags)) == pytest.approx(plain, abs=1e-12)


def test_many_chains_at_once_are_the_sums_of_each():
    table = mc.next_table(mc.random_chains(4, parents=(1, 3), alpha=0.5, generator=rng()), 3)
    for lags in sets(3):
        wanted = [mc.criterion_by_sums(one, lags) for one in table]
        torch.testing.assert_close(mc.criterion(table, lags), f64(wanted))


def test_a_flip_that_is_certain_is_periodic_and_has_a_law():
    """The plain powers of its matrix never settle; the lazy ones do."""
    certain = Chains(f64([[[0.0, 1.0], [1.0, 0.0]]]), (1,))
    torch.testing.assert_close(mc.window_law(certain, 2), f64([[[0.0, 0.5], [0.5, 0.0]]]))


@pytest.mark.parametrize("parents", [(1,), (2,), (1, 2), (1, 3)])
def test_the_law_is_stationary_and_is_that_of_long_draws(parents):
    chain = mc.random_chains(1, parents=parents, tokens=2, alpha=2.0, generator=rng(3))
    reach = 3
    table = mc.next_table(chain, reach)
    assert float(table.sum()) == pytest.approx(1)
    torch.testing.assert_close(table.sum(dim=1), mc.window_law(chain, reach))  # without the oldest token
    many = Chains(chain.law.expand(600, *chain.law.shape[1:]), parents)
    tokens = mc.draw_tokens(many, 140, generator=rng(4))[:, 20:]
    code = sum(tokens[:, reach - m : 120 - m] * 2**m for m in range(reach + 1))
    found = torch.bincount(code.flatten(), minlength=16) / code.numel()
    torch.testing.assert_close(found.double(), table.flatten(), atol=0.012, rtol=0)


def test_short_windows_are_sums_of_long_ones():
    chains = mc.random_chains(3, parents=(1, 3), generator=rng())
    torch.testing.assert_close(mc.window_law(chains, 1), mc.window_law(chains, 4).sum(dim=(1, 2, 3)))


def test_draws_follow_the_parents_and_not_their_mirror():
    """x_t = x_{t-1} + 2 x_{t-3} modulo 3, with certainty."""
    law = torch.zeros(1, 3, 3, 3, dtype=torch.float64)
    for far in range(3):
        for near in range(3):
            law[0, far, near, (near + 2 * far) % 3] = 1
    tokens = mc.draw_tokens(Chains(law, (1, 3)), 40, generator=rng(1))[0]
    assert torch.equal(tokens[3:], (tokens[2:-1] + 2 * tokens[:-3]) % 3)
    assert not torch.equal(tokens[3:], (2 * tokens[2:-1] + tokens[:-3]) % 3)


def test_laws_are_dirichlet():
    """For Dirichlet(alpha) on S tokens an entry has the variance (S - 1) / (S^2 (S alpha + 1))."""
    law = mc.random_chains(4000, parents=(1,), alpha=0.1, generator=rng()).law
    torch.testing.assert_close(law.sum(dim=-1), torch.ones_like(law[..., 0]))
    assert float(law.var()) == pytest.approx(2 / (9 * 1.3), rel=0.03)


@pytest.mark.parametrize(("parents", "alpha"), [((1,), 0.1), ((2,), 0.3), ((1, 2), 0.1), ((1, 3), 1.0)])
def test_superfluous_lags_lose_on_every_chain_and_tie_under_plain_chi_square(parents, alpha):
    table = mc.next_table(mc.random_chains(40, parents=parents, alpha=alpha, generator=rng(7)), 3)
    best, plain = mc.criterion(table, parents), mc.chi_square(table, parents)
    for lags in sets(3):
        assert (mc.chi_square(table, lags) <= plain + 1e-9).all()
        if set(lags) > set(parents):
            torch.testing.assert_close(mc.chi_square(table, lags), plain)
            assert (mc.criterion(table, lags) <= best + 1e-12).all()
            assert float((best - mc.criterion(table, lags)).mean()) > 0.005


def test_a_missing_parent_can_win_on_a_single_chain():
    """The second parent hardly matters: leaving it out matches more places."""
    weak = Chains(f64([[[[0.9, 0.1], [0.1, 0.9]], [[0.88, 0.12], [0.12, 0.88]]]]), (1, 2))
    table = mc.next_table(weak, 2)
    assert float(mc.criterion(table, (1,))) > 1.1 * float(mc.criterion(table, (1, 2)))


@pytest.mark.parametrize(("parents", "tokens"), [((1, 2), 3), ((1, 2, 3), 2)])
def test_near_uniform_laws_have_the_ratios_of_the_formula(parents, tokens):
    """S^-r (1 - S^-j) / (1 - S^-k) for j of the k parents and r other lags."""
    chains = mc.random_chains(3000, parents=parents, tokens=tokens, alpha=500.0, generator=rng())
    table, k = mc.next_table(chains, 3), len(parents)
    whole = float(mc.criterion(table, parents).mean())
    for lags in sets(3)[1:]:
        j = len(set(lags) & set(parents))
        wanted = tokens ** (j - len(lags)) * (1 - tokens**-j) / (1 - tokens**-k)
        assert float(mc.criterion(table, lags).mean()) / whole == pytest.approx(wanted, abs=0.04), lags


# Predictors


def test_the_head_counts_what_followed_matches():
    """0 1 0 1 2 0 1: after "0 1" came 0 and 2; after "1" the same; unigram shares of all seven."""
    tokens = torch.tensor([[0, 1, 0, 1, 2, 0, 1]])
    torch.testing.assert_close(mc.generalised_head(tokens, (1, 2), 3), f64([[0.5, 0, 0.5]]))
    torch.testing.assert_close(mc.generalised_head(tokens, (), 3), f64([[3, 3, 1]]) / 7)
    # Two places before the place to come stands 0; two places after a 0 stood 0, 2 and, at the end, nothing yet.
    torch.testing.assert_close(mc.generalised_head(tokens, (2,), 3), f64([[0.5, 0, 0.5]]))


def test_without_a_match_the_head_is_the_unigram():
    tokens = torch.tensor([[0, 0, 1, 0, 0, 2]])
    torch.testing.assert_close(mc.generalised_head(tokens, (1,), 3), f64([[3, 1, 1]]) / 5)


def test_the_oracle_is_the_best_and_uniform_the_guess():
    chains = mc.random_chains(2000, parents=(1, 2), generator=rng())
    tokens = mc.draw_tokens(chains, 101, generator=rng(1))
    seen, target = tokens[:, :-1], tokens[:, -1]
    losses = [
        float(mc.cross_entropy(p, target))
        for p in (
            mc.oracle(chains, seen),
            *(mc.generalised_head(seen, lags, 3) for lags in ((1, 2), (1,), ())),
        )
    ]
    assert losses == sorted(losses)
    assert (
        losses[3]
        < float(mc.cross_entropy(torch.full((2000, 3), 1 / 3), target, eps=0))
        == pytest.approx(math.log(3))
    )


def test_the_oracle_reads_the_right_parents():
    law = torch.rand(1, 3, 3, 3, generator=rng(), dtype=torch.float64)
    chains = Chains(law / law.sum(-1, keepdim=True), (1, 3))
    tokens = torch.tensor([[0, 2, 1, 0]])
    torch.testing.assert_close(mc.oracle(chains, tokens)[0], chains.law[0, 2, 0])


# Bad input


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mc.random_chains(2, parents=(2, 1)), r"parents must be different lags.*\(2, 1\)"),
        (lambda: mc.random_chains(2, parents=(0,)), "parents must be different lags"),
        (lambda: mc.random_chains(2, parents=(1,), alpha=0), "alpha must be a positive finite number, got 0"),
        (lambda: mc.random_chains(0, parents=(1,)), "count must be at least 1"),
        (lambda: Chains(torch.ones(2, 3, 2), (1,)), "law must have shape"),
        (
            lambda: mc.random_chains(2, parents=(3,)).next_law(2),
            "length must be at least the order, 3, got 2",
        ),
        (lambda: mc.draw_tokens(mc.random_chains(2, parents=(3,)), 2), "length must be at least the order"),
        (lambda: mc.window_law(mc.random_chains(2, parents=(1,)), 0), "length must be at least 1, got 0"),
        (lambda: mc.criterion(torch.ones(1, 2, 2), (2,)), "lags must be .* and at most 1"),
        (
            lambda: mc.generalised_head(torch.zeros(1, 3, dtype=torch.int64), (3,), 2),
            "lags must be .* at most 2",
        ),
        (
            lambda: mc.oracle(mc.random_chains(2, parents=(1,)), torch.zeros(1, 3, dtype=torch.int64)),
            "tokens must hold 2 sequences",
        ),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
