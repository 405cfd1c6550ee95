"""One rule names features: F1 above that of always yes, chosen in training and judged on held-out rows."""

import pytest

from course_lib.interpret.browser.index import concept_rows
from course_lib.interpret.concept_report import ConceptReport, ConceptScore
from course_lib.interpret.concepts import f1_scores
from course_lib.interpret.names import NAMED_FROM, FeatureName, above_chance, chance_f1, feature_names


def score(concept, unit, f1_train, f1, *, positives=40, sign=1):
    return ConceptScore(concept, "thing", 2 * positives, positives, unit, sign, 0.5, f1_train, f1, 0.9, 0, 0)


def report(*scores, named=()):
    settings = {"rows_train": 800, "rows_held_out": 400}
    lexical = frozenset(s.concept for s in scores)
    return ConceptReport({"features": list(scores)}, [], lexical, [], settings, named=list(named))


def test_chance_is_the_f1_of_always_yes():
    import torch

    labels = torch.arange(50)[:, None] < 30
    assert chance_f1(30, 50) == pytest.approx(f1_scores(torch.ones_like(labels), labels).item())
    assert above_chance(chance_f1(30, 50), chance_f1(30, 50)) == 0
    assert above_chance(1.0, chance_f1(30, 50)) == 1
    assert above_chance(1.0, chance_f1(50, 50)) == 0  # all rows hold it: nothing is above always yes


def test_a_frequent_concept_gives_no_name_for_an_f1_that_always_yes_has():
    # Always yes has 0.86 where three of four rows hold a concept, and 0.18 where one of ten does.
    found = feature_names(report(score("often", 1, 0.9, 0.87, positives=300), score("rare", 2, 0.9, 0.87)))
    assert found == {2: FeatureName("rare", 0.87, pytest.approx(80 / 440))}
    assert found[2].above_chance == pytest.approx((0.87 - 80 / 440) / (1 - 80 / 440))


@pytest.mark.parametrize(("step", "named"), [(-1e-3, False), (1e-3, True)])
def test_the_threshold_is_the_stated_one(step, named):
    chance = chance_f1(40, 400)
    f1 = chance + (NAMED_FROM + step) * (1 - chance)
    assert (1 in feature_names(report(score("a", 1, 0.9, f1)))) is named


def test_the_concept_is_chosen_in_training_and_judged_on_held_out_rows():
    better = score("best in training", 1, 0.95, 0.7), score("best held out", 1, 0.9, 0.99)
    assert feature_names(report(*better))[1].concept == "best in training"
    # What fails on held-out rows is not exchanged for what does not.
    worse = score("best in training", 1, 0.95, 0.2), score("best held out", 1, 0.9, 0.99)
    assert feature_names(report(*worse)) == {}


def test_a_feature_may_be_called_by_a_concept_that_another_detects_better():
    best, second = score("a", 1, 0.95, 0.95), score("a", 2, 0.9, 0.9)
    found = report(best, named=[best, second])
    assert {unit: name.concept for unit, name in feature_names(found).items()} == {1: "a", 2: "a"}
    rows = concept_rows(found)
    assert {
        unit: [(row["concept"], row["f1"], row["named"]) for row in of_unit] for unit, of_unit in rows.items()
    } == {
        1: [("a", 0.95, True)],
        2: [("a", 0.9, True)],
    }


def test_silence_is_no_name_and_without_scores_there_is_none():
    assert feature_names(report(score("a", 1, 0.99, 0.99, sign=-1))) == {}
    assert feature_names(None) == {}


def test_the_browser_marks_the_name_and_puts_it_first():
    made = report(score("a", 1, 0.95, 0.7), score("b", 1, 0.9, 0.99), score("c", 2, 0.9, 0.3))
    rows = concept_rows(made)
    assert [(row["concept"], row["named"]) for row in rows[1]] == [("a", True), ("b", False)]
    assert [(row["concept"], row["named"], row["chance"]) for row in rows[2]] == [("c", False, 0.1818)]
