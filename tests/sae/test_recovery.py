from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.sae import recovery
from course_lib.sae.planted import PlantedDictionary


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted(n_atoms=40, d_model=16):
    generator = torch.Generator().manual_seed(0)
    return PlantedDictionary(n_atoms, d_model, generator=generator, dtype=torch.float64).atoms


def test_by_hand():
    atoms = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    # One column serves the first atom; the second has it at 0.6, and is left with the opposite direction.
    decoder = torch.tensor([[8.0, 0.0], [6.0, -2.0]])
    got = recovery.recovery(decoder, atoms)
    assert got.mmcs == pytest.approx((0.8 + 0.6) / 2)
    # cosines 0.8 with -1 or 0.6 with 0: the second pairing has the larger sum
    assert got.matched_cosines.tolist() == pytest.approx([0, 0.6])
    assert got.share_matched(0.6 - 1e-6) == 0.5
    assert got.share_matched(0.7) == 0


@given(st.integers(0, 10**6))
def test_the_assignment_is_the_best_of_all(seed):
    table = normal(4, 6, seed=seed)
    rows, columns = recovery.assign(table)
    best = max(sum(table[i, j].item() for i, j in enumerate(p)) for p in permutations(range(6), 4))
    assert table[rows, columns].sum().item() == pytest.approx(best)
    assert len(set(columns.tolist())) == 4


def test_a_found_dictionary_is_found_whatever_its_order_and_sizes():
    atoms = planted()
    columns = torch.cat([atoms, normal(20, 16)])[
        torch.randperm(60, generator=torch.Generator().manual_seed(1))
    ]
    decoder = (columns * normal(60, 1, seed=2).abs()).T
    got = recovery.recovery(decoder, atoms)
    assert got.mmcs == pytest.approx(1)
    assert got.share_matched(0.9) == 1
    noisy = recovery.recovery(decoder + 0.25 * decoder.norm(dim=0) * normal(16, 60, seed=3), atoms)
    assert noisy.share_matched(0.9) < noisy.share_matched(0.5)


def test_opposite_directions_are_not_the_same_feature():
    atoms = torch.eye(3)
    assert recovery.recovery(-atoms, atoms).mmcs == 0
    assert recovery.recovery(-atoms, atoms).share_matched(0.1) == 0


def test_dead_columns_and_atoms_without_a_feature():
    atoms = torch.eye(3)
    decoder = torch.zeros(3, 2)
    decoder[:, 0] = atoms[0] * 5
    got = recovery.recovery(decoder, atoms)
    assert got.matched_cosines.sort().values.tolist() == [-1, 0, 1]
    assert got.mmcs == pytest.approx(1 / 3)


def test_agreement_stands_beside_that_of_untrained_runs():
    same = normal(8, 30)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    runs = [same, same[:, order] * 3, same[:, order.flip(0)]]
    untrained = [normal(8, 30, seed=s) for s in (5, 6, 7)]
    got = recovery.agreement(runs, untrained=untrained)
    assert set(got.trained) == {(0, 1), (0, 2), (1, 2)}
    assert got.mean == pytest.approx(1)
    # Directions that have nothing in common agree far above 0: 30 of them are dense in 8 dimensions.
    assert 0.4 < got.untrained_mean < 0.8
    assert recovery.agreement(untrained, untrained=untrained).mean == pytest.approx(got.untrained_mean)


def test_two_runs_are_too_few():
    runs = [normal(4, 6, seed=s) for s in range(3)]
    with pytest.raises(ValueError, match="got 2 decoders and 3 untrained"):
        recovery.agreement(runs[:2], untrained=runs)


def test_an_atom_of_two_features_is_split():
    decoder = torch.tensor([[1.0, 4.0, 0.0, 0.6], [0.0, 1.0, 2.0, -0.8]])
    assert recovery.share_split(decoder, torch.eye(2)) == 0.5
    assert recovery.share_split(decoder, torch.eye(2), cosine=0.98) == 0


def test_absorption_by_hand():
    """Atom 0 is general with kinds 1 and 2, atom 3 general with 4, atom 5 stands alone."""
    parents, atoms = [-1, 0, 0, -1, 3, -1], torch.eye(6)
    codes = torch.tensor([
        [1.0, 0, 0, 0, 0, 0], [1.0, 0, 0, 1, 0, 1], [1.0, 1, 0, 1, 1, 0], [2.0, 0, 1, 0, 0, 0], [1.0, 1, 1, 1, 0, 0],
    ])  # fmt: skip
    honest = recovery.absorption(codes, codes, parents=parents, decoder_weight=atoms.T, atoms=atoms)
    assert honest == recovery.Absorption(0.0, 0.0, 2)
    features = codes.clone()
    features[codes[:, 1] > 0, 0] = 0  # the general feature is silent where kind 1 is
    features[1, 3] = 0
    got = recovery.absorption(features, codes, parents=parents, decoder_weight=atoms.T, atoms=atoms)
    # of 0: rows 2, 3, 4 with a kind, two of them silent; of 3: row 2 with, rows 1 and 4 without, one silent
    assert (got.with_special, got.alone, got.n_general) == (pytest.approx(1 / 3), 0.25, 2)
    unknown = recovery.absorption(features, codes, parents=parents, decoder_weight=-atoms.T, atoms=atoms)
    assert unknown.n_general == 0
    assert unknown.with_special != unknown.with_special
