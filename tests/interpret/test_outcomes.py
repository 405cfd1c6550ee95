"""Outcomes count effects, add up, and give shares with their intervals."""

import pytest

from course_lib.interpret.outcomes import Outcome
from course_lib.language.corpus import Meaning, Phrase
from course_lib.language.word_cases import Case, compare

FALLS = Meaning("fall", Phrase("apple", adjective="green"))


def test_outcomes_count_and_add_up():
    seen = [Case(FALLS, "food:apple", "de_DE", "fr_XX")] * 3
    texts = "La pomme verte tombe.", "Le chien vert tombe.", "La banane verte dort."
    found = [compare(c, text) for c, text in zip(seen, texts, strict=True)]
    aimed = Outcome.of(seen, found, ["animal:dog", "animal:dog", "food:banana"])
    # Four words and marks stand beside each word.
    assert aimed == Outcome(3, 2, 1, 1, 1, 1, 12, aimed=1)
    assert Outcome.of(seen, found) + Outcome.of(seen, found) == Outcome(6, 4, 2, 2, 2, 2, 24)
    with pytest.raises(ValueError, match="expected both or neither"):
        aimed + Outcome.of(seen, found)
    assert str(aimed).startswith("n 3, %: changed 67 [21..94], elsewhere 33")


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (3, 10), (7, 7), (180, 300)])
def test_intervals_are_wilsons(hits, n):
    """(p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), z the normal quantile of 0.975."""
    outcome = Outcome(n, changed=hits, elsewhere=0, agreement=0, exact=0, words_changed=0, words=9)
    p, z = hits / n, 1.959964
    half = z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    ends = [(p + z**2 / (2 * n) + side * half) / (1 + z**2 / n) for side in (-1, 1)]
    assert outcome.share("changed") == pytest.approx((p, *ends), abs=1e-6)


def test_more_hits_than_cases_are_refused():
    with pytest.raises(ValueError, match=r"k .* n"):
        Outcome(2, 3, 0, 0, 0, 0, 9).share("changed")
