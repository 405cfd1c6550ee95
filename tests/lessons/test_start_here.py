"""Lesson 00: what is stored of six numbers agrees with what the page says of them."""

import pytest

from course_lib.language.corpus import LANGUAGES
from course_lib.lessons import start_here as lesson
from course_lib.measured import measured

NUMBERS = (lesson.FIRST, *lesson.OTHERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_name_of_a_number_fits_it_best_of_its_kin_and_of_all_languages(number):
    concept, language = lesson.MEANT[number]
    scores = lesson.stored(number, "F1 of names")
    own = concept if language is None else f"{concept} in {language}"
    assert scores[own] >= 0.98
    assert max(score for name, score in scores.items() if name != own) < 0.5


@pytest.mark.parametrize("number", NUMBERS)
def test_its_eight_strongest_sentences_are_in_one_language_and_in_order(number):
    found = lesson.sentences_at(number, 0)
    assert len(found) == lesson.SHOWN
    assert len({language for language, _, _ in found}) == 1
    values = [value for share in range(0, 101, 10) for _, _, value in lesson.sentences_at(number, share)]
    assert values == sorted(values, reverse=True)
    assert values[-1] > lesson.stored(number, "threshold")


def test_three_numbers_keep_to_one_language_and_the_others_are_active_in_all_alike():
    shares = {number: lesson.stored(number, "share active") for number in NUMBERS}
    largest = {number: max(each) / sum(each) for number, each in shares.items()}
    assert {number for number, share in largest.items() if share > 0.97} == {143, 594, 656}
    assert all(share < 0.26 for number, share in largest.items() if number not in {143, 594, 656})


def test_the_dotted_lines_are_what_a_name_has_by_lot():
    """A quarter of the sentences is Spanish, and 1733 is active in a share p: F1 is 2 p / 4 / (p + 1/4)."""
    p = lesson.stored(lesson.FIRST, "active") / measured("first_features", "sentences")
    assert lesson.by_chance("Spanish") == pytest.approx(2 * p / 4 / (p + 1 / 4))


def test_a_stored_place_is_the_same_sentence_in_another_language():
    drawn = lesson.drawn()
    assert [one.language for one in drawn[:: lesson.MEANINGS]] == list(LANGUAGES)
    assert drawn[7].concepts == drawn[7 + 2 * lesson.MEANINGS].concepts


def test_a_place_between_the_stored_ones_is_refused():
    with pytest.raises(ValueError, match="place must be a multiple of 10, got 15"):
        lesson.NumberExplorer().compute(number="143", place=15)


@pytest.mark.parametrize(
    ("factor", "wait"), [(0.5, 7), (-0.5, 7), (0.99, 459), (0, 1), (1, None), (-1.1, None)]
)
def test_the_wait_is_the_first_power_below_the_level(factor, wait):
    assert lesson.first_below(factor) == wait


def test_what_is_denied_is_active_in_every_language():
    rows = [row.split("|")[2:-1] for row in lesson.said_and_denied().data.splitlines()[2:]]
    stated, denied = (
        [[float(value) for value in row] for row in rows[:4]],
        [[float(v) for v in row] for row in rows[4:]],
    )
    assert all(value == 0 for row in stated for value in row)
    assert all(row[0] > 0.5 for row in denied)
    # 143 answers to French alone, 594 to English alone.
    assert [row[1] > 0 for row in denied] == [one == "fr_XX" for one in LANGUAGES]
    assert [row[2] > 0 for row in denied] == [one == "en_XX" for one in LANGUAGES]
