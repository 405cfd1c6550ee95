"""How one meaning is said in English, French, German and Spanish.

Each language is a small grammar of its own: nothing is translated word by word. A grammar returns the
sentence as a list of words in order; agreement and case are decided while the list is built, and what
depends on the neighbouring word (elision, contraction, a or an) when the list is done.
"""

from dataclasses import dataclass

from course_lib.mbart.lexicon import (
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
    the adverbial of time first, which changes the word order of a German sentence.
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


# --- English ---------------------------------------------------------------------------------------


def english(m: Meaning) -> list[str]:
    """Subject, verb, object, recipient, place, time; negation and the future take an auxiliary."""
    words = _en_phrase(m.subject) + _en_verb(VERBS[m.verb], m)
    if m.object:
        words += _en_phrase(m.object, negated=m.negated)
    if m.recipient:
        words += ["to", *_en_phrase(m.recipient)]
    if m.place:
        preposition, noun = PLACES[m.place].en
        words += [preposition, "the", noun]
    return _en_article(_with_time(words, m, "en", comma=True))


def _en_phrase(p: Phrase, *, negated: bool = False) -> list[str]:
    if p.determiner == "a" and p.plural:
        determiner = ["any"] if negated else []
    elif p.determiner == "this" and p.plural:
        determiner = ["these"]
    else:
        determiner = [p.determiner]
    adjective = [p.adjective] if p.adjective else []
    return [*determiner, *adjective, NOUNS[p.noun].en[p.plural]]


def _en_verb(verb: Verb, m: Meaning) -> list[str]:
    base, third_singular, past = verb.en
    if m.tense == "future":
        return ["will", "not", base] if m.negated else ["will", base]
    if m.negated:
        auxiliary = "did" if m.tense == "past" else "do" if m.subject.plural else "does"
        return [auxiliary, "not", base]
    if m.tense == "past":
        return [past]
    return [base if m.subject.plural else third_singular]


def _en_article(words: list[str]) -> list[str]:
    """A becomes an before a vowel. No word of the lexicon has a silent h or a u that sounds like you."""
    following = [*words[1:], ""]
    return [
        "an" if w == "a" and f[:1] in tuple("aeiou") else w for w, f in zip(words, following, strict=True)
    ]


# --- French ----------------------------------------------------------------------------------------

_FR_VOWELS = tuple("aàâeéèêiîoôuûœ")
_FR_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "ne": "n'"}
_FR_CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux"}
_FR_DETERMINERS = {
    "the": ("le", "la", "les"),
    "a": ("un", "une", "des"),
    "my": ("mon", "ma", "mes"),
    "this": ("ce", "cette", "ces"),
}
_FR_COUNTS = {"many": ["beaucoup", "de"], "two": ["deux"], "three": ["trois"]}


def french(m: Meaning) -> list[str]:
    """Subject, ne, verb, pas, participle, object, recipient, place, time."""
    words = _fr_phrase(m.subject) + _fr_verb(VERBS[m.verb], m)
    if m.object:
        words += _fr_phrase(m.object, negated=m.negated)
    if m.recipient:
        words += ["à", *_fr_phrase(m.recipient)]
    if m.place:
        preposition, noun, gender = PLACES[m.place].fr
        words += [preposition, "la" if gender == "f" else "le", noun]
    return _fr_join(_with_time(words, m, "fr", comma=True))


def _fr_phrase(p: Phrase, *, negated: bool = False) -> list[str]:
    noun = NOUNS[p.noun]
    adjective = ADJECTIVES[p.adjective] if p.adjective else None
    words = [noun.fr[p.plural]]
    if adjective and adjective.fr_before:
        words.insert(0, _fr_adjective(adjective, noun, p.plural, before=words[0]))
    elif adjective:
        words.append(_fr_adjective(adjective, noun, p.plural))
    return _fr_determiner(p, noun, first=words[0], negated=negated) + words


def _fr_adjective(adjective: Adjective, noun: Noun, plural: bool, *, before: str | None = None) -> str:
    if noun.fr_gender == "m" and not plural and before and _fr_vowel(before):
        return adjective.fr_before_vowel
    return adjective.fr[2 * plural + (noun.fr_gender == "f")]


def _fr_determiner(p: Phrase, noun: Noun, *, first: str, negated: bool) -> list[str]:
    if p.determiner in _FR_COUNTS:
        return list(_FR_COUNTS[p.determiner])
    # "pas de": the indefinite article of a direct object under negation; "de grandes pommes": des
    # before an adjective that stands before its noun.
    if p.determiner == "a" and (negated or (p.plural and first != noun.fr[1])):
        return ["de"]
    masculine, feminine, plural = _FR_DETERMINERS[p.determiner]
    if p.plural:
        return [plural]
    if _fr_vowel(first):  # "mon amie" and "cet homme"; l' is left to the elision below
        masculine, feminine = {"my": ("mon", "mon"), "this": ("cet", "cette")}.get(
            p.determiner, (masculine, feminine)
        )
    return [feminine if noun.fr_gender == "f" else masculine]


def _fr_verb(verb: Verb, m: Meaning) -> list[str]:
    plural = m.subject.plural
    participle = []
    if m.tense == "future":
        finite = verb.fr_future + ("ont" if plural else "a")
    elif m.tense == "present":
        finite = verb.fr_present[plural]
    elif verb.fr_with_etre:  # the participle agrees with the subject
        feminine = NOUNS[m.subject.noun].fr_gender == "f"
        finite, participle = (
            ("sont" if plural else "est"),
            [verb.fr_participle + "e" * feminine + "s" * plural],
        )
    else:
        finite, participle = ("ont" if plural else "a"), [verb.fr_participle]
    return ["ne", finite, "pas", *participle] if m.negated else [finite, *participle]


def _fr_vowel(word: str) -> bool:
    return word.startswith(_FR_VOWELS) or (word.startswith("h") and word not in FR_ASPIRATED)


def _fr_join(words: list[str]) -> list[str]:
    """Elision first (à l'école keeps its à), then the contractions of à with le and les."""
    elided = [
        _FR_ELIDED[w] if w in _FR_ELIDED and _fr_vowel(f) else w
        for w, f in zip(words, [*words[1:], ""], strict=True)
    ]
    joined: list[str] = []
    for word in elided:
        if joined and joined[-1].endswith("'") and joined[-1] in _FR_ELIDED.values():
            joined[-1] += word
        elif joined and (joined[-1], word) in _FR_CONTRACTED:
            joined[-1] = _FR_CONTRACTED[joined[-1], word]
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
_DE_STEMS = {"a": "ein", "my": "mein", "no": "kein", "this": "dies", "many": "viel"}
_DE_NUMERALS = {"two": "zwei", "three": "drei"}
_DE_CONTRACTED = {("in", "dem"): "im", ("an", "dem"): "am"}


def german(m: Meaning) -> list[str]:
    """Finite verb second; then subject (if not first), time, recipient, object, nicht, place, infinitive.

    An indefinite object is negated by kein, everything else by nicht.
    """
    no_object = m.negated and m.object is not None and m.object.determiner == "a"
    subject = _de_phrase(m.subject, "nominative")
    finite, infinitive = _de_verb(VERBS[m.verb], m)
    time = [TIMES[m.time].de] if m.time else []
    words = [*time, finite, *subject] if m.fronted else [*subject, finite, *time]
    if m.recipient:
        words += _de_phrase(m.recipient, "dative")
    if m.object:
        words += _de_phrase(m.object, "accusative", negated=no_object)
    if m.negated and not no_object:
        words.append("nicht")
    if m.place:
        words += _de_place(PLACES[m.place])
    return words + infinitive


def _de_verb(verb: Verb, m: Meaning) -> tuple[str, list[str]]:
    infinitive, present, past = verb.de
    plural = m.subject.plural
    if m.tense == "future":
        return ("werden" if plural else "wird"), [infinitive]
    if m.tense == "past":
        return past + (("n" if past.endswith("e") else "en") if plural else ""), []
    return (infinitive if plural else present), []


def _de_phrase(p: Phrase, case: str, *, negated: bool = False) -> list[str]:
    noun = NOUNS[p.noun]
    column = 3 if p.plural else _DE_COLUMNS[noun.de_gender]
    determiner, shows_case = _de_determiner("no" if negated else p.determiner, case, column)
    words = [determiner] if determiner else []
    if p.adjective:
        # One word of the phrase shows the case: the adjective takes the strong ending only where the
        # determiner has none (and after viele, which counts as an adjective itself).
        ending = _de_weak_ending(case, column) if shows_case else _DE_STRONG[case][column]
        words.append(ADJECTIVES[p.adjective].de + ending)
    return [*words, _de_noun(noun, p.plural, case)]


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
    like_ein = determiner in ("a", "my", "no")
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


def _de_place(place: Place) -> list[str]:
    preposition, noun, gender = place.de
    article = _DE_THE["dative"][_DE_COLUMNS[gender]]
    contracted = _DE_CONTRACTED.get((preposition, article))
    return [contracted, noun] if contracted else [preposition, article, noun]


# --- Spanish ---------------------------------------------------------------------------------------

_ES_DETERMINERS = {  # masculine and feminine singular, masculine and feminine plural
    "the": ("el", "la", "los", "las"),
    "a": ("un", "una", "unos", "unas"),
    "no": ("ningún", "ninguna"),
    "my": ("mi", "mi", "mis", "mis"),
    "this": ("este", "esta", "estos", "estas"),
    "many": ("muchos", "muchas", "muchos", "muchas"),
    "two": ("dos",) * 4,
    "three": ("tres",) * 4,
}


def spanish(m: Meaning) -> list[str]:
    """Subject, no, le, verb, object, recipient, place, time.

    A person or an animal as direct object takes the preposition a; a recipient takes it too and is
    announced by le or les before the verb.
    """
    verb = VERBS[m.verb]
    words = _es_phrase(m.subject)
    if m.negated:
        words.append("no")
    if m.recipient:
        words.append("les" if m.recipient.plural else "le")
    words.append(_es_verb(verb, m))
    if m.object:
        words += _es_object(m.object, negated=m.negated, with_recipient=m.recipient is not None)
    if m.recipient:
        words += ["a", *_es_phrase(m.recipient)]
    if m.place:
        preposition, noun, gender = PLACES[m.place].es
        words += [preposition, "la" if gender == "f" else "el", noun]
    return _es_contract(_with_time(words, m, "es", comma=False))


def _es_verb(verb: Verb, m: Meaning) -> str:
    plural = m.subject.plural
    if m.tense == "future":
        return verb.es_future + ("án" if plural else "á")
    if m.tense == "past":
        return verb.es_past[plural]
    return verb.es_present + ("n" if plural else "")


def _es_object(p: Phrase, *, negated: bool, with_recipient: bool) -> list[str]:
    indefinite = p.determiner == "a"
    if negated and indefinite and p.plural:  # "no ve perros": nobody in particular, so no a either
        return _es_phrase(p)[1:]
    phrase = _es_phrase(p, determiner="no" if negated and indefinite else p.determiner)
    # Beside a recipient the direct object goes without a, so that it is clear which is which.
    animate = NOUNS[p.noun].kind in ("person", "animal") and not with_recipient
    return ["a", *phrase] if animate else phrase


def _es_phrase(p: Phrase, *, determiner: str | None = None) -> list[str]:
    noun, determiner = NOUNS[p.noun], determiner or p.determiner
    column = 2 * p.plural + (noun.es_gender == "f")
    # "el águila negra": before a stressed a the feminine takes the short articles.
    article_column = 0 if noun.es_stressed_a and not p.plural and determiner in ("the", "a", "no") else column
    words = [_ES_DETERMINERS[determiner][article_column], noun.es[p.plural]]
    return [*words, ADJECTIVES[p.adjective].es[column]] if p.adjective else words


def _es_contract(words: list[str]) -> list[str]:
    joined: list[str] = []
    for word in words:
        if word == "el" and joined and joined[-1] == "a":
            joined[-1] = "al"
        else:
            joined.append(word)
    return joined


# ---------------------------------------------------------------------------------------------------


def _with_time(words: list[str], m: Meaning, language: str, *, comma: bool) -> list[str]:
    """The adverbial of time at the end, or in front and then perhaps with a comma."""
    if m.time is None:
        return words
    time = getattr(TIMES[m.time], language)
    return [time + "," * comma, *words] if m.fronted else [*words, time]


GRAMMARS = {"en_XX": english, "fr_XX": french, "de_DE": german, "es_XX": spanish}
