"""Guests in two rooms: what is counted, which bounds hold, and where they are exact."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from course_lib.theory import frustration as fr
from course_lib.theory.sparse_socp import lattice_edges, sdp, signed_graph, socp


def rng(seed):
    return torch.Generator().manual_seed(seed)


def by_counting(guests, x):
    total = 0.0
    for (i, j), sign, weight in zip(guests.pairs, guests.signs, guests.weights, strict=True):
        together = x[i] == x[j]
        total += weight * (together == (sign > 0))
    return total


def random_party(seed, *, rows=3, columns=4, **kind):
    return fr.grid(rows, columns, share=0.4, equal=False, generator=rng(seed), **kind)


@pytest.mark.parametrize("wrap", [False, True])
def test_the_weight_of_unhappy_pairs_is_that_by_counting(wrap):
    guests = random_party(0, wrap=wrap)
    for x in torch.randn(5, 12, generator=rng(1)).sign().numpy():
        assert guests.unhappy(x) == pytest.approx(by_counting(guests, x))
        assert guests.problem().forms(x)[0] + guests.weights.sum() / 2 == pytest.approx(guests.unhappy(x))


def test_lattices_have_the_pairs_of_neighbours_and_their_squares():
    plane = fr.grid(4, 4, generator=rng(0))
    assert {*map(tuple, plane.pairs.tolist())} == {*map(tuple, lattice_edges(4).tolist())}
    assert len(plane.squares) == 9
    assert all(len({*plane.around(square)}) == 4 for square in plane.squares)
    torus = fr.grid(4, 5, wrap=True, generator=rng(0))
    assert (len(torus.pairs), len(torus.squares)) == (40, 20)
    assert (np.bincount(torus.pairs.ravel()) == 4).all()
    assert len(np.unique(torus.pairs, axis=0)) == 40


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="as many"):
        fr.Guests(2, np.array([[0, 1]]), np.ones(2), np.ones(1))
    with pytest.raises(ValueError, match="above 0"):
        fr.Guests(2, np.array([[0, 1]]), np.ones(1), np.zeros(1))
    with pytest.raises(ValueError, match="1 or -1"):
        fr.Guests(2, np.array([[0, 1]]), np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match="walk along pairs"):
        fr.Guests(3, np.array([[0, 1]]), np.ones(1), np.ones(1), ((0, 1, 2),))
    with pytest.raises(ValueError, match="at least 3"):
        fr.grid(2, 4, wrap=True, generator=rng(0))
    with pytest.raises(ValueError, match="at most 20"):
        fr.best_seating(fr.grid(3, 7, generator=rng(0)))


def test_the_best_seating_is_the_best_of_all():
    guests = random_party(2, rows=3, columns=3)
    least = min(by_counting(guests, np.array(x)) for x in product((-1.0, 1.0), repeat=9))
    assert fr.fewest_unhappy(guests) == pytest.approx(least)
    assert by_counting(guests, fr.best_seating(guests)) == pytest.approx(least)


@pytest.mark.parametrize("kind", [{}, {"wrap": True}])
def test_row_by_row_finds_the_least_of_all(kind):
    guests = random_party(6, **kind)
    assert fr.fewest_row_by_row(guests) == pytest.approx(fr.fewest_unhappy(guests))
    assert fr.fewest_row_by_row(fr.complete(7)) == 9
    turned = replace(guests, pairs=guests.pairs[:, ::-1])
    assert fr.fewest_row_by_row(turned) == pytest.approx(fr.fewest_unhappy(guests))
    with pytest.raises(ValueError, match="20 apart"):
        fr.fewest_row_by_row(fr.complete(22))


def test_annealing_finds_small_minima_and_no_lower_ones():
    for guests in (random_party(7), fr.everybody(12, generator=rng(0))):
        seats = fr.annealed(guests, chains=10, sweeps=60, generator=rng(1))
        assert {*seats.tolist()} <= {-1.0, 1.0}
        assert guests.unhappy(seats) == pytest.approx(fr.fewest_unhappy(guests))
    hot = fr.annealed(guests, chains=1, sweeps=0, generator=rng(1))
    assert guests.unhappy(hot) > fr.fewest_unhappy(guests) + 0.1
    share = (fr.everybody(60, generator=rng(2)).signs > 0).mean()
    assert 0.45 < share < 0.55


def test_rules_allow_exactly_the_patterns_of_the_right_parity():
    guests = random_party(3)
    for square in guests.squares:
        places = guests.around(square)
        found = fr.rules(guests, square)
        assert len(found) == 8
        for pattern in product((0, 1), repeat=4):
            u = np.full(len(guests.pairs), 0.3)
            u[places] = pattern
            kept = all(row @ u >= right - 1e-12 for row, right in found)
            assert kept == (sum(pattern) % 2 == guests.is_odd(square))
    odd = guests.odd_squares()
    for (row, right), square in zip(fr.odd_squares_only(guests), odd, strict=True):
        assert right == 1
        assert sorted(np.flatnonzero(row)) == sorted(guests.around(square))
        assert row.sum() == 4


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wrap", [False, True])
def test_bounds_hold_in_their_order(seed, wrap):
    guests = random_party(seed, wrap=wrap)
    truth = fr.fewest_unhappy(guests)
    odd = fr.bound_by_rules(guests, fr.odd_squares_only(guests))
    squares = fr.bound_by_rules(guests, fr.every_square(guests))
    cycles, u, used = fr.every_cycle(guests)
    together = fr.semidefinite_bound(guests)
    both = fr.semidefinite_bound(guests, fr.odd_squares_only(guests))
    assert 0 <= odd <= squares + 1e-7 <= cycles + 2e-7 <= truth + 3e-7
    assert max(together, odd) <= both + 1e-5 <= truth + 2e-5
    assert used >= len(guests.odd_squares())
    assert ((u >= -1e-9) & (u <= 1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(20, 26))
def test_all_cycles_are_exact_on_plane_lattices_and_their_seating_reaches_them(seed):
    guests = fr.grid(4, 4, share=0.3, equal=False, generator=rng(seed))
    value, u, _ = fr.every_cycle(guests)
    assert value == pytest.approx(fr.fewest_unhappy(guests), abs=1e-6)
    assert guests.unhappy(fr.seating_of(guests, u)) == pytest.approx(value, abs=1e-6)


def test_cones_with_rules_are_the_linear_programme():
    guests = fr.grid(3, 3, share=0.4, equal=False, generator=rng(7))
    problem = guests.problem()
    assert socp(problem).value + guests.weights.sum() / 2 == pytest.approx(0, abs=1e-6)
    assert fr.bound_by_rules(guests, []) == 0
    unit = replace(guests, weights=np.ones(12))
    by_graph = sdp(signed_graph(9, unit.pairs, unit.signs)).value
    assert fr.semidefinite_bound(unit) == pytest.approx((24 + by_graph) / 4, abs=1e-5)


def test_known_values_of_complete_graphs():
    three, seven = fr.complete(3), fr.complete(7)
    assert fr.fewest_unhappy(three) == 1
    assert fr.semidefinite_bound(three) == pytest.approx(0.75, abs=1e-5)
    assert fr.every_cycle(three)[0] == pytest.approx(1)
    assert fr.fewest_unhappy(seven) == 9
    assert fr.every_cycle(seven)[0] == pytest.approx(7)


def test_switching_a_guest_changes_no_bound():
    guests = random_party(5)
    turned = replace(guests, signs=np.where((guests.pairs == 4).any(1), -1, 1) * guests.signs)
    assert [guests.is_odd(square) for square in guests.squares] == [
        turned.is_odd(square) for square in turned.squares
    ]
    assert fr.fewest_unhappy(turned) == pytest.approx(fr.fewest_unhappy(guests))
    assert fr.every_cycle(turned)[0] == pytest.approx(fr.every_cycle(guests)[0], abs=1e-6)


def test_no_rounds_no_bound():
    with pytest.raises(RuntimeError, match="still broken"):
        fr.every_cycle(fr.complete(5), rounds=1)
