"""One word of a sentence to be translated, exchanged for every other: what did a translation change?

The generated language can say the same meaning with any other word in one place, so the right translation with each of
them is known. A `Case` is one word in one sentence; `draw_cases` draws them. `compare` says what a translation that
was made under a change does to the word, and to the others.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from course_lib.language.corpus import (
    LANGUAGES,
    LEXICAL_CONCEPTS,
    TENSES,
    Meaning,
    Sentence,
    concepts_of,
    draw_meanings,
    render,
)
from course_lib.language.lexicon import ADJECTIVES, DETERMINERS, NOUNS, PLACES, TIMES, VERBS

_ROLES = ("subject", "object", "recipient")
_TABLES = {"noun": NOUNS, "adjective": ADJECTIVES, "verb": VERBS, "place": PLACES, "time": TIMES}
_WORDS = re.compile(r"\w+(?:-\w+)*['’]?|[^\w\s]")
# A noun of each gender, in all languages together.
_GENDERS = tuple(
    {
        (n.fr_gender, n.de_gender, n.es_gender, n.fr[0].startswith(tuple("aeiouéê"))): name
        for name, n in NOUNS.items()
    }.values()
)


# --- Words and meanings ----------------------------------------------------------------------------


def split_words(text: str) -> list[str]:
    """Split a sentence into words in lower case; "l'", "grand-mère" and each punctuation mark are one word."""
    return _WORDS.findall(text.lower())


def find_slots(meaning: Meaning, concept: str) -> list[tuple[str, str]]:
    """Find where a meaning expresses a lexical concept: pairs such as ("subject", "noun") and ("", "verb")."""
    found = []
    for part in _ROLES:
        if phrase := getattr(meaning, part):
            held = {"noun": NOUNS[phrase.noun].concept, "determiner": f"determiner:{phrase.determiner}"}
            if phrase.adjective:
                held["adjective"] = ADJECTIVES[phrase.adjective].concept
            found += [(part, kind) for kind, name in held.items() if name == concept]
    for kind in ("verb", "place", "time"):
        name = getattr(meaning, kind)
        if name and _TABLES[kind][name].concept == concept:
            found.append(("", kind))
    return found


def substitute_words(meaning: Meaning, concept: str) -> dict[str, Meaning]:
    """Put each word that fits in a concept's place: meanings by concept, the unchanged one first.

    Every word of the same part of speech fits, whether that makes sense or not, unless the meaning has it elsewhere:
    any noun for a noun, any verb that takes as many objects for a verb; a determiner keeps the number.

    Raises ValueError where the meaning does not hold the concept in exactly one place.
    """
    part, kind = _only_slot(meaning, concept)
    phrase = getattr(meaning, part) if part else None
    if kind == "determiner":
        own = phrase.determiner
        names = {f"determiner:{d}": d for d, many in DETERMINERS.items() if d == own or phrase.plural >= many}
    else:
        names = {word.concept: name for name, word in _TABLES[kind].items()}
        if kind == "verb":
            frame = VERBS[meaning.verb].frame
            names = {other: name for other, name in names.items() if VERBS[name].frame == frame}

    def with_word(name: str) -> Meaning:
        if phrase is None:
            return replace(meaning, **{kind: name})
        return replace(meaning, **{part: replace(phrase, **{kind: name})})

    others = {other: with_word(name) for other, name in names.items() if not find_slots(meaning, other)}
    return {concept: meaning} | others


def _only_slot(meaning: Meaning, concept: str) -> tuple[str, str]:
    found = find_slots(meaning, concept)
    if len(found) != 1:
        raise ValueError(f"the meaning holds {concept!r} in {len(found)} places; expected 1: {meaning}")
    return found[0]


@dataclass(frozen=True)
class Case:
    """A word to be changed: `concept` of a `meaning` that is read in language `source` and written in `target`.

    Raises ValueError where the meaning does not hold the concept in exactly one place.
    """

    meaning: Meaning
    concept: str
    source: str
    target: str

    def __post_init__(self) -> None:
        _only_slot(self.meaning, self.concept)

    @cached_property
    def sentence(self) -> Sentence:
        """The sentence that the encoder reads."""
        return render(self.meaning, self.source)

    @cached_property
    def renderings(self) -> dict[str, list[str]]:
        """The words of the correct translation with each word in the concept's place, by concept; its own first."""
        return {concept: split_words(sentence.text) for concept, sentence in self._sentences.items()}

    @cached_property
    def frames(self) -> list[list[str | None]]:
        """The different renderings with None for the words in the concept's place; the case's own first."""
        found = {}
        for concept, sentence in self._sentences.items():
            spans = [(start, end) for start, end, held in sentence.words if held == concept]
            frame = (
                None if any(a < word.end() and word.start() < b for a, b in spans) else word.group()
                for word in _WORDS.finditer(sentence.text.lower())
            )
            found[tuple(frame)] = None
        return [list(frame) for frame in found]

    @cached_property
    def _sentences(self) -> dict[str, Sentence]:
        return {c: render(m, self.target) for c, m in substitute_words(self.meaning, self.concept).items()}

    @cached_property
    def forms(self) -> set[tuple[str, ...]]:
        """The concept's words in the target language: in both numbers, any gender and tense, asked and negated."""
        part_of_word, kind = _only_slot(self.meaning, self.concept)
        # What an adjective or a participle agrees with. A noun's own gender stays.
        part_of_noun = {"adjective": part_of_word, "verb": "subject"}.get(kind)
        found = set()
        for tense, plural, asked, denied, noun in product(
            TENSES, *[(False, True)] * 3, _GENDERS if part_of_noun else (None,)
        ):
            phrases = {
                part: replace(
                    phrase,
                    plural=plural or DETERMINERS[phrase.determiner],
                    noun=noun if part == part_of_noun else phrase.noun,
                )
                for part in _ROLES
                if (phrase := getattr(self.meaning, part))
            }
            other = replace(self.meaning, tense=tense, question=asked, negated=denied, **phrases)
            sentence = render(other, self.target)
            form = " ".join(sentence.text[a:b] for a, b, concept in sentence.words if concept == self.concept)
            found.add(tuple(split_words(form)))
        return found - {()}


def draw_cases(
    concepts: Sequence[str], n_cases: int, *, seed: int, pool: int = 12_000, pool_seed: int = 200
) -> list[Case]:
    """Draw cases whose words are `concepts`, in turn, from the first `pool` meanings of the test split.

    Each takes the first free meaning, in random order, that holds its concept once; languages are random. A concept
    without a meaning left is skipped, so there may be fewer than `n_cases`.

    Raises ValueError for no concepts, one that the corpus has no word for, and a number below 1.
    """
    if not concepts or n_cases < 1:
        raise ValueError(f"{len(concepts)} concepts and n_cases {n_cases}; expected 1 or more of both")
    if unknown := sorted(set(concepts) - set(LEXICAL_CONCEPTS)):
        raise ValueError(f"concepts has {unknown[0]!r}; expected some of LEXICAL_CONCEPTS")
    rng = random.Random(seed)
    meanings = draw_meanings(pool, seed=pool_seed, split="test")
    rng.shuffle(meanings)
    holding: dict[str, list[Meaning]] = {concept: [] for concept in concepts}
    for meaning in meanings:
        for concept in concepts_of(meaning) & holding.keys():
            if len(find_slots(meaning, concept)) == 1:
                holding[concept].append(meaning)
    order, taken, found = list(holding), set(), []
    rng.shuffle(order)
    while len(found) < n_cases and any(holding.values()):
        for concept in order[: n_cases - len(found)]:
            left = holding[concept]
            while left and left[-1] in taken:
                left.pop()
            if left:
                taken.add(meaning := left.pop())
                found.append(Case(meaning, concept, *rng.sample(LANGUAGES, 2)))
    return found


# --- Effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """What a change did to the translation of a case.

    - `changed`: the concept's word is gone, in every form.
    - `others`: how many other words differ from the nearest of the case's renderings, whatever stands in the concept's
      place; a word left out or added counts as one. (That place may hold as many words as some expression for it has:
      one for a noun or an adjective, a few for a time.)
    - `agreement`: how many more differ from the correct translation because they agree with another word: articles,
      adjectives, a Spanish "a".
    - `became`: the concept whose rendering this is, word for word; None if it is no rendering.
    """

    changed: bool
    others: int
    agreement: int
    became: str | None


def compare(case: Case, translation: str) -> Effect:
    """Compare a translation with the renderings of a case, which was translated correctly without the change."""
    written = split_words(translation)
    own, *nearer = (edit_distance(frame, written) for frame in case.frames)
    others = min([own, *nearer])
    before = sum(_count(form, case.renderings[case.concept]) for form in case.forms)
    after = sum(_count(form, written) for form in case.forms)
    became = next((concept for concept, form in case.renderings.items() if form == written), None)
    return Effect(after < before, others, own - others, became)


def edit_distance(frame: Sequence[str | None], written: Sequence[str]) -> int:
    """Count the fewest words to be changed, left out or added that turn `frame` into `written`.

    None stands for any word or for none and costs nothing. D[i, j] is the distance of the first i and j words,

        D[i, j] = min(D[i-1, j-1] + [a_i is a word other than b_j], D[i-1, j] + [a_i is a word], D[i, j-1] + 1).

    Source: Wagner and Fischer (1974).
    """
    row = list(range(len(written) + 1))
    for word in frame:
        above, row = row, [row[0] + (word is not None)]
        for j, other in enumerate(written):
            put = above[j] + (word is not None and word != other)
            row.append(min(put, above[j + 1] + (word is not None), row[j] + 1))
    return row[-1]


def _count(form: tuple[str, ...], written: Sequence[str]) -> int:
    return sum(tuple(written[i : i + len(form)]) == form for i in range(len(written)))
