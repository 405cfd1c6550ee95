"""A corpus of parallel sentences whose concepts are known.

Real text tells nobody which concepts it holds, so a feature found in a model cannot be scored against
it. Here every sentence is made from a meaning, and the meaning lists its concepts: the words of content
("animal:dog", "verb:eat") and the grammatical ones ("grammar:plural"). The same meaning can be said in
each language, which gives translation pairs and shows whether a feature is tied to one language.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.mbart.grammar import GRAMMARS, Meaning, Phrase
from course_lib.mbart.lexicon import ADJECTIVES, DETERMINERS, NOUNS, PLACES, TIMES, VERBS, Adjective, Noun

LANGUAGES = tuple(GRAMMARS)
SPLITS = ("train", "test")
TENSES = ("present", "past", "future")
TEST_SHARE = 0.1

__all__ = [
    "CONCEPTS",
    "LANGUAGES",
    "SPLITS",
    "Meaning",
    "Phrase",
    "Sentence",
    "concepts_of",
    "draw_meanings",
    "generate",
    "meaning_id",
    "render",
    "split_of",
]


@dataclass(frozen=True)
class Sentence:
    """A sentence; text that was not generated has no known concepts and no meaning.

    `language` is an mBART-50 code such as "en_XX", or None where it is not known. `meaning` is
    `meaning_id` of what it says: equal for translations of each other.
    """

    text: str
    language: str | None
    concepts: frozenset[str] = frozenset()
    meaning: int | None = None


def _concept_names() -> dict[str, str]:
    lexical = [
        *((n.kind, n.name) for n in NOUNS.values()),
        *((a.kind, a.name) for a in ADJECTIVES.values()),
        *(("verb", v) for v in VERBS),
        *(("place", p) for p in PLACES),
        *(("time", t) for t in TIMES),
        *(("determiner", d) for d in DETERMINERS if d not in ("the", "a")),
    ]
    grammatical = ("plural", "negation", "adverb of place", "adverb of time", "recipient", *TENSES)
    return {f"{kind}:{name}": kind for kind, name in [*lexical, *(("grammar", g) for g in grammatical)]}


CONCEPTS: dict[str, str] = _concept_names()
"""Every concept of the corpus, `category:name`, with its category."""


def generate(
    n_sentences: int, *, seed: int, languages: Sequence[str] = LANGUAGES, split: str = "train"
) -> list[Sentence]:
    """Draw sentences of distinct meanings, the languages in turn.

    The first n sentences of a seed do not depend on how many are drawn. A meaning belongs to one split
    for ever (`split_of`), whatever the seed: no test sentence has a translation in the training text.

    Raises ValueError for a negative count, an unknown split, an unknown or missing language.
    """
    if not languages:
        raise ValueError(f"languages is empty; expected some of {', '.join(LANGUAGES)}")
    for language in languages:
        _check_language(language)
    meanings = draw_meanings(n_sentences, seed=seed, split=split)
    return [render(m, languages[i % len(languages)]) for i, m in enumerate(meanings)]


def draw_meanings(n_meanings: int, *, seed: int, split: str = "train") -> list[Meaning]:
    """Draw distinct meanings of one split. Raises ValueError for a negative count or an unknown split."""
    if n_meanings < 0:
        raise ValueError(f"the number of sentences is {n_meanings}; expected 0 or more")
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; expected one of {', '.join(SPLITS)}")
    rng = random.Random(seed)
    drawn: dict[Meaning, None] = {}  # a dict keeps the order of drawing
    while len(drawn) < n_meanings:
        meaning = _draw_meaning(rng)
        if split_of(meaning) == split:
            drawn[meaning] = None
    return list(drawn)


def render(meaning: Meaning, language: str) -> Sentence:
    """Say a meaning in a language. Raises ValueError for an unknown language."""
    _check_language(language)
    text = " ".join(GRAMMARS[language](meaning)) + "."
    return Sentence(text[0].upper() + text[1:], language, concepts_of(meaning), meaning_id(meaning))


def concepts_of(meaning: Meaning) -> frozenset[str]:
    """The concepts of a meaning: a subset of `CONCEPTS`."""
    phrases = [p for p in (meaning.subject, meaning.object, meaning.recipient) if p]
    concepts = {f"verb:{meaning.verb}", f"grammar:{meaning.tense}"}
    for p in phrases:
        concepts.add(f"{NOUNS[p.noun].kind}:{p.noun}")
        if p.adjective:
            concepts.add(f"{ADJECTIVES[p.adjective].kind}:{p.adjective}")
        if p.determiner not in ("the", "a"):
            concepts.add(f"determiner:{p.determiner}")
    if meaning.place:
        concepts |= {f"place:{meaning.place}", "grammar:adverb of place"}
    if meaning.time:
        concepts |= {f"time:{meaning.time}", "grammar:adverb of time"}
    if meaning.recipient:
        concepts.add("grammar:recipient")
    if any(p.plural for p in phrases):
        concepts.add("grammar:plural")
    if meaning.negated:
        concepts.add("grammar:negation")
    return frozenset(concepts)


def meaning_id(meaning: Meaning) -> int:
    """A number of 63 bits that depends on the meaning alone, the same on every machine."""
    digest = hashlib.blake2b(repr(meaning).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def split_of(meaning: Meaning) -> str:
    """The split that a meaning belongs to: one in ten is for testing."""
    return "test" if meaning_id(meaning) % 1000 < 1000 * TEST_SHARE else "train"


def _check_language(language: str) -> None:
    if language not in GRAMMARS:
        raise ValueError(f"language is {language!r}; the corpus has {', '.join(LANGUAGES)}")


# --- drawing ---------------------------------------------------------------------------------------

_VERBS = tuple(VERBS.values())
_NOUNS_BY_KINDS: dict[frozenset[str], tuple[Noun, ...]] = {
    kinds: tuple(n for n in NOUNS.values() if n.kind in kinds)
    for kinds in {k for v in _VERBS for k in (v.subjects, v.objects)} | {frozenset({"person"})}
}
_ADJECTIVES_BY_KIND: dict[str, tuple[Adjective, ...]] = {
    n.kind: tuple(a for a in ADJECTIVES.values() if n.kind in a.fits) for n in NOUNS.values()
}
_TIMES_BY_TENSE = {tense: tuple(t.name for t in TIMES.values() if tense in t.tenses) for tense in TENSES}
_PLACES = tuple(PLACES)

# "the" and "a" are as frequent as the others together. Under negation the subject is definite and
# nothing is counted: "two dogs do not sleep" is ambiguous, and differently so in each language.
_ANY = ("the", "the", "the", "a", "a", "my", "this", "many", "two", "three")
_DEFINITE = ("the", "the", "my", "this")
_UNCOUNTED = ("the", "the", "a", "my", "this")


def _draw_meaning(rng: random.Random) -> Meaning:
    verb = rng.choice(_VERBS)
    tense = rng.choice(TENSES)
    negated = rng.random() < 0.25
    taken: set[str] = set()
    subject = _draw_phrase(rng, verb.subjects, _DEFINITE if negated else _ANY, taken)
    objects = _UNCOUNTED if negated else _ANY
    object_ = None if verb.frame == "intransitive" else _draw_phrase(rng, verb.objects, objects, taken)
    recipient = None
    if verb.frame == "ditransitive":
        recipient = _draw_phrase(rng, frozenset({"person"}), _DEFINITE if negated else _ANY, taken)
    place = rng.choice(_PLACES) if rng.random() < 0.4 else None
    time = rng.choice(_TIMES_BY_TENSE[tense]) if rng.random() < 0.4 else None
    fronted = time is not None and rng.random() < 0.4
    return Meaning(verb.name, subject, object_, recipient, place, time, fronted, tense, negated)


def _draw_phrase(
    rng: random.Random, kinds: frozenset[str], determiners: tuple[str, ...], taken: set[str]
) -> Phrase:
    """A phrase whose noun the sentence does not have yet."""
    noun = rng.choice([n for n in _NOUNS_BY_KINDS[kinds] if n.name not in taken])
    taken.add(noun.name)
    determiner = rng.choice(determiners)
    plural = DETERMINERS[determiner] or rng.random() < 0.35
    adjective = rng.choice(_ADJECTIVES_BY_KIND[noun.kind]).name if rng.random() < 0.4 else None
    return Phrase(noun.name, determiner, plural, adjective)
