"""How one meaning is said in English, French, German and Spanish.

Each language is a small grammar of its own: nothing is translated word by word. A grammar returns the
sentence as a list of words in order, each with the concept that it expresses; agreement and case are
decided while the list is built, and what depends on the neighbouring word (elision, contraction, a or
an) when the list is done.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.language.lexicon import (
    ADJECTIVES,
    FR_ASPIRATED,
    NOUNS,
    PLACES,
    TIMES,
    VERBS,
    Adjective,
    Noun,
    Place,
    Verb,
)


@dataclass(frozen=True)
class Phrase:
    """A noun with its determiner (a key of `lexicon.DETERMINERS`), number and adjective, if any."""

    noun: str
    determiner: str = "the"
    plural: bool = False
    adjective: str | None = None


@dataclass(frozen=True)
class Meaning:
    """What a sentence says, apart from any language.

    Names are keys of the tables in `lexicon`. `tense` is "present", "past" or "future"; `fronted` puts
    the adverbial of time first, which changes the word order of a German sentence; `question` asks
    whether it is so (and then nothing is put in front).
    """

    verb: str
    subject: Phrase
    object: Phrase | None = None
    recipient: Phrase | None = None
    place: str | None = None
    time: str | None = None
    fronted: bool = False
    tense: str = "present"
    negated: bool = False
    question: bool = False


class Word(NamedTuple):
    """A word, the concept it expresses (None for articles and the like), and whether it is written to
    the word before it without a blank.
    """

    text: str
    concept: str | None = None
    glued: bool = False


NEGATION, QUESTION = "grammar:negation", "grammar:question"


def _words(concept: str | None, *texts: str) -> list[Word]:
    """Words of one concept; a text may be several words."""
    return [Word(word, concept) for text in texts for word in text.split()]


def _determiner_concept(determiner: str) -> str | None:
    """The and a say nothing of their own; my, this and numbers do."""
    return None if determiner in ("the", "a", "no") else f"determiner:{determiner}"


# --- English ---------------------------------------------------------------------------------------


def english(m: Meaning) -> list[Word]:
    """Subject, verb, object, recipient, place, time; negation, questions and the future take an auxiliary."""
    subject = _en_phrase(m.subject)
    auxiliary, verb = _en_verb(VERBS[m.verb], m)
    words = [*auxiliary[:1], *subject, *auxiliary[1:], *verb] if m.question else subject + auxiliary + verb
    if m.object:
        words += _en_phrase(m.object, negated=m.negated)
    if m.recipient:
        words += [Word("to"), *_en_phrase(m.recipient)]
    if m.place:
        place = PLACES[m.place]
        words += [Word(place.en[0]), Word("the"), Word(place.en[1], place.concept)]
    return _en_article(_with_time(words, m, "en", comma=True))


def _en_phrase(p: Phrase, *, negated: bool = False) -> list[Word]:
    determiner = p.determiner
    if p.determiner == "a" and p.plural:
        determiner = "any" if negated else ""
    elif p.determiner == "this" and p.plural:
        determiner = "these"
    adjective = [Word(p.adjective, ADJECTIVES[p.adjective].concept)] if p.adjective else []
    noun = NOUNS[p.noun]
    return [
        *_words(_determiner_concept(p.determiner), determiner),
        *adjective,
        Word(noun.en[p.plural], noun.concept),
    ]


def _en_verb(verb: Verb, m: Meaning) -> tuple[list[Word], list[Word]]:
    """The auxiliary with its not, and the verb."""
    base, third_singular, past = verb.en
    tense, negation = f"grammar:{m.tense}", _words(NEGATION, "not") if m.negated else []
    if m.tense == "future":
        return [Word("will", tense), *negation], _words(verb.concept, base)
    if m.negated or m.question:
        auxiliary = "did" if m.tense == "past" else "do" if m.subject.plural else "does"
        return [Word(auxiliary, tense), *negation], _words(verb.concept, base)
    if m.tense == "past":
        return [], _words(verb.concept, past)
    return [], _words(verb.concept, base if m.subject.plural else third_singular)


def _en_article(words: list[Word]) -> list[Word]:
    """A becomes an before a vowel. No word of the lexicon has a silent h or a u that sounds like you."""
    following = [*words[1:], Word("")]
    return [
        Word("an") if w.text == "a" and f.text[:1] in tuple("aeiouAEIOU") else w
        for w, f in zip(words, following, strict=True)
    ]


# --- French ----------------------------------------------------------------------------------------

_FR_VOWELS = tuple("aàâeéèêiîoôuûœ")
_FR_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "que": "qu'"}
_FR_CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux"}
_FR_DETERMINERS = {
    "the": ("le", "la", "les"),
    "a": ("un", "une", "des"),
    "my": ("mon", "ma", "mes"),
    "our": ("notre", "notre", "nos"),
    "this": ("ce", "cette", "ces"),
}
_FR_COUNTS = {
    "many": "beaucoup de",
    "two": "deux",
    "three": "trois",
    "four": "quatre",
    "five": "cinq",
    "ten": "dix",
}


def french(m: Meaning) -> list[Word]:
    """Est-ce que for a question; subject, ne, verb, pas, participle, object, recipient, place, time."""
    words = _words(QUESTION, "est-ce que") if m.question else []
    words += _fr_phrase(m.subject) + _fr_verb(VERBS[m.verb], m)
    if m.object:
        words += _fr_phrase(m.object, negated=m.negated)
    if m.recipient:
        words += [Word("à"), *_fr_phrase(m.recipient)]
    if m.place:
        place = PLACES[m.place]
        preposition, noun, gender = place.fr
        words += [Word(preposition), Word("la" if gender == "f" else "le"), Word(noun, place.concept)]
    return _fr_join(_with_time(words, m, "fr", comma=True))


def _fr_phrase(p: Phrase, *, negated: bool = False) -> list[Word]:
    noun = NOUNS[p.noun]
    words = [Word(noun.fr[p.plural], noun.concept)]
    if p.adjective:
        adjective = ADJECTIVES[p.adjective]
        before = words[0].text if adjective.fr_before else None
        word = Word(_fr_adjective(adjective, noun, p.plural, before=before), adjective.concept)
        words = [word, *words] if adjective.fr_before else [*words, word]
    return _fr_determiner(p, noun, first=words[0].text, negated=negated) + words


def _fr_adjective(adjective: Adjective, noun: Noun, plural: bool, *, before: str | None) -> str:
    if noun.fr_gender == "m" and not plural and before and _fr_vowel(before):
        return adjective.fr_before_vowel
    return adjective.fr[2 * plural + (noun.fr_gender == "f")]


def _fr_determiner(p: Phrase, noun: Noun, *, first: str, negated: bool) -> list[Word]:
    concept = _determiner_concept(p.determiner)
    if p.determiner in _FR_COUNTS:
        return _words(concept, _FR_COUNTS[p.determiner])
    # "pas de": the indefinite article of a direct object under negation; "de grandes pommes": des
    # before an adjective that stands before its noun.
    if p.determiner == "a" and (negated or (p.plural and first != noun.fr[1])):
        return [Word("de")]
    masculine, feminine, plural = _FR_DETERMINERS[p.determiner]
    if p.plural:
        return [Word(plural, concept)]
    if _fr_vowel(first):  # "mon amie" and "cet homme"; l' is left to the elision below
        masculine, feminine = {"my": ("mon", "mon"), "this": ("cet", "cette")}.get(
            p.determiner, (masculine, feminine)
        )
    return [Word(feminine if noun.fr_gender == "f" else masculine, concept)]


def _fr_verb(verb: Verb, m: Meaning) -> list[Word]:
    plural = m.subject.plural
    participle = []
    if m.tense == "future":
        finite = Word(verb.fr_future + ("ont" if plural else "a"), verb.concept)
    elif m.tense == "present":
        finite = Word(verb.fr_present[plural], verb.concept)
    elif verb.fr_with_etre:  # the participle agrees with the subject
        feminine = NOUNS[m.subject.noun].fr_gender == "f"
        finite = Word("sont" if plural else "est", "grammar:past")
        participle = [Word(verb.fr_participle + "e" * feminine + "s" * plural, verb.concept)]
    else:
        finite = Word("ont" if plural else "a", "grammar:past")
        participle = [Word(verb.fr_participle, verb.concept)]
    if not m.negated:
        return [finite, *participle]
    return [Word("ne", NEGATION), finite, Word("pas", NEGATION), *participle]


def _fr_vowel(word: str) -> bool:
    return word.startswith(_FR_VOWELS) or (word.startswith("h") and word not in FR_ASPIRATED)


def _fr_join(words: list[Word]) -> list[Word]:
    """Elision first (à l'école keeps its à), then the contractions of à with le and les."""
    joined: list[Word] = []
    for word, following in zip(words, [*words[1:], Word("")], strict=True):
        if word.text in _FR_ELIDED and _fr_vowel(following.text):
            word = word._replace(text=_FR_ELIDED[word.text])
        if joined and joined[-1].text in _FR_ELIDED.values():
            joined.append(word._replace(glued=True))
        elif joined and (joined[-1].text, word.text) in _FR_CONTRACTED:
            joined[-1] = Word(_FR_CONTRACTED[joined[-1].text, word.text])
        else:
            joined.append(word)
    return joined


# --- German ----------------------------------------------------------------------------------------

# Endings by case for masculine, feminine, neuter and plural: those of der, dieser and of an adjective
# that has to show the case by itself.
_DE_STRONG = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
}
_DE_THE = {
    "nominative": ("der", "die", "das", "die"),
    "accusative": ("den", "die", "das", "die"),
    "dative": ("dem", "der", "dem", "den"),
}
_DE_COLUMNS = {"m": 0, "f": 1, "n": 2}
_DE_STEMS = {"a": "ein", "my": "mein", "our": "unser", "no": "kein", "this": "dies", "many": "viel"}
_DE_NUMERALS = {"two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "ten": "zehn"}
_DE_CONTRACTED = {("in", "dem"): "im", ("an", "dem"): "am"}


def german(m: Meaning) -> list[Word]:
    """Finite verb second, in a question first; then subject (if not first), time, recipient, object, nicht,
    place, infinitive.

    An indefinite object is negated by kein, everything else by nicht.
    """
    no_object = m.negated and m.object is not None and m.object.determiner == "a"
    subject = _de_phrase(m.subject, "nominative")
    finite, infinitive = _de_verb(VERBS[m.verb], m)
    time = _words(TIMES[m.time].concept, TIMES[m.time].de) if m.time else []
    if m.question:
        words = [finite, *subject, *time]
    else:
        words = [*time, finite, *subject] if m.fronted else [*subject, finite, *time]
    if m.recipient:
        words += _de_phrase(m.recipient, "dative")
    if m.object:
        words += _de_phrase(m.object, "accusative", negated=no_object)
    if m.negated and not no_object:
        words.append(Word("nicht", NEGATION))
    if m.place:
        words += _de_place(PLACES[m.place])
    return words + infinitive


def _de_verb(verb: Verb, m: Meaning) -> tuple[Word, list[Word]]:
    infinitive, present, past = verb.de
    plural = m.subject.plural
    if m.tense == "future":
        auxiliary = Word("werden" if plural else "wird", "grammar:future")
        return auxiliary, [Word(infinitive, verb.concept)]
    if m.tense == "past":
        ending = ("n" if past.endswith("e") else "en") if plural else ""
        return Word(past + ending, verb.concept), []
    return Word(infinitive if plural else present, verb.concept), []


def _de_phrase(p: Phrase, case: str, *, negated: bool = False) -> list[Word]:
    noun = NOUNS[p.noun]
    column = 3 if p.plural else _DE_COLUMNS[noun.de_gender]
    determiner, shows_case = _de_determiner("no" if negated else p.determiner, case, column)
    words = _words(NEGATION if negated else _determiner_concept(p.determiner), determiner)
    if p.adjective:
        # One word of the phrase shows the case: the adjective takes the strong ending only where the
        # determiner has none (and after viele, which counts as an adjective itself).
        adjective = ADJECTIVES[p.adjective]
        ending = _de_weak_ending(case, column) if shows_case else _DE_STRONG[case][column]
        words.append(Word(adjective.de + ending, adjective.concept))
    return [*words, Word(_de_noun(noun, p.plural, case), noun.concept)]


def _de_determiner(determiner: str, case: str, column: int) -> tuple[str, bool]:
    """The determiner, and whether its ending shows the case."""
    plural = column == 3
    if determiner == "the":
        return _DE_THE[case][column], True
    if determiner in _DE_NUMERALS:
        return _DE_NUMERALS[determiner], False
    if determiner == "a" and plural:
        return "", False
    stem, ending = _DE_STEMS[determiner], _DE_STRONG[case][column]
    like_ein = determiner in ("a", "my", "our", "no")
    if like_ein and (case, column) in (("nominative", 0), ("nominative", 2), ("accusative", 2)):
        return stem, False
    return stem + ending, determiner != "many"


def _de_weak_ending(case: str, column: int) -> str:
    plain = (case == "nominative" and column < 3) or (case == "accusative" and column in (1, 2))
    return "e" if plain else "en"


def _de_noun(noun: Noun, plural: bool, case: str) -> str:
    if not plural:
        return noun.de[1] if noun.de_weak and case != "nominative" else noun.de[0]
    if case == "dative" and not noun.de[1].endswith(("n", "s")):
        return noun.de[1] + "n"
    return noun.de[1]


def _de_place(place: Place) -> list[Word]:
    preposition, noun, gender = place.de
    article = _DE_THE["dative"][_DE_COLUMNS[gender]]
    contracted = _DE_CONTRACTED.get((preposition, article))
    before = [Word(contracted)] if contracted else [Word(preposition), Word(article)]
    return [*before, Word(noun, place.concept)]


# --- Spanish ---------------------------------------------------------------------------------------

_ES_DETERMINERS = {  # masculine and feminine singular, masculine and feminine plural
    "the": ("el", "la", "los", "las"),
    "a": ("un", "una", "unos", "unas"),
    "no": ("ningún", "ninguna"),
    "my": ("mi", "mi", "mis", "mis"),
    "our": ("nuestro", "nuestra", "nuestros", "nuestras"),
    "this": ("este", "esta", "estos", "estas"),
    "many": ("muchos", "muchas", "muchos", "muchas"),
    "two": ("dos",) * 4,
    "three": ("tres",) * 4,
    "four": ("cuatro",) * 4,
    "five": ("cinco",) * 4,
    "ten": ("diez",) * 4,
}


def spanish(m: Meaning) -> list[Word]:
    """Subject, no, le, verb, object, recipient, place, time; the subject follows the verb in a question.

    A person or an animal as direct object takes the preposition a; a recipient takes it too and is
    announced by le or les before the verb.
    """
    verb = VERBS[m.verb]
    subject = _es_phrase(m.subject)
    words = [Word("no", NEGATION)] if m.negated else []
    if m.recipient:
        words.append(Word("les" if m.recipient.plural else "le"))
    words += _words(verb.concept, _es_verb(verb, m))
    words = words + subject if m.question else subject + words
    if m.object:
        words += _es_object(m.object, negated=m.negated, with_recipient=m.recipient is not None)
    if m.recipient:
        words += [Word("a"), *_es_phrase(m.recipient)]
    if m.place:
        place = PLACES[m.place]
        preposition, noun, gender = place.es
        words += [Word(preposition), Word("la" if gender == "f" else "el"), Word(noun, place.concept)]
    return _es_contract(_with_time(words, m, "es", comma=False))


def _es_verb(verb: Verb, m: Meaning) -> str:
    plural = m.subject.plural
    if m.tense == "future":
        return verb.es_future + ("án" if plural else "á")
    if m.tense == "past":
        return verb.es_past[plural]
    return verb.es_present + ("n" if plural else "")


def _es_object(p: Phrase, *, negated: bool, with_recipient: bool) -> list[Word]:
    indefinite = p.determiner == "a"
    if negated and indefinite and p.plural:  # "no ve perros": nobody in particular, so no a either
        return _es_phrase(p)[1:]
    phrase = _es_phrase(p, determiner="no" if negated and indefinite else p.determiner)
    # Beside a recipient the direct object goes without a, so that it is clear which is which.
    animate = is_animate(p) and not with_recipient
    return [Word("a"), *phrase] if animate else phrase


def _es_phrase(p: Phrase, *, determiner: str | None = None) -> list[Word]:
    noun, determiner = NOUNS[p.noun], determiner or p.determiner
    column = 2 * p.plural + (noun.es_gender == "f")
    # "el águila negra": before a stressed a the feminine takes the short articles.
    article_column = 0 if noun.es_stressed_a and not p.plural and determiner in ("the", "a", "no") else column
    concept = NEGATION if determiner == "no" else _determiner_concept(determiner)
    words = [
        Word(_ES_DETERMINERS[determiner][article_column], concept),
        Word(noun.es[p.plural], noun.concept),
    ]
    if p.adjective:
        adjective = ADJECTIVES[p.adjective]
        words.append(Word(adjective.es[column], adjective.concept))
    return words


def _es_contract(words: list[Word]) -> list[Word]:
    joined: list[Word] = []
    for word in words:
        if word.text == "el" and joined and joined[-1].text == "a":
            joined[-1] = Word("al")
        else:
            joined.append(word)
    return joined


# ---------------------------------------------------------------------------------------------------


def is_animate(p: Phrase) -> bool:
    """Whether a phrase names a person or an animal."""
    return NOUNS[p.noun].kind in ("person", "role", "animal")


def _with_time(words: list[Word], m: Meaning, language: str, *, comma: bool) -> list[Word]:
    """The adverbial of time at the end, or in front and then perhaps with a comma."""
    if m.time is None:
        return words
    time = _words(TIMES[m.time].concept, getattr(TIMES[m.time], language))
    if not m.fronted:
        return words + time
    return [*time, *([Word(",", glued=True)] if comma else []), *words]


GRAMMARS = {"en_XX": english, "fr_XX": french, "de_DE": german, "es_XX": spanish}

# What a question is put between; French sets a blank before the mark.
_QUESTION_MARKS = {"en_XX": ("", "?"), "fr_XX": ("", " ?"), "de_DE": ("", "?"), "es_XX": ("¿", "?")}


def say(m: Meaning, language: str) -> tuple[str, tuple[tuple[int, int, str], ...]]:
    """The sentence, and (start, end, concept) for each of its words that expresses a concept.

    Positions count characters of the sentence. A concept that takes several words has several entries.
    """
    opening, closing = _QUESTION_MARKS[language] if m.question else ("", ".")
    words = GRAMMARS[language](m)
    first = words[0].text
    words[0] = words[0]._replace(text=first[0].upper() + first[1:], glued=True)
    return _written([Word(opening, QUESTION), *words, Word(closing, QUESTION if m.question else None, True)])


def _written(words: Iterable[Word]) -> tuple[str, tuple[tuple[int, int, str], ...]]:
    text, spans = "", []
    for word in words:
        if not word.glued and text:
            text += " "
        start = len(text) + len(word.text) - len(word.text.lstrip())
        text += word.text
        if word.concept and start < len(text):
            spans.append((start, len(text), word.concept))
    return text, tuple(spans)
