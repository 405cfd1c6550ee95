"""Directions made from labels, centres of clusters, and word pieces: against slow or independent computations."""

import pytest
import torch

from course_lib.interpret import rivals
from course_lib.interpret.concepts import LabelledRows, best_thresholds, f1_scores


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    labels = torch.rand(300, 3, generator=generator) < 0.3
    states[labels[:, 0]] += torch.tensor([2.0, 0, 0, 0, 0, 1.0], dtype=torch.float64)
    return states, labels


def test_the_difference_of_means_is_that_of_two_means(rows):
    states, labels = rows
    found = rivals.difference_of_means(states, labels)
    for i in range(3):
        expected = states[labels[:, i]].mean(dim=0) - states[~labels[:, i]].mean(dim=0)
        torch.testing.assert_close(found[:, i], expected)


def test_a_concept_needs_rows_of_both_kinds(rows):
    states, labels = rows
    for bad in (torch.zeros_like(labels), torch.ones_like(labels)):
        with pytest.raises(ValueError, match="rows of both kinds"):
            rivals.difference_of_means(states, bad)


def test_discriminants_have_the_direction_of_scikit_learns(rows):
    analysis = pytest.importorskip("sklearn.discriminant_analysis")
    states, labels = rows
    found = rivals.discriminants(states, labels, shrinkage=0.0)
    for i in range(3):
        model = analysis.LinearDiscriminantAnalysis(solver="lsqr").fit(states.numpy(), labels[:, i].numpy())
        expected = torch.from_numpy(model.coef_[0])
        cosine = torch.nn.functional.cosine_similarity(found[:, i], expected, dim=0)
        assert float(cosine) == pytest.approx(1, abs=1e-9)


def test_much_shrinkage_gives_the_difference_of_means(rows):
    found, means = rivals.discriminants(*rows, shrinkage=1e5), rivals.difference_of_means(*rows)
    assert (torch.nn.functional.cosine_similarity(found, means, dim=0) > 1 - 1e-9).all()
    with pytest.raises(ValueError, match="shrinkage is -1"):
        rivals.discriminants(*rows, shrinkage=-1)


def test_the_covariance_may_be_that_of_other_rows(rows):
    states, labels = rows
    own = rivals.discriminants(states, labels, shrinkage=0.1)
    torch.testing.assert_close(rivals.discriminants(states, labels, shrinkage=0.1, unlabelled=states), own)
    wide = states * torch.tensor([10.0, 1, 1, 1, 1, 1], dtype=torch.float64)
    other = rivals.discriminants(states, labels, shrinkage=0.0, unlabelled=wide)
    plain = rivals.discriminants(states, labels, shrinkage=0.0)
    assert float(other[0, 0].abs()) < 0.2 * float(plain[0, 0].abs())


def test_refitted_discriminants_are_those_of_the_strongest_tokens(rows):
    """Against a loop over sentences; of a planted word the fit finds the token, and is as if it had been told."""
    states, _ = rows
    groups = torch.arange(300) // 3
    labels = torch.rand(100, 2, generator=torch.Generator().manual_seed(3)) < 0.3
    word = torch.zeros(300, 2, dtype=torch.bool)
    for sentence, concept in labels.nonzero().tolist():
        word[3 * sentence + (sentence + concept) % 3, concept] = True
    states = states + 6 * word.double() @ torch.eye(6, dtype=torch.float64)[1:3]
    text = LabelledRows(states, labels, groups=groups)
    found = rivals.refitted_discriminants(text, shrinkage=0.5)
    first = states @ rivals.discriminants(states, labels[groups], shrinkage=0.5)
    strongest = torch.zeros_like(word)
    for sentence, concept in labels.nonzero().tolist():
        strongest[3 * sentence + int(first[groups == sentence, concept].argmax()), concept] = True
    torch.testing.assert_close(found, rivals.discriminants(states, strongest, shrinkage=0.5))
    assert torch.equal(strongest, word)
    alone = LabelledRows(states, word)
    torch.testing.assert_close(rivals.refitted_discriminants(alone, shrinkage=0.5), found)


def test_kmeans_finds_planted_directions():
    generator = torch.Generator().manual_seed(1)
    planted = torch.nn.functional.normalize(torch.randn(5, 20, generator=generator), dim=1)
    states = planted.repeat_interleave(60, dim=0) * (1 + torch.rand(300, 1, generator=generator))
    states += 0.02 * torch.randn(300, 20, generator=generator)
    centres = rivals.spherical_kmeans(states, 20, rounds=10, generator=generator)
    assert centres.norm(dim=1).allclose(torch.ones(20))
    assert ((planted @ centres.T).amax(dim=1) > 0.99).all()
    with pytest.raises(ValueError, match="n_centres is 301"):
        rivals.spherical_kmeans(states, 301, generator=generator)


def test_pieces_are_marked_once_where_they_stand():
    token, sentence = torch.tensor([3, 1, 3, 0]), torch.tensor([0, 0, 0, 1])
    table = rivals.piece_table(token, sentence, n_sentences=2, n_pieces=4).to_dense()
    assert table.tolist() == [[0, 1, 0, 1], [1, 0, 0, 0]]


def test_projections_are_the_largest_over_a_sentences_tokens(rows):
    states, labels = rows
    groups = torch.arange(300) // 3
    text = LabelledRows(states, labels[:100], ["en_XX"] * 50 + ["de_DE"] * 50, groups=groups)
    directions = torch.randn(6, 300, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = rivals.largest_projections(text, directions, mean=states.mean(dim=0))
    expected = ((states - states.mean(dim=0)) @ directions).view(100, 3, 300).amax(dim=1)
    torch.testing.assert_close(found, expected)
    scores = found[:, :3]
    own = rivals.own_detectors(scores, text.labels)
    torch.testing.assert_close(own.threshold, best_thresholds(scores, text.labels))
    torch.testing.assert_close(own.f1, f1_scores(scores > own.threshold, text.labels))
    by_language = dict(rivals.language_scores(own, scores, text))
    assert list(by_language) == ["en_XX", "de_DE"]
    torch.testing.assert_close(by_language["de_DE"], f1_scores(own.calls(scores)[50:], text.labels[50:]))


def test_a_language_without_the_word_has_no_score():
    text = LabelledRows(torch.ones(2, 1), torch.tensor([[True], [False]]), ["en_XX", "de_DE"])
    scores = torch.tensor([[1.0], [0.0]])
    found = rivals.own_detectors(scores, text.labels)
    by_language = dict(rivals.language_scores(found, scores, text))
    assert float(by_language["en_XX"][0]) == 1
    assert by_language["de_DE"].isnan().all()
