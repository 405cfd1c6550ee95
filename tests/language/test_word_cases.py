"""Effects on hand-made translations, and cases that are held out."""

from dataclasses import replace

import pytest

from course_lib.language.corpus import Meaning, Phrase, draw_meanings, render
from course_lib.language.word_cases import (
    Case,
    Effect,
    compare,
    draw_cases,
    edit_distance,
    find_slots,
    substitute_words,
)

# "La pomme verte tombe." / "The green apple falls." / "Der grüne Apfel fällt." / "La manzana verde cae."
FALLS = Meaning("fall", Phrase("apple", adjective="green"))
# "Un perro grande ve a la mujer." and its translations.
SEES = Meaning("see", Phrase("dog", "a", adjective="big"), Phrase("woman"), tense="past")


def case(meaning, concept, target):
    return Case(meaning, concept, "de_DE" if target != "de_DE" else "en_XX", target)


FRENCH = render(FALLS, "fr_XX").text
GERMAN = render(SEES, "de_DE").text


def test_the_sentences_below_are_the_corpus_own():
    assert FRENCH == "La pomme verte tombe."
    assert render(FALLS, "en_XX").text == "The green apple falls."
    assert GERMAN == "Ein großer Hund sah die Frau."
    assert render(SEES, "es_XX").text == "Un perro grande vio a la mujer."


@pytest.mark.parametrize(
    ("meaning", "concept", "target", "text", "expected"),
    [
        (FALLS, "food:apple", "fr_XX", FRENCH, Effect(False, 0, 0, "food:apple")),
        # Another feminine noun: nothing else has to change.
        (FALLS, "food:apple", "fr_XX", "La banane verte tombe.", Effect(True, 0, 0, "food:banana")),
        # A masculine one asks for another article and another adjective.
        (FALLS, "food:apple", "fr_XX", "Le chien vert tombe.", Effect(True, 0, 2, "animal:dog")),
        # Right article, wrong adjective: of the nearest rendering one word is wrong, either way.
        (FALLS, "food:apple", "fr_XX", "Le chien verte tombe.", Effect(True, 1, 0, None)),
        # The number of the word, with all that agrees with it: the word is there, three others changed.
        (FALLS, "food:apple", "fr_XX", "Les pommes vertes tombent.", Effect(False, 3, 0, None)),
        (FALLS, "food:apple", "fr_XX", "La pomme verte dort.", Effect(False, 1, 0, None)),
        (FALLS, "food:apple", "fr_XX", "La banane rouge dort.", Effect(True, 2, 0, None)),
        # A word of several letters and marks is one word.
        (
            FALLS,
            "food:apple",
            "fr_XX",
            "La grand-mère verte tombe.",
            Effect(True, 0, 0, "person:grandmother"),
        ),
        # Left out, and put in twice.
        (FALLS, "food:apple", "fr_XX", "La verte tombe.", Effect(True, 0, 0, None)),
        (FALLS, "food:apple", "fr_XX", "La banane banane verte tombe.", Effect(True, 1, 0, None)),
        (FALLS, "food:apple", "fr_XX", "", Effect(True, 4, 0, None)),
        # The adjective's word in the form of another gender is still its word.
        (FALLS, "colour:green", "fr_XX", "La pomme vert tombe.", Effect(False, 0, 0, None)),
        (FALLS, "verb:fall", "fr_XX", "La pomme verte tombera.", Effect(False, 0, 0, None)),
        (FALLS, "verb:fall", "fr_XX", "La pomme verte dort.", Effect(True, 0, 0, "verb:sleep")),
        # Spanish: a thing takes no "a" as an object; German: articles and endings of the accusative.
        (SEES, "person:woman", "es_XX", "Un perro grande vio la manzana.", Effect(True, 0, 1, "food:apple")),
        (SEES, "person:woman", "de_DE", "Ein großer Hund sah den Apfel.", Effect(True, 0, 1, "food:apple")),
        (SEES, "person:woman", "de_DE", "Ein große Hund sah den Apfel.", Effect(True, 1, 1, None)),
    ],
)
def test_effect(meaning, concept, target, text, expected):
    assert compare(case(meaning, concept, target), text) == expected


def test_an_exchange_of_the_word_is_seen_in_every_part_of_speech():
    """Any rendering becomes its concept, with nothing elsewhere; one word more is one elsewhere."""
    for meaning in draw_meanings(2, seed=5):
        for concept in sorted(render(meaning, "en_XX").concepts):
            if len(find_slots(meaning, concept)) != 1:
                continue
            seen = case(meaning, concept, "es_XX")
            for other in list(seen.renderings)[1:4]:
                written = seen.renderings[other]
                found = compare(seen, " ".join(written))
                assert found.changed
                assert found.others == 0
                assert seen.renderings[found.became] == written
                assert compare(seen, " ".join([*written, "und"])).others == 1


def test_distance_is_the_shortest_way():
    assert edit_distance(["a", None, "c"], ["a", "x", "c"]) == 0
    assert edit_distance(["a", None, "c"], ["a", "c"]) == 0
    assert edit_distance(["a", None, "c"], ["a", "x", "y", "c"]) == 1
    assert edit_distance(["a", "b", "c"], ["b", "c"]) == 1
    assert edit_distance(["a", "b"], ["c", "d", "e"]) == 3


def test_substitutes_change_one_word_and_keep_its_number():
    many = replace(SEES, object=Phrase("woman", "two", True))
    assert set(substitute_words(many, "determiner:two")) >= {"determiner:many", "determiner:my"}
    one = replace(SEES, object=Phrase("woman", "my"))
    assert set(substitute_words(one, "determiner:my")) == {
        "determiner:my",
        "determiner:our",
        "determiner:the",  # and not "a", which the sentence says already
        "determiner:this",
    }
    assert "animal:dog" not in substitute_words(SEES, "person:woman")  # the sentence says it already
    assert "verb:sleep" not in substitute_words(SEES, "verb:see")  # it takes no object


def test_what_a_meaning_does_not_hold_once_is_refused():
    twice = replace(SEES, object=Phrase("woman", adjective="big"))
    for meaning, concept, places in ((twice, "size:big", 2), (SEES, "food:bread", 0)):
        with pytest.raises(ValueError, match=f"{concept}' in {places} places; expected 1"):
            case(meaning, concept, "fr_XX")
    with pytest.raises(ValueError, match="0 concepts and n_cases 3"):
        draw_cases([], 3, seed=0)
    with pytest.raises(ValueError, match="concepts has 'food:bread'; expected some of LEXICAL_CONCEPTS"):
        draw_cases(["food:bread"], 3, seed=0)


def test_cases_are_held_out_distinct_and_in_turn():
    words = ["animal:dog", "verb:eat", "place:school", "determiner:my"]
    cases = draw_cases(words, 12, seed=0, pool=1000)
    assert len({c.meaning for c in cases}) == len(cases) == 12
    assert [sum(c.concept == word for c in cases) for word in words] == [3, 3, 3, 3]
    assert all(c.source != c.target and c.meaning not in set(draw_meanings(50, seed=200)) for c in cases)
    assert len(draw_cases(["animal:dog"], 10**4, seed=0, pool=200)) < 50  # as many as there are
