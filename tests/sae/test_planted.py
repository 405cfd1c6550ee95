"""Planted dictionaries have the atoms, codes and frequencies that were asked for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.sae.planted import PlantedDictionary, log_spaced_frequencies


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@given(
    n_atoms=st.integers(1, 40),
    d_model=st.integers(1, 30),
    n_rows=st.integers(1, 30),
    share=st.floats(0, 1),
    unit_rows=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_rows_are_codes_times_atoms(n_atoms, d_model, n_rows, share, unit_rows, seed):
    generator = rng(seed)
    planted = PlantedDictionary(n_atoms, d_model, generator=generator, dtype=torch.float64)
    active = 1 + int(share * (n_atoms - 1))
    rows, codes = planted.draw(n_rows, active=active, generator=generator, unit_rows=unit_rows)
    torch.testing.assert_close(planted.atoms.norm(dim=1), torch.ones(n_atoms, dtype=torch.float64))
    assert rows.shape == (n_rows, d_model)
    assert ((codes > 0).sum(dim=1) == active).all()
    assert (codes >= 0).all()
    torch.testing.assert_close(rows, codes @ planted.atoms, rtol=1e-9, atol=1e-9 * float(codes.max()))
    if unit_rows:
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(n_rows, dtype=torch.float64))
    else:
        assert codes.max() <= 1.5
        assert codes[codes > 0].min() >= 0.5


def test_the_same_seed_gives_the_same_data_and_another_one_does_not():
    drawn = [
        PlantedDictionary(9, 5, generator=rng(s)).draw(20, active=2, generator=rng(s)) for s in (1, 1, 2)
    ]
    assert torch.equal(drawn[0].rows, drawn[1].rows)
    assert not torch.equal(drawn[0].rows, drawn[2].rows)


def test_every_atom_is_active_equally_often():
    planted = PlantedDictionary(16, 8, generator=rng())
    codes = planted.draw(20_000, active=4, generator=rng(1)).codes
    shares = (codes > 0).double().mean(dim=0)
    # Six standard errors of a share of 1/4 in 20,000 rows.
    assert (shares - 0.25).abs().max() < 6 * math.sqrt(0.25 * 0.75 / 20_000)


def test_kinds_of_rows_alternate_in_equal_parts():
    planted = PlantedDictionary(16, 8, generator=rng())
    counts = (planted.draw(101, active=(2, 8), generator=rng()).codes > 0).sum(dim=1)
    assert counts.tolist() == [2, 8] * 50 + [2]


def test_independent_atoms_have_the_frequencies_asked_for():
    planted = PlantedDictionary(6, 8, generator=rng())
    frequencies = torch.tensor([0.0, 0.02, 0.1, 0.3, 0.9, 1.0])
    drawn = planted.draw_independent(20_000, frequencies=frequencies, generator=rng(2), unit_rows=True)
    shares = (drawn.codes > 0).double().mean(dim=0)
    errors = (frequencies * (1 - frequencies) / 20_000).sqrt()
    assert ((shares - frequencies).abs() <= 6 * errors + 1e-12).all()


def test_a_special_atom_comes_with_its_general_one_only():
    planted = PlantedDictionary(4, 8, generator=rng())
    frequencies = torch.tensor([0.3, 0.5, 0.2, 0.5])
    drawn = planted.draw_nested(20_000, parents=[-1, 0, -1, 1], frequencies=frequencies, generator=rng(1))
    on = drawn.codes > 0
    assert not (on[:, 1] & ~on[:, 0]).any()
    assert not (on[:, 3] & ~on[:, 1]).any()
    expected = torch.tensor([0.3, 0.15, 0.2, 0.075], dtype=torch.float64)
    errors = (expected * (1 - expected) / 20_000).sqrt()
    assert ((on.double().mean(dim=0) - expected).abs() <= 6 * errors).all()
    torch.testing.assert_close(drawn.rows, drawn.codes @ planted.atoms)


def test_rows_without_an_atom_stay_zero():
    planted = PlantedDictionary(3, 4, generator=rng())
    drawn = planted.draw_independent(5, frequencies=torch.zeros(3), generator=rng(), unit_rows=True)
    assert torch.equal(drawn.rows, torch.zeros(5, 4))


@given(n_atoms=st.integers(2, 50), highest=st.floats(1e-3, 1), ratio=st.floats(1e-3, 1))
def test_log_spaced_frequencies_fall_in_equal_ratios(n_atoms, highest, ratio):
    frequencies = log_spaced_frequencies(n_atoms, highest=highest, lowest=ratio * highest)
    assert frequencies[0] == pytest.approx(highest)
    assert frequencies[-1] == pytest.approx(ratio * highest)
    steps = frequencies[1:] / frequencies[:-1]
    torch.testing.assert_close(steps, steps[0].expand(n_atoms - 1), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: PlantedDictionary(0, 3, generator=rng()), "n_atoms is 0"),
        (lambda p: PlantedDictionary(3, 0, generator=rng()), "d_model is 0"),
        (lambda p: p.draw(4, active=0, generator=rng()), "active is 0"),
        (lambda p: p.draw(4, active=(2, 7), generator=rng()), "from 1 to n_atoms = 6"),
        (lambda p: p.draw(4, active=[], generator=rng()), "active is "),
        (lambda p: p.draw(4, active=2, generator=rng(), strengths=(0.0, 1.0)), "strengths is"),
        (lambda p: p.draw(4, active=2, generator=rng(), strengths=(2.0, 1.0)), "strengths is"),
        (lambda p: p.draw_independent(4, frequencies=torch.ones(5), generator=rng()), "n_atoms = 6"),
        (lambda p: p.draw_independent(4, frequencies=torch.full((6,), 1.5), generator=rng()), "to 1.5"),
        (
            lambda p: p.draw_nested(
                4, parents=[-1, 2, -1, 0, 0, 0], frequencies=torch.full((6,), 0.5), generator=rng()
            ),
            r"parents are \[-1, 2, .*expected for each of 6 atoms the number of an atom before it, or -1",
        ),
        (lambda p: log_spaced_frequencies(4, highest=0.1, lowest=0.2), "lowest 0.2"),
    ],
)
def test_what_is_impossible_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call(PlantedDictionary(6, 4, generator=rng()))
