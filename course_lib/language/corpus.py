"""A corpus of parallel sentences whose concepts are known.

Real text tells nobody which concepts it holds, so a feature found in a model cannot be scored against
it. Here every sentence is made from a meaning, and the meaning lists its concepts: the words of content
("animal:dog", "verb:eat") and the grammatical ones ("grammar:plural"). Each word of the sentence says
which of them it expresses. The same meaning can be said in each language, which gives translation pairs
and shows whether a feature is tied to one language.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from course_lib.language.grammar import GRAMMARS, Meaning, Phrase, is_animate, say
from course_lib.language.lexicon import (
    ADJECTIVES,
    DETERMINERS,
    GROUPS,
    NEGATIVE,
    NOUNS,
    PLACES,
    POSITIVE,
    TIMES,
    VERBS,
    Adjective,
    Noun,
    Verb,
)

LANGUAGES = tuple(GRAMMARS)
SPLITS = ("train", "test")
TENSES = ("present", "past", "future")
TEST_SHARE = 0.1

__all__ = [
    "CONCEPTS",
    "GRAMMATICAL_CONCEPTS",
    "LANGUAGES",
    "LEXICAL_CONCEPTS",
    "SPLITS",
    "Meaning",
    "Phrase",
    "Sentence",
    "concepts_of",
    "draw_meanings",
    "generate",
    "meaning_id",
    "minimal_pairs",
    "render",
    "split_of",
]


@dataclass(frozen=True)
class Sentence:
    """A sentence; text that was not generated has no known concepts and no meaning.

    `language` is an mBART-50 code such as "en_XX", or None where it is not known. `meaning` is
    `meaning_id` of what it says: equal for translations of each other. `words` holds (start, end, concept)
    for each word that expresses a concept, positions counted in characters of `text`; articles and the like
    have no entry, and what no single word says ("grammar:plural") has none either.
    """

    text: str
    language: str | None
    concepts: frozenset[str] = frozenset()
    meaning: int | None = None
    words: tuple[tuple[int, int, str], ...] = ()


LEXICAL_CONCEPTS: tuple[str, ...] = (
    *(word.concept for table in (NOUNS, ADJECTIVES, VERBS, PLACES, TIMES) for word in table.values()),
    *(f"determiner:{d}" for d in DETERMINERS if d not in ("the", "a")),
)
"""The concepts that a word expresses."""

GRAMMATICAL_CONCEPTS: tuple[str, ...] = tuple(
    f"grammar:{name}"
    for name in (
        *TENSES,
        "plural",
        "negation",
        "question",
        "adverb of place",
        "adverb of time",
        "recipient",
        "animate subject",
        "animate object",
        "positive",
        "negative",
    )
)
"""The concepts that the whole sentence expresses; positive and negative: it holds such a word
(`lexicon.POSITIVE`, `lexicon.NEGATIVE`), whether it is denied or not."""

CONCEPTS: dict[str, str] = {c: c.partition(":")[0] for c in (*LEXICAL_CONCEPTS, *GRAMMATICAL_CONCEPTS)}
"""Every concept of the corpus, `category:name`, with its category."""


def generate(
    n_sentences: int,
    *,
    seed: int,
    languages: Sequence[str] = LANGUAGES,
    split: str = "train",
    at_least: int = 0,
) -> list[Sentence]:
    """Draw sentences of distinct meanings, the languages in turn.

    The first n sentences of a seed do not depend on how many are drawn. A meaning belongs to one split
    for ever (`split_of`), whatever the seed: no test sentence has a translation in the training text.

    With `at_least`, the first sentences are drawn until every lexical concept is in so many of them, shared out
    between the languages: each holds a concept that still lacks some, and nouns and adjectives are taken from these
    where they fit. The rest is drawn by chance. Where `n_sentences` are too few, what lacks is rare.

    Raises ValueError for a negative count, an unknown split, an unknown or missing language.
    """
    if not languages:
        raise ValueError(f"languages is empty; expected some of {', '.join(LANGUAGES)}")
    for language in languages:
        _check_language(language)
    if at_least < 0:
        raise ValueError(f"at_least is {at_least}; expected 0 or more")
    first = _draw_by_concept(n_sentences, at_least, random.Random(f"{seed} by concept"), languages, split)
    rest = draw_meanings(n_sentences, seed=seed, split=split)
    if first:
        rest = [m for m in rest if m not in first][: n_sentences - len(first)]
    by_chance = [render(m, languages[i % len(languages)]) for i, m in enumerate(rest)]
    return [render(m, language) for m, language in first.items()] + by_chance


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
    text, words = say(meaning, language)
    return Sentence(text, language, concepts_of(meaning), meaning_id(meaning), words)


def concepts_of(meaning: Meaning) -> frozenset[str]:
    """The concepts of a meaning: a subset of `CONCEPTS`."""
    phrases = [p for p in (meaning.subject, meaning.object, meaning.recipient) if p]
    content = {meaning.verb, *(p.adjective for p in phrases)}
    concepts = {VERBS[meaning.verb].concept, f"grammar:{meaning.tense}"}
    for p in phrases:
        concepts.add(NOUNS[p.noun].concept)
        if p.adjective:
            concepts.add(ADJECTIVES[p.adjective].concept)
        if p.determiner not in ("the", "a"):
            concepts.add(f"determiner:{p.determiner}")
    if meaning.place:
        concepts |= {PLACES[meaning.place].concept, "grammar:adverb of place"}
    if meaning.time:
        concepts |= {TIMES[meaning.time].concept, "grammar:adverb of time"}
    holds = {
        "recipient": meaning.recipient is not None,
        "plural": any(p.plural for p in phrases),
        "negation": meaning.negated,
        "question": meaning.question,
        "animate subject": is_animate(meaning.subject),
        "animate object": meaning.object is not None and is_animate(meaning.object),
        "positive": bool(content & POSITIVE),
        "negative": bool(content & NEGATIVE),
    }
    return frozenset(concepts | {f"grammar:{name}" for name, true in holds.items() if true})


def minimal_pairs(meaning: Meaning, rng: random.Random) -> list[Meaning]:
    """Meanings that differ from this one in a single concept: one for each place where it can be changed.

    A noun, an adjective, the place, the time or the verb is replaced by another that fits as well, a number,
    tense, negation or question turned over. All are meanings that the corpus can draw.
    """
    changed = []
    for role in ("subject", "object", "recipient"):
        p = getattr(meaning, role)
        if p is None:
            continue
        taken = {q.noun for q in (meaning.subject, meaning.object, meaning.recipient) if q}
        nouns = [n.name for n in _NOUNS_BY_KIND[NOUNS[p.noun].kind] if n.name not in taken]
        changed.append(replace(meaning, **{role: replace(p, noun=rng.choice(nouns))}))
        if p.adjective:
            fitting = [a.name for a in _ADJECTIVES_BY_KIND[NOUNS[p.noun].kind] if a.name != p.adjective]
            changed.append(replace(meaning, **{role: replace(p, adjective=rng.choice(fitting))}))
        if not DETERMINERS[p.determiner]:
            changed.append(replace(meaning, **{role: replace(p, plural=not p.plural)}))
    if meaning.place:
        places = [p for p in PLACES if p != meaning.place]
        changed.append(replace(meaning, place=rng.choice(places)))
    if meaning.time:
        times = [t for t in _TIMES_BY_TENSE[meaning.tense] if t != meaning.time]
        changed.append(replace(meaning, time=rng.choice(times)))
    tenses = [
        t for t in TENSES if t != meaning.tense and (not meaning.time or t in TIMES[meaning.time].tenses)
    ]
    if tenses:
        changed.append(replace(meaning, tense=rng.choice(tenses)))
    verbs = [v.name for v in _VERBS if v.name != meaning.verb and _can_take(v, meaning)]
    if verbs:
        changed.append(replace(meaning, verb=rng.choice(verbs)))
    if meaning.negated or _can_be_negated(meaning):
        changed.append(replace(meaning, negated=not meaning.negated))
    if not meaning.fronted:
        changed.append(replace(meaning, question=not meaning.question))
    return changed


def meaning_id(meaning: Meaning) -> int:
    """A number of 63 bits that depends on the meaning alone, the same on every machine."""
    digest = hashlib.blake2b(repr(meaning).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def split_of(meaning: Meaning | int) -> str:
    """The split that a meaning, or a `meaning_id`, belongs to: one in ten is for testing."""
    number = meaning if isinstance(meaning, int) else meaning_id(meaning)
    return "test" if number % 1000 < 1000 * TEST_SHARE else "train"


def _check_language(language: str) -> None:
    if language not in GRAMMARS:
        raise ValueError(f"language is {language!r}; the corpus has {', '.join(LANGUAGES)}")


# --- drawing ---------------------------------------------------------------------------------------

_VERBS = tuple(VERBS.values())
_NOUNS_BY_KIND: dict[str, tuple[Noun, ...]] = {
    kind: tuple(n for n in NOUNS.values() if n.kind == kind) for kind in {n.kind: 0 for n in NOUNS.values()}
}
_ADJECTIVES_BY_KIND: dict[str, tuple[Adjective, ...]] = {
    n.kind: tuple(a for a in ADJECTIVES.values() if n.kind in a.fits) for n in NOUNS.values()
}
# Names and concepts of the nouns of a kind, and of the adjectives that fit it.
_CONCEPTS_OF_KIND = {
    kind: tuple([(word.name, word.concept) for word in words] for words in (nouns, _ADJECTIVES_BY_KIND[kind]))
    for kind, nouns in _NOUNS_BY_KIND.items()
}
_TIMES_BY_TENSE = {tense: tuple(t.name for t in TIMES.values() if tense in t.tenses) for tense in TENSES}
_PLACES = tuple(PLACES)

# "the" and "a" are as frequent as the others together. Under negation the subject is definite and
# nothing is counted: "two dogs do not sleep" is ambiguous, and differently so in each language.
_ANY = ("the",) * 5 + ("a",) * 4 + ("my", "our", "this", "many", "two", "three", "four", "five", "ten")
_DEFINITE = ("the", "the", "the", "my", "our", "this")
_UNCOUNTED = ("the", "the", "the", "a", "my", "our", "this")


def _draw_meaning(rng: random.Random) -> Meaning:
    verb = rng.choice(_VERBS)
    tense = rng.choice(TENSES)
    negated = rng.random() < 0.25
    question = rng.random() < 0.2
    taken: set[str] = set()
    subject = _draw_phrase(rng, verb.subjects, _DEFINITE if negated else _ANY, taken)
    objects = _UNCOUNTED if negated else _ANY
    object_ = None if verb.frame == "intransitive" else _draw_phrase(rng, verb.objects, objects, taken)
    recipient = None
    if verb.frame == "ditransitive":
        recipient = _draw_phrase(rng, GROUPS["people"], _DEFINITE if negated else _ANY, taken)
    place = rng.choice(_PLACES) if rng.random() < 0.4 else None
    time = rng.choice(_TIMES_BY_TENSE[tense]) if rng.random() < 0.4 else None
    fronted = time is not None and not question and rng.random() < 0.4
    return Meaning(verb.name, subject, object_, recipient, place, time, fronted, tense, negated, question)


def _draw_phrase(
    rng: random.Random, kinds: frozenset[str], determiners: tuple[str, ...], taken: set[str]
) -> Phrase:
    """A phrase whose noun the sentence does not have yet; all kinds alike, however many nouns they have."""
    while (noun := rng.choice(_NOUNS_BY_KIND[rng.choice(sorted(kinds))])).name in taken:
        pass
    taken.add(noun.name)
    determiner = rng.choice(determiners)
    plural = DETERMINERS[determiner] or rng.random() < 0.35
    adjective = rng.choice(_ADJECTIVES_BY_KIND[noun.kind]).name if rng.random() < 0.4 else None
    return Phrase(noun.name, determiner, plural, adjective)


def _draw_by_concept(
    n_meanings: int, at_least: int, rng: random.Random, languages: Sequence[str], split: str
) -> dict[Meaning, str]:
    """Meanings with their languages, until each lexical concept is in `at_least` of them or there are enough."""
    lacking = dict.fromkeys(LEXICAL_CONCEPTS, at_least) if at_least else {}
    spoken: Counter[tuple[str, str]] = Counter()
    used: Counter[str] = Counter()
    drawn: dict[Meaning, str] = {}
    while lacking and len(drawn) < n_meanings:
        meaning = _with_words(_draw_meaning(rng), lacking, rng)
        if split_of(meaning) != split or meaning in drawn:
            continue
        wanted = sorted(concepts_of(meaning) & lacking.keys())
        if not wanted:
            continue
        language = min(languages, key=lambda name: (sum(spoken[c, name] for c in wanted), used[name]))
        drawn[meaning] = language
        used[language] += 1
        for concept in wanted:
            spoken[concept, language] += 1
            lacking[concept] -= 1
            if not lacking[concept]:
                del lacking[concept]
    return drawn


def _with_words(meaning: Meaning, lacking: Mapping[str, int], rng: random.Random) -> Meaning:
    """A meaning with its nouns and adjectives exchanged for those that lack most, of all that fit as well."""

    def most(words: Sequence[tuple[str, str]]) -> str | None:
        count = max((lacking.get(concept, 0) for _, concept in words), default=0)
        return (
            rng.choice([name for name, concept in words if lacking.get(concept) == count]) if count else None
        )

    taken = {p.noun for p in (meaning.subject, meaning.object, meaning.recipient) if p}
    for role in ("subject", "object", "recipient"):
        p = getattr(meaning, role)
        if p is None:
            continue
        nouns, adjectives = _CONCEPTS_OF_KIND[NOUNS[p.noun].kind]
        noun = most([pair for pair in nouns if pair[0] not in taken]) or p.noun
        taken.add(noun)
        adjective = (most(adjectives) or p.adjective) if p.adjective else None
        if (noun, adjective) != (p.noun, p.adjective):
            meaning = replace(meaning, **{role: replace(p, noun=noun, adjective=adjective)})
    return meaning


def _can_take(verb: Verb, meaning: Meaning) -> bool:
    """Whether a verb fits the subject and the object of a meaning."""
    return (
        verb.frame == VERBS[meaning.verb].frame
        and NOUNS[meaning.subject.noun].kind in verb.subjects
        and (meaning.object is None or NOUNS[meaning.object.noun].kind in verb.objects)
    )


def _can_be_negated(meaning: Meaning) -> bool:
    """Whether the determiners are those that a negated sentence may have."""
    recipient = meaning.recipient is None or meaning.recipient.determiner in _DEFINITE
    obj = meaning.object is None or meaning.object.determiner in _UNCOUNTED
    return meaning.subject.determiner in _DEFINITE and obj and recipient
