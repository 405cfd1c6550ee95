"""Detectors by F1: the fast choice is the readable one, and held-out rows decide nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.interpret import detectors
from course_lib.interpret.concepts import LabelledRows, f1_scores
from course_lib.interpret.detectors import (
    best_concepts,
    best_detectors,
    best_detectors_by_columns,
    joined_detectors,
    judge,
    strongest_of_equals,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def table(seed, *, rows=40, units=6, concepts=5, zeros=0.0, levels=3):
    g = generator(seed)
    scores = (torch.randn(rows, units, generator=g) * levels).round() / levels
    scores[torch.rand(rows, units, generator=g) < zeros] = 0
    labels = torch.rand(rows, concepts, generator=g) < 0.3
    labels[0] = True
    return scores, labels


@pytest.mark.parametrize("share", [1, 4, 16])
@given(seed=st.integers(0, 10**6), zeros=st.sampled_from([0.0, 0.7]), levels=st.sampled_from([1, 1000]))
def test_the_fast_choice_is_the_readable_one(share, seed, zeros, levels):
    """With all concepts rare, some of them or none."""
    scores, labels = table(seed, zeros=zeros, levels=levels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detectors, "_RARE", share)
        patch.setattr(detectors, "_TRIPLES", 30)  # so that what one block finds shortens the next
        fast = best_detectors(scores, labels)
    plain = best_detectors_by_columns(scores, labels)
    torch.testing.assert_close(fast.f1, plain.f1, atol=1e-12, rtol=0)
    assert torch.equal(fast.unit, plain.unit)
    torch.testing.assert_close(f1_scores(fast.calls(scores), labels), fast.f1, atol=1e-12, rtol=0)


@given(seed=st.integers(0, 10**6), levels=st.sampled_from([1, 1000]))
def test_a_unit_s_best_concept_is_that_furthest_above_always_yes(seed, levels):
    """Against every threshold above 0 of every concept, some of which most rows hold."""
    scores, labels = table(seed, zeros=0.3, levels=levels)
    scores[:, 2] = -1.0  # never above 0
    labels[:, 0] = torch.rand(len(labels), generator=generator(seed)) < 0.8
    labels[0], labels[:, 1] = True, True  # all rows hold one concept
    concept, found = best_concepts(scores.relu(), labels)
    assert found.unit.tolist() == [unit for unit in range(scores.shape[1]) if (scores[:, unit] > 0).any()]
    share = labels.double().mean(dim=0)
    chance = 2 * share / (1 + share)
    for unit, own, f1 in zip(found.unit.tolist(), concept.tolist(), found.f1, strict=True):
        column = scores[:, unit].relu()
        cuts = column.unique()[:-1]
        all_f1 = torch.stack([f1_scores((column > cut)[:, None].expand_as(labels), labels) for cut in cuts])
        above = ((all_f1 - chance) / (1 - chance)).where(chance < 1, -1)
        assert (f1 - chance[own]) / (1 - chance[own]) == pytest.approx(above.max().item(), abs=1e-9)
        assert own != 1
    assert (found.threshold > 0).all()
    torch.testing.assert_close(f1_scores(found.calls(scores), labels[:, concept]), found.f1)
    for values, what, message in (
        (scores[1:], labels, "scores has 39 rows, labels 40"),
        (scores, labels * 0 > 0, "concept 0"),
    ):
        with pytest.raises(ValueError, match=message):
            best_concepts(values, what)


@given(st.integers(0, 10**6))
def test_a_sparse_table_gives_the_detectors_that_call_entries_above_zero(seed):
    scores, labels = table(seed, zeros=0.5, levels=2)
    scores = scores.relu()
    scores[0] = 1.0
    found = best_detectors(scores.to_sparse_coo(), labels)
    assert (found.threshold > 0).all()
    torch.testing.assert_close(f1_scores(found.calls(scores), labels), found.f1, atol=1e-12, rtol=0)
    candidates = [c for c in scores.unique().tolist() if c > 0]
    best = max_f1(scores, labels, [c - 1e-3 for c in candidates])
    torch.testing.assert_close(found.f1, best, atol=1e-12, rtol=0)


@given(st.integers(0, 10**6))
def test_of_equal_units_the_strongest_at_the_concept_is_taken(seed):
    scores, labels = table(seed, units=12, zeros=0.6, levels=1)
    scores = scores.relu()
    scores[0] = 1.0
    best = best_detectors(scores.to_sparse_coo(), labels)
    found, equals = strongest_of_equals(best, scores, labels)
    torch.testing.assert_close(f1_scores(found.calls(scores), labels), best.f1, atol=1e-12, rtol=0)
    for concept, label in enumerate(labels.T):
        columns = [scores[:, [unit]] for unit in range(scores.shape[1])]
        each = torch.cat([best_detectors(c.to_sparse_coo(), label[:, None]).f1 for c in columns])
        equal = (each >= each.max() - 1e-12).nonzero()[:, 0].tolist()
        means = {unit: float(scores[label, unit].mean()) for unit in equal}
        assert int(equals[concept]) == len(equal)
        assert means[int(found.unit[concept])] == pytest.approx(max(means.values()))


def max_f1(scores, labels, thresholds):
    each = [
        f1_scores(scores[:, [u]].expand(-1, labels.shape[1]) > t, labels)
        for u in range(scores.shape[1])
        for t in thresholds
    ]
    return torch.stack(each).max(dim=0).values


def test_blocks_of_units_change_nothing(monkeypatch):
    scores, labels = table(3, rows=200, units=30, zeros=0.8)
    whole = [best_detectors(t, labels) for t in (scores, scores.relu().to_sparse_coo())]
    monkeypatch.setattr(detectors, "_TRIPLES", 500)
    for one, t in zip(whole, (scores, scores.relu().to_sparse_coo()), strict=True):
        again = best_detectors(t, labels)
        assert torch.equal(one.unit, again.unit)
        assert torch.equal(one.threshold, again.threshold)


def test_a_unit_for_a_whole_category_has_a_high_auroc_and_a_low_f1():
    """Ten tools of 1,000 rows each among 100,000: their common unit ranks hammers well and calls nine others too."""
    g = generator(1)
    rows = 20_000
    tool = torch.randint(0, 100, (rows,), generator=g)  # 0 to 9 are tools, 0 is the hammer
    labels = (tool == 0)[:, None]
    common = (tool < 10).float() + 0.1 * torch.rand(rows, generator=g)
    halves = [slice(None, rows // 2), slice(rows // 2, None)]
    sides = [LabelledRows(common[h, None], labels[h]) for h in halves]
    judged = judge(
        best_detectors(common[halves[0], None], sides[0].labels), common[halves[1], None], sides[1]
    )
    assert judged.auroc[0] > 0.94
    assert judged.f1[0] < 0.25
    own = labels.float()
    both = torch.cat([common[:, None], own], dim=1)
    judged = judge(best_detectors(both[halves[0]], sides[0].labels), both[halves[1]], sides[1])
    assert judged.detectors.unit[0] == 1
    assert judged.f1[0] == 1


def test_noise_is_chosen_on_training_rows_and_worthless_on_others():
    g = generator(5)
    train, held_out = torch.rand(2, 400, 2000, generator=g)
    labels = torch.rand(2, 400, 10, generator=g) < 0.05
    labels[:, 0] = True
    judged = judge(best_detectors(train, labels[0]), held_out, LabelledRows(torch.zeros(400, 1), labels[1]))
    assert judged.detectors.f1.min() > 0.2
    assert judged.f1.mean() < 0.1


def test_one_unit_in_several_languages_is_counted_and_others_are_not():
    languages = ["de_DE", "en_XX", "es_XX", "fr_XX"] * 50
    g = generator(2)
    labels = torch.rand(200, 2, generator=g) < 0.4
    labels[:, 1] &= ~labels[:, 0]
    english = torch.tensor([name == "en_XX" for name in languages])
    scores = torch.stack([labels[:, 0].float(), (labels[:, 1] & english).float()], dim=1)
    rows = LabelledRows(scores, labels, languages)
    sparse = scores.to_sparse_coo()  # of which only entries above 0 can be called
    judged = judge(best_detectors(sparse, labels), sparse, rows)
    assert judged.languages.tolist() == [4, 1]
    called = scores[:, judged.detectors.unit] > judged.detectors.threshold
    assert judged.calls.tolist() == called.sum(dim=0).tolist()
    assert judged.hits.tolist() == (called & labels).sum(dim=0).tolist()
    assert torch.allclose(judged.f1, 2 * judged.hits.double() / (judged.calls + judged.positives))
    assert judged.scored.tolist() == [4, 4]
    assert (judged.shared(), judged.shared(1)) == (0.5, 1.0)


def test_a_concept_split_between_units_needs_them_all():
    g = generator(4)
    label = torch.rand(600, generator=g) < 0.3
    part = torch.randint(0, 3, (600,), generator=g)
    scores = torch.stack(
        [(label & (part == i)).float() for i in range(3)] + [torch.rand(600, generator=g) * 0.5], dim=1
    )
    labels = label[:, None]
    f1 = joined_detectors(scores[:300], labels[:300], scores[300:], labels[300:], sizes=(1, 2, 4))
    assert f1[0, 0] < 0.65
    assert f1[0, 0] + 0.1 < f1[1, 0] < 0.95
    assert f1[2, 0] == 1


def test_what_does_not_fit_is_refused():
    scores, labels = table(0)
    with pytest.raises(ValueError, match="scores has 39 rows, labels 40"):
        best_detectors(scores[1:], labels)
    labels[:, 2] = False
    with pytest.raises(ValueError, match="no positive row for concept 2"):
        best_detectors(scores, labels)
    scores[3, 1] = float("nan")
    labels[:, 2] = True
    with pytest.raises(ValueError, match="NaN or infinite"):
        best_detectors(scores, labels)
    found = best_detectors(scores.nan_to_num(), labels)
    with pytest.raises(ValueError, match="labels for 4 concepts, found 5 detectors"):
        judge(found, scores, LabelledRows(scores, labels[:, 1:]))
