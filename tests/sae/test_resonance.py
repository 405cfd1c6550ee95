"""Resonance steps are what their formula says; neurons find atoms when they fire about as often."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.sae.planted import PlantedDictionary
from course_lib.sae.resonance import (
    bias_for_frequency,
    firing_count,
    random_neurons,
    resonance_band,
    resonance_step,
    resonate,
    thresholds,
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@given(n_rows=st.integers(2, 60), share=st.floats(0.01, 0.99), seed=st.integers(0, 10_000))
def test_exactly_the_share_asked_for_lies_above_the_threshold(n_rows, share, seed):
    frequency = min(share, (n_rows - 1) / n_rows - 1e-3)
    projections = torch.randn(n_rows, 3, generator=rng(seed), dtype=torch.float64)
    count = firing_count(n_rows, frequency)
    above = (projections > thresholds(projections, frequency=frequency)).sum(dim=0)
    assert above.tolist() == [count] * 3
    assert abs(count - frequency * n_rows) <= 0.5 or count == 1


@given(n_rows=st.integers(4, 40), share=st.floats(0.1, 0.7), seed=st.integers(0, 10_000))
def test_a_step_is_the_weighted_sum_of_the_rows_that_fire(n_rows, share, seed):
    rows = torch.randn(n_rows, 5, generator=rng(seed), dtype=torch.float64)
    neurons = random_neurons(3, 5, generator=rng(seed + 1), dtype=torch.float64)
    moved = resonance_step(neurons, rows, frequency=share)
    count = firing_count(n_rows, share)
    for neuron, found in zip(neurons, moved, strict=True):
        ordered = sorted((float(row @ neuron) for row in rows), reverse=True)
        expected = sum(max(float(row @ neuron) - ordered[count], 0.0) * row for row in rows)
        torch.testing.assert_close(found, expected / expected.norm(), rtol=1e-6, atol=1e-6)


def test_orthogonal_atoms_one_a_row_a_neuron_keeps_as_many_as_it_has_room_for():
    atoms = torch.eye(8, dtype=torch.float64)
    rows = atoms.repeat(10, 1)
    neurons = torch.rand(5, 8, generator=rng(), dtype=torch.float64)
    neurons = neurons / neurons.norm(dim=1, keepdim=True)
    for room in (1, 2, 3):
        kept = resonate(neurons, rows, frequency=room / 8, steps=6)
        assert ((kept > 1e-12).sum(dim=1) == room).all()
        again = resonance_step(kept, rows, frequency=room / 8)
        torch.testing.assert_close(again, kept)


def test_a_neuron_that_no_row_lifts_stays():
    neurons = torch.tensor([[1.0, 0.0]])
    rows = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.0, -1.0]])
    assert torch.equal(resonance_step(neurons, rows, frequency=0.4), neurons)


@pytest.mark.parametrize("seed", range(3))
def test_half_the_frequency_recovers_and_eight_times_does_not(seed):
    generator = rng(seed)
    planted = PlantedDictionary(64, 32, generator=generator)
    rows = planted.draw(3000, active=2, generator=generator).rows
    start = random_neurons(512, 32, generator=generator)
    shares = []
    for ratio in (0.5, 8):
        neurons = resonate(start, rows, frequency=ratio / 32, steps=12)
        shares.append(((planted.atoms @ neurons.T).amax(dim=1) >= 0.9).double().mean())
    assert shares[0] >= 0.9
    assert shares[1] <= 0.05
    assert ((planted.atoms @ start.T).amax(dim=1) < 0.9).all()


def test_band_edges():
    assert resonance_band(64, 3) == pytest.approx((1 / 64, 0.0625))
    assert resonance_band(64, 2) == pytest.approx((1 / 64, 64**-0.75))
    low, high = resonance_band(64, 1)
    assert low == pytest.approx(high)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0.1, 10))
def test_the_bias_of_a_frequency_gives_that_frequency(frequency, deviation):
    bias = bias_for_frequency(frequency, deviation=deviation)
    assert 0.5 * math.erfc(-bias / deviation / math.sqrt(2)) == pytest.approx(frequency, rel=1e-6)


def test_a_bias_of_minus_two():
    assert bias_for_frequency(0.02275) == pytest.approx(-2, abs=1e-4)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: firing_count(10, 0.0), "frequency is 0.0"),
        (lambda: firing_count(10, 1.0), "leaves a row out"),
        (lambda: firing_count(10, 0.99), "leaves a row out"),
        (lambda: resonance_band(1, 1), "n_atoms is 1"),
        (lambda: resonance_band(8, 9), "active is 9"),
        (lambda: bias_for_frequency(0.0), "frequency is 0.0"),
        (lambda: bias_for_frequency(0.1, deviation=0.0), "deviation 0.0"),
    ],
)
def test_what_is_impossible_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
