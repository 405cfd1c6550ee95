"""Concepts from translations: which words are taken, which are spelled alike, and what the words of a language tell."""

import random

import pytest
import torch

from course_lib.interpret.translated_words import (
    MAX_SHARE,
    NoWordsError,
    TranslatedWord,
    find_words,
    held_words,
    word_ceiling,
)

LEXICON = {
    "dog": "Hund",
    "cat": "Katze",
    "house": "Haus",
    "menu": "Menu",
    "bread": "Brot",
    "river": "Fluss",
    "tree": "Baum",
    "stone": "Stein",
    "book": "Buch",
    "door": "Tür",
    "salt": "Salz",
    "wheel": "Rad",
}
N = 600
HELD_OUT = [i % 4 == 0 for i in range(N)]


def texts(seed=0):
    """Rows of two words out of twelve, and words of grammar; "menu" is alike in German, "lorem" is in all rows."""
    rng = random.Random(seed)
    drawn = [rng.sample(sorted(LEXICON), 2) for _ in range(N)]
    return {
        "en_XX": [
            f"Above this {a} lorem {b}." if i % 6 else f"This {a} lorem {b}, is it?"
            for i, (a, b) in enumerate(drawn)
        ],
        "de_DE": [f"Die {LEXICON[b]} hat {LEXICON[a]}." for a, b in drawn],
    }


def found(pivot="en_XX"):
    columns = texts()
    words, left_out = find_words(columns, HELD_OUT, pivot=pivot)
    return columns, words, left_out


def labels_of(words, column):
    return torch.tensor([[word.concept in held for word in words] for held in held_words(words, column)])


def test_frequent_words_of_content_are_concepts_of_the_rows_that_have_them():
    columns, words, left_out = found()
    assert {word.word for word in words} == set(LEXICON)  # neither words of grammar, nor "lorem"
    assert left_out == 0
    assert [word.rows_train for word in words] == sorted((word.rows_train for word in words), reverse=True)
    held = held_words(words, columns["en_XX"])
    for word in words:
        rows = [i for i, text in enumerate(columns["en_XX"]) if word.word in text]
        assert [i for i, concepts in enumerate(held) if word.concept in concepts] == rows
        assert word.rows_train == sum(not HELD_OUT[i] for i in rows) <= MAX_SHARE * (N - sum(HELD_OUT))
        assert word.rows_held_out == sum(HELD_OUT[i] for i in rows) >= 15  # 30 sentences of two languages
        assert word.concept == f"en:{word.word}"


def test_words_that_another_column_spells_alike_are_marked():
    columns, words, _ = found()
    assert {word.word: word.alike for word in words} == {
        word: ["de_DE"] if word == "menu" else [] for word in LEXICON
    }
    assert {word.category for word in words if word.alike} == {"spelled alike"}
    # Alike only in rows without the word: no mark.
    columns["de_DE"] = [
        text + (" bread" if "bread" not in english else "")
        for text, english in zip(columns["de_DE"], columns["en_XX"], strict=True)
    ]
    words, _ = find_words(columns, HELD_OUT, pivot="en_XX")
    assert next(word for word in words if word.word == "bread").alike == []


def test_the_pivot_may_be_another_language():
    _, words, _ = found("de_DE")
    assert {word.concept for word in words} == {f"de:{word.lower()}" for word in LEXICON.values()}


def test_too_frequent_and_too_rare_words_are_none():
    columns = {"en_XX": ["dog"] * N, "de_DE": ["Hund"] * N}
    with pytest.raises(NoWordsError, match=r"no word of en_XX is in 10 training rows, 15 held-out ones"):
        find_words(columns, HELD_OUT, pivot="en_XX")
    rare = {"en_XX": ["dog" if i < 30 else "." for i in range(N)], "de_DE": ["Hund"] * N}
    with pytest.raises(NoWordsError, match="give more rows or another pivot"):
        find_words(rare, HELD_OUT, pivot="en_XX")
    with pytest.raises(ValueError, match=r"pivot is 'fr_XX'; expected one of en_XX, de_DE"):
        find_words(columns, HELD_OUT, pivot="fr_XX")


def test_the_ceiling_is_what_the_words_of_a_language_tell():
    columns, words, _ = found()
    labels = labels_of(words, columns["en_XX"])
    held_out = torch.tensor(HELD_OUT)
    for column in columns.values():  # one word, one translation: both languages tell all of it
        assert word_ceiling(column, labels, held_out).tolist() == [1.0] * len(words)
    # "Tier" for dogs and cats alike: either is the better half of a guess, the others are as before.
    merged = [text.replace("Hund", "Tier").replace("Katze", "Tier") for text in columns["de_DE"]]
    f1 = dict(
        zip((word.word for word in words), word_ceiling(merged, labels, held_out).tolist(), strict=True)
    )
    assert {word for word, value in f1.items() if value == 1.0} == set(LEXICON) - {"dog", "cat"}
    assert all(0.4 < f1[word] < 0.8 for word in ("dog", "cat"))
    # Other text tells nothing, and held-out labels change nothing that was fitted.
    shuffled = random.Random(1).sample(columns["de_DE"], N)
    assert word_ceiling(shuffled, labels, held_out).median() < 0.4


def test_nothing_of_the_ceiling_is_fitted_on_held_out_rows():
    columns, words, _ = found()
    labels = labels_of(words, columns["en_XX"])
    held_out = torch.tensor(HELD_OUT)
    flipped = torch.where(held_out[:, None], ~labels, labels)
    # The same calls, which were right for every held-out row, are wrong for every one.
    assert word_ceiling(columns["de_DE"], flipped, held_out).tolist() == [0.0] * len(words)


def test_leave_one_out_values_are_those_of_fits_without_the_row():
    """Against one ridge regression for each row that is left out."""
    from course_lib.interpret import translated_words

    columns = texts()
    words = [TranslatedWord("en:dog", 0, 0, []), TranslatedWord("en:cat", 0, 0, [])]
    labels = labels_of(words, columns["en_XX"])
    held_out = torch.tensor(HELD_OUT)
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translated_words, "_RIDGES", (3.0,))
        patch.setattr(
            translated_words,
            "best_thresholds",
            lambda scores, truth: (asked.append(scores), scores.mean(dim=0))[1],
        )
        word_ceiling(columns["de_DE"], labels, held_out)
    bags = [translated_words.words_of(text) for text in columns["de_DE"]]
    vocabulary = sorted(set().union(*bags))
    x = torch.tensor([[float(word in bag) for word in vocabulary] for bag in bags], dtype=torch.float64)
    x, y = x[~held_out], labels[~held_out].double()
    for row in (0, 7, 100):
        kept = torch.arange(len(x)) != row
        mean, rate = x[kept].mean(dim=0), y[kept].mean(dim=0)
        centred = x[kept] - mean
        gram = centred.T @ centred + 3.0 * torch.eye(x.shape[1], dtype=torch.float64)
        weights = torch.linalg.solve(gram, centred.T @ (y[kept] - rate))
        torch.testing.assert_close(asked[0][row], (x[row] - mean) @ weights + rate)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ["a"]}, "texts has 1 rows, labels 4, held_out 4"),
        ({"held_out": torch.ones(4, dtype=torch.bool)}, "held_out is the same for all rows"),
    ],
)
def test_a_ceiling_without_rows_to_compare_is_refused(changes, message):
    options = {
        "texts": list("abcd"),
        "labels": torch.eye(4).bool(),
        "held_out": torch.tensor([True, False] * 2),
    }
    with pytest.raises(ValueError, match=message):
        word_ceiling(**(options | changes))
