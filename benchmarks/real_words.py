"""What letters alone tell of a software manual: German, French and Spanish words for English ones, and near-doubles.

The text is that of `real_text`, all paragraphs of both sides. A paragraph holds an English word if its English version has
it. For each of `LETTER_WORDS` and each other language the word is taken that fits best as a whole (F1), and then its first n
letters, anywhere in the paragraph: for n = 1, 2, ... how many paragraphs have them, and how many of these hold the word.

"One word, told": for each word of `real_text` the single word of each language that fits best in the training rows, told the
labels there, and its F1 on the held-out rows: a list of words that someone has to make, from paragraphs in all languages.

"Split by row": of a tenth of the paragraphs, drawn by seed without regard to pages, the share that nearly doubles another
paragraph in some language (a Jaccard similarity of their words of 0.8). Split by page it is 0: the table has no such rows.
"""

from collections import Counter
from collections.abc import Sequence

import torch

from benchmarks.help_text import ENGLISH, Text, text
from course_lib.interpret.concepts import f1_scores
from course_lib.interpret.translated_words import words_of
from course_lib.language.libreoffice_help import HELD_OUT_SHARE, near_doubles
from course_lib.lessons.real_language import LETTER_WORDS
from course_lib.measured import Spread

FORMS = {  # of "cell" and "cells"
    "en_XX": ("cell", "cells"),
    "de_DE": ("zelle", "zellen"),
    "fr_XX": ("cellule", "cellules"),
    "es_XX": ("celda", "celdas"),
}
SEEDS = (0, 1, 2, 3, 4)


def best_word(bags: Sequence[frozenset[str]], holds: Sequence[bool]) -> str:
    """The word whose presence fits best, by F1."""
    called = Counter(word for bag in bags for word in bag)
    both = Counter(word for bag, held in zip(bags, holds, strict=True) if held for word in bag)
    return max(both, key=lambda word: (2 * both[word] / (called[word] + sum(holds)), word))


def prefixes(texts: Sequence[str], holds: Sequence[bool], word: str) -> list[tuple[int, int]]:
    """For the first 1, 2, ... letters of a word: the paragraphs that have them, and those of them that hold the concept."""
    counted = []
    for n in range(1, len(word) + 1):
        called = [word[:n] in text for text in texts]
        counted.append((sum(called), sum(a and b for a, b in zip(called, holds, strict=True))))
    return counted


def told_words(known: Text) -> dict[str, list[float]]:
    """By language, for each word of `real_text`: the held-out F1 of the word that fits best in the training rows."""
    found: dict[str, list[float]] = {}
    for code, column in known.texts.items():
        bags = [words_of(one) for one in column]
        found[code] = []
        for number in range(len(known.words)):
            holds = known.labels[:, number].tolist()
            best = best_word(bags[: known.n_train], holds[: known.n_train])
            called = torch.tensor([best in bag for bag in bags[known.n_train :]])
            f1 = f1_scores(called[:, None], known.labels[known.n_train :, [number]])
            found[code].append(round(f1.item(), 4))
    return found


def doubled(texts: dict[str, list[str]], seeds: Sequence[int]) -> Spread:
    """Of rows that are held out without regard to pages, the share, in %, that nearly doubles a row that is not."""
    n = len(texts[ENGLISH])
    found = [pair for column in texts.values() for pair in near_doubles(column)]
    pairs = torch.tensor(found, dtype=torch.long).view(-1, 2)
    shares = []
    for seed in seeds:
        held_out = torch.zeros(n, dtype=torch.bool)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        held_out[order[: round(HELD_OUT_SHARE * n)]] = True
        apart = pairs[held_out[pairs[:, 0]] != held_out[pairs[:, 1]]]
        shares.append(100 * len(apart[held_out[apart]].unique()) / int(held_out.sum()))
    return Spread.of(shares)


def run(*, words: Sequence[str] = LETTER_WORDS, seeds: Sequence[int] = SEEDS) -> dict[str, object]:
    """Return counts of paragraphs, by word and language."""
    known = text()
    texts = known.texts
    bags = {code: [words_of(one) for one in column] for code, column in texts.items()}
    lower = {code: [one.lower() for one in column] for code, column in texts.items()}
    cells = [not bag.isdisjoint(FORMS[ENGLISH]) for bag in bags[ENGLISH]]
    figures: dict[str, object] = {"paragraphs": len(cells), "cell or cells: paragraphs": sum(cells)}
    for code, forms in FORMS.items():
        if code != ENGLISH:
            also = [held and not bag.isdisjoint(forms) for held, bag in zip(cells, bags[code], strict=True)]
            figures[f"cell or cells: of these with {' or '.join(forms)}, {code}"] = sum(also)
    figures["cell or cells: of these with the letters zell, de_DE"] = sum(
        held and "zell" in one for held, one in zip(cells, lower["de_DE"], strict=True)
    )
    for word in words:
        holds = [word in bag for bag in bags[ENGLISH]]
        figures[f"{word}: paragraphs"] = sum(holds)
        for code in texts:
            if code != ENGLISH:
                best = best_word(bags[code], holds)
                counted = prefixes(lower[code], holds, best)
                figures[f"{word}: first letters of its translation, {code}"] = {best: counted}
    figures |= {f"one word, told: F1 of each word, {code}": f1 for code, f1 in told_words(known).items()}
    return figures | {"split by row: held-out rows that nearly double another, %": doubled(texts, seeds)}
