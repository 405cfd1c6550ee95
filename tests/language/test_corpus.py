"""The corpus: checked sentences for each language, determinism, splits, concepts."""

import random
from collections import Counter
from dataclasses import fields

import pytest

from course_lib.language.corpus import (
    CONCEPTS,
    GRAMMATICAL_CONCEPTS,
    LANGUAGES,
    LEXICAL_CONCEPTS,
    Meaning,
    Phrase,
    _draw_meaning,
    concepts_of,
    draw_meanings,
    generate,
    minimal_pairs,
    render,
    split_of,
)
from course_lib.language.lexicon import ADJECTIVES, NOUNS, PLACES, TIMES, VERBS

P = Phrase

# What is said, and how: English, French, German, Spanish.
CHECKED = {
    "present": (
        Meaning("sleep", P("dog")),
        "The dog sleeps.",
        "Le chien dort.",
        "Der Hund schläft.",
        "El perro duerme.",
    ),
    "plural": (
        Meaning("sing", P("woman", plural=True)),
        "The women sing.",
        "Les femmes chantent.",
        "Die Frauen singen.",
        "Las mujeres cantan.",
    ),
    "elision of the article, personal a with al": (
        Meaning("see", P("child"), P("elephant")),
        "The child sees the elephant.",
        "L'enfant voit l'éléphant.",
        "Das Kind sieht den Elefanten.",
        "El niño ve al elefante.",
    ),
    "elision of ne and de, kein, ningún": (
        Meaning("buy", P("man"), P("egg", "a"), tense="present", negated=True),
        "The man does not buy an egg.",
        "L'homme n'achète pas d'œuf.",
        "Der Mann kauft kein Ei.",
        "El hombre no compra ningún huevo.",
    ),
    "negated indefinite plural": (
        Meaning("eat", P("girl", "my"), P("apple", "a", plural=True), tense="past", negated=True),
        "My girl did not eat any apples.",
        "Ma fille n'a pas mangé de pommes.",
        "Mein Mädchen aß keine Äpfel.",
        "Mi muchacha no comió manzanas.",
    ),
    "nicht after the object and before the place": (
        Meaning("find", P("king"), P("key"), place="garden", tense="past", negated=True),
        "The king did not find the key in the garden.",
        "Le roi n'a pas trouvé la clé dans le jardin.",
        "Der König fand den Schlüssel nicht im Garten.",
        "El rey no encontró la llave en el jardín.",
    ),
    "dative and accusative, le before the verb": (
        Meaning("give", P("woman"), P("coat", adjective="red"), P("child"), tense="past"),
        "The woman gave the red coat to the child.",
        "La femme a donné le manteau rouge à l'enfant.",
        "Die Frau gab dem Kind den roten Mantel.",
        "La mujer le dio el abrigo rojo al niño.",
    ),
    "dative plural, aux, les": (
        Meaning(
            "show", P("teacher"), P("clock", "a"), P("boy", plural=True, adjective="tired"), tense="future"
        ),
        "The teacher will show a clock to the tired boys.",
        "Le professeur montrera une horloge aux garçons fatigués.",
        "Der Lehrer wird den müden Jungen eine Uhr zeigen.",
        "El profesor les mostrará un reloj a los muchachos cansados.",
    ),
    "strong ending after ein, adjective before the French noun": (
        Meaning("draw", P("queen"), P("horse", "a", adjective="old")),
        "The queen draws an old horse.",
        "La reine dessine un vieux cheval.",
        "Die Königin zeichnet ein altes Pferd.",
        "La reina dibuja a un caballo viejo.",
    ),
    "ein in the accusative, bel before a vowel": (
        Meaning("draw", P("doctor", "a"), P("bird", "a", adjective="beautiful")),
        "A doctor draws a beautiful bird.",
        "Un médecin dessine un bel oiseau.",
        "Ein Arzt zeichnet einen schönen Vogel.",
        "Un médico dibuja a un pájaro hermoso.",
    ),
    "de before a preceding plural adjective, strong plural": (
        Meaning("sell", P("farmer"), P("table", "a", plural=True, adjective="small")),
        "The farmer sells small tables.",
        "L'agriculteur vend de petites tables.",
        "Der Bauer verkauft kleine Tische.",
        "El agricultor vende unas mesas pequeñas.",
    ),
    "feminine agreement with être, verb second": (
        Meaning(
            "fall",
            P("actress", "many", plural=True),
            place="street",
            time="yesterday",
            fronted=True,
            tense="past",
        ),
        "Yesterday, many actresses fell in the street.",
        "Hier, beaucoup d'actrices sont tombées dans la rue.",
        "Gestern fielen viele Schauspielerinnen auf der Straße.",
        "Ayer muchas actrices cayeron en la calle.",
    ),
    "aspirated h, stressed a": (
        Meaning("lose", P("brother"), P("axe", adjective="heavy"), time="summer", tense="past"),
        "The brother lost the heavy axe in summer.",
        "Le frère a perdu la hache lourde en été.",
        "Der Bruder verlor im Sommer die schwere Axt.",
        "El hermano perdió el hacha pesada en verano.",
    ),
    "al before águila, plural with las": (
        Meaning("hear", P("eagle", plural=True), P("eagle", adjective="black"), tense="present"),
        "The eagles hear the black eagle.",
        "Les aigles entendent l'aigle noir.",
        "Die Adler hören den schwarzen Adler.",
        "Las águilas oyen al águila negra.",
    ),
    "weak noun in the dative, mon before a feminine vowel, au": (
        Meaning(
            "lend", P("student"), P("ladder", "my"), P("farmer"), place="market", tense="future", negated=True
        ),
        "The student will not lend my ladder to the farmer at the market.",
        "L'étudiant ne prêtera pas mon échelle à l'agriculteur au marché.",
        "Der Student wird dem Bauern meine Leiter nicht auf dem Markt leihen.",
        "El estudiante no le prestará mi escalera al agricultor en el mercado.",
    ),
    "cet, dieser, este": (
        Meaning("swim", P("elephant", "this", adjective="young"), time="now"),
        "This young elephant swims now.",
        "Ce jeune éléphant nage maintenant.",
        "Dieser junge Elefant schwimmt jetzt.",
        "Este elefante joven nada ahora.",
    ),
    "numeral, plural of feliz": (
        Meaning("dance", P("girl", "three", plural=True, adjective="happy"), place="beach", time="night"),
        "Three happy girls dance on the beach at night.",
        "Trois filles heureuses dansent sur la plage la nuit.",
        "Drei glückliche Mädchen tanzen in der Nacht am Strand.",
        "Tres muchachas felices bailan en la playa por la noche.",
    ),
    "this before a vowel, reflexive under negation": (
        Meaning("stay", P("man", "this"), place="school", tense="past", negated=True),
        "This man did not stay at the school.",
        "Cet homme n'est pas resté à l'école.",
        "Dieser Mann blieb nicht in der Schule.",
        "Este hombre no se quedó en la escuela.",
    ),
    "question: do, est-ce que, verb first, both marks": (
        Meaning("sleep", P("dog"), question=True),
        "Does the dog sleep?",
        "Est-ce que le chien dort ?",
        "Schläft der Hund?",
        "¿Duerme el perro?",
    ),
    "question: did, qu', personal a, time after the subject": (
        Meaning("see", P("man", "a"), P("woman", "our"), time="yesterday", tense="past", question=True),
        "Did a man see our woman yesterday?",
        "Est-ce qu'un homme a vu notre femme hier ?",
        "Sah ein Mann gestern unsere Frau?",
        "¿Vio un hombre a nuestra mujer ayer?",
    ),
    "negated question, future: will ... not, infinitive last": (
        Meaning(
            "give",
            P("queen"),
            P("letter", "a"),
            P("sailor", plural=True),
            tense="future",
            negated=True,
            question=True,
        ),
        "Will the queen not give a letter to the sailors?",
        "Est-ce que la reine ne donnera pas de lettre aux marins ?",
        "Wird die Königin den Matrosen keinen Brief geben?",
        "¿No les dará la reina ninguna carta a los marineros?",
    ),
    "unser like ein, notre and nos": (
        Meaning(
            "forget", P("neighbour", "our", plural=True), P("book", "our", adjective="heavy"), tense="past"
        ),
        "Our neighbours forgot our heavy book.",
        "Nos voisins ont oublié notre livre lourd.",
        "Unsere Nachbarn vergaßen unser schweres Buch.",
        "Nuestros vecinos olvidaron nuestro libro pesado.",
    ),
    "irregular plurals, one form for both numbers in French": (
        Meaning("chase", P("mouse", "ten", plural=True), P("thief", "this", plural=True, adjective="shy")),
        "Ten mice chase these shy thieves.",
        "Dix souris poursuivent ces voleurs timides.",
        "Zehn Mäuse verfolgen diese schüchternen Diebe.",
        "Diez ratones persiguen a estos ladrones tímidos.",
    ),
    "adjectives of nationality, aspirated harpe, el arpa": (
        Meaning("repair", P("singer", adjective="Italian"), P("harp", adjective="Spanish"), tense="future"),
        "The Italian singer will repair the Spanish harp.",
        "La chanteuse italienne réparera la harpe espagnole.",
        "Die italienische Sängerin wird die spanische Harfe reparieren.",
        "La cantante italiana reparará el arpa española.",
    ),
    "être for things, invariable marrón, brun in the plural": (
        Meaning("fall", P("bottle", "four", plural=True, adjective="brown"), place="cellar", tense="past"),
        "Four brown bottles fell in the cellar.",
        "Quatre bouteilles brunes sont tombées dans la cave.",
        "Vier braune Flaschen fielen im Keller.",
        "Cuatro botellas marrones cayeron en el sótano.",
    ),
    "grands-mères, dative plural that ends in n already": (
        Meaning(
            "lend",
            P("grandmother", "my", plural=True),
            P("umbrella", "a", adjective="grey"),
            P("aunt", plural=True),
            time="next week",
            tense="future",
        ),
        "My grandmothers will lend a grey umbrella to the aunts next week.",
        "Mes grands-mères prêteront un parapluie gris aux tantes la semaine prochaine.",
        "Meine Großmütter werden nächste Woche den Tanten einen grauen Regenschirm leihen.",
        "Mis abuelas les prestarán un paraguas gris a las tías la próxima semana.",
    ),
    "à l' for places, auf der, stressed syllables": (
        Meaning("dream", P("princess", adjective="young"), place="hospital", time="spring"),
        "The young princess dreams in the hospital in spring.",
        "La jeune princesse rêve à l'hôpital au printemps.",
        "Die junge Prinzessin träumt im Frühling im Krankenhaus.",
        "La princesa joven sueña en el hospital en primavera.",
    ),
    "weak masculine in the accusative, au musée": (
        Meaning("fear", P("judge"), P("bear", "a", adjective="angry"), place="museum"),
        "The judge fears an angry bear in the museum.",
        "Le juge craint un ours furieux au musée.",
        "Der Richter fürchtet einen wütenden Bären im Museum.",
        "El juez teme a un oso furioso en el museo.",
    ),
}


@pytest.mark.parametrize("case", CHECKED)
def test_checked_sentences(case):
    meaning, *expected = CHECKED[case]
    assert [render(meaning, language).text for language in LANGUAGES] == expected


def test_the_table_covers_every_language_at_least_twelve_times():
    assert LANGUAGES == ("en_XX", "fr_XX", "de_DE", "es_XX")
    assert len(CHECKED) >= 25


def test_one_meaning_one_text_in_every_language():
    meanings = draw_meanings(1000, seed=3)
    assert len(set(meanings)) == 1000
    for language in LANGUAGES:
        assert len({render(m, language).text for m in meanings}) == 1000


def test_the_same_seed_gives_the_same_sentences_and_a_longer_draw_begins_with_the_shorter():
    first = generate(200, seed=5)
    assert generate(200, seed=5) == first
    assert generate(50, seed=5) == first[:50]
    assert generate(200, seed=6) != first


def test_sentences_are_unique_and_languages_take_turns():
    sentences = generate(300, seed=1, languages=("de_DE", "fr_XX"))
    assert len({s.text for s in sentences}) == 300
    assert [s.language for s in sentences[:3]] == ["de_DE", "fr_XX", "de_DE"]


def test_no_meaning_is_in_both_splits_whatever_the_seed():
    train = {s.meaning for seed in range(3) for s in generate(300, seed=seed)}
    test = {s.meaning for seed in range(3) for s in generate(40, seed=seed, split="test")}
    assert len(test) > 115
    assert not train & test


def test_about_one_meaning_in_ten_is_for_testing():
    meanings = [Meaning(v, P(n)) for v in VERBS for n in NOUNS]
    share = sum(split_of(m) == "test" for m in meanings) / len(meanings)
    # Over 2,000 meanings: a standard error below 0.007.
    assert share == pytest.approx(0.1, abs=0.025)


def test_translations_share_meaning_and_concepts():
    meaning = CHECKED["dative plural, aux, les"][0]
    sentences = [render(meaning, language) for language in LANGUAGES]
    assert len({s.meaning for s in sentences}) == 1
    assert all(
        s.concepts
        == {
            "verb:show",
            "role:teacher",
            "person:boy",
            "furniture:clock",
            "feeling:tired",
            "grammar:future",
            "grammar:plural",
            "grammar:recipient",
            "grammar:animate subject",
        }
        for s in sentences
    )


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        (
            "en_XX",
            {"Did": "past", "not": "negation", "queen": "role:queen", "buy": "verb:buy", "?": "question"},
        ),
        (
            "fr_XX",
            {"Est-ce": "question", "n'": "negation", "a": "past", "acheté": "verb:buy", "œufs": "food:egg"},
        ),
        (
            "de_DE",
            {"Kaufte": "verb:buy", "keine": "negation", "frischen": "condition:fresh", "die": None},
        ),
        ("es_XX", {"¿": "question", "No": "negation", "compró": "verb:buy", "huevos": "food:egg"}),
    ],
)
def test_each_word_has_its_concept(language, expected):
    meaning = Meaning(
        "buy",
        P("queen"),
        P("egg", "a", plural=True, adjective="fresh"),
        time="last week",
        tense="past",
        negated=True,
        question=True,
    )
    sentence = render(meaning, language)
    found = {sentence.text[start:end]: concept for start, end, concept in sentence.words}
    for word, concept in expected.items():
        concept = concept and (concept if ":" in concept else f"grammar:{concept}")
        assert found.get(word) == concept
    assert sum(concept == "time:last week" for concept in found.values()) >= 2


def test_the_concepts_of_the_words_are_those_of_the_sentence():
    for meaning in draw_meanings(400, seed=8):
        for language in LANGUAGES:
            sentence = render(meaning, language)
            lexical = {c for _, _, c in sentence.words if not c.startswith("grammar:")}
            assert lexical == {c for c in sentence.concepts if not c.startswith("grammar:")}
            ends = [end for _, end, _ in sentence.words]
            starts = [start for start, _, _ in sentence.words]
            assert all(start >= end for start, end in zip(starts[1:], ends, strict=False))
            assert all(sentence.text[a:b].strip() == sentence.text[a:b] != "" for a, b, _ in sentence.words)


def test_no_two_concepts_share_a_form():
    """But for the adjective and the verb clean: else a word would not tell which concept it expresses."""
    for language in ("en", "fr", "de", "es"):
        forms = {}
        for word in (*NOUNS.values(), *PLACES.values()):
            written = getattr(word, language)
            for form in written[:2] if word in NOUNS.values() else written[1:2]:
                forms.setdefault(form, set()).add(word.concept)
        for adjective in ADJECTIVES.values():
            stem = adjective.de
            german = [stem + ending for ending in ("", "e", "er", "es", "en", "em")]
            for form in {"en": (adjective.name,), "fr": adjective.fr, "de": german, "es": adjective.es}[
                language
            ]:
                forms.setdefault(form, set()).add(adjective.concept)
        for verb in VERBS.values():
            french = (*verb.fr_present, verb.fr_participle)
            spanish = (verb.es_present, *verb.es_past)
            for form in {"en": verb.en, "fr": french, "de": verb.de, "es": spanish}[language]:
                forms.setdefault(form, set()).add(verb.concept)
        for time in TIMES.values():
            forms.setdefault(getattr(time, language), set()).add(time.concept)
        shared = [concepts for concepts in forms.values() if len(concepts) > 1]
        assert all(concepts == {"condition:clean", "verb:clean"} for concepts in shared)


def test_minimal_pairs_differ_in_one_concept():
    rng = random.Random(0)
    for meaning in draw_meanings(100, seed=2):
        pairs = minimal_pairs(meaning, rng)
        assert len(pairs) >= 3
        assert len({*pairs, meaning}) == len(pairs) + 1
        for other in pairs:
            changed = [f.name for f in fields(Meaning) if getattr(meaning, f.name) != getattr(other, f.name)]
            assert len(changed) == 1
            lexical = {c for c in concepts_of(meaning) ^ concepts_of(other) if not c.startswith("grammar:")}
            assert len(lexical) <= 2
            assert len({render(m, "fr_XX").text for m in (meaning, other)}) == 2


def test_a_million_distinct_sentences_can_be_drawn():
    """Of 10,000 draws hardly any repeats: by the birthday problem there are far more than a million."""
    rng = random.Random(0)
    drawn = [_draw_meaning(rng) for _ in range(10_000)]
    repeated = len(drawn) - len(set(drawn))
    # Uniform over a million meanings 50 of them would be expected; short sentences are drawn more often.
    assert repeated < 25


def test_meaning_ids_are_the_same_on_every_machine():
    assert render(Meaning("sleep", P("dog")), "en_XX").meaning == 5404642294635742894


def test_every_concept_occurs_and_no_other():
    seen = set().union(*(s.concepts for s in generate(3000, seed=0)))
    assert seen == set(CONCEPTS) == {*LEXICAL_CONCEPTS, *GRAMMATICAL_CONCEPTS}
    assert len(LEXICAL_CONCEPTS) == len(set(LEXICAL_CONCEPTS)) >= 300
    assert len(set(CONCEPTS.values())) >= 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"languages": ("en_XX", "it_IT")}, "it_IT"),
        ({"languages": ()}, "languages is empty"),
        ({"split": "valid"}, "'valid'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate(3, seed=0, **arguments)


def test_a_negative_count_is_refused():
    with pytest.raises(ValueError, match="-1"):
        generate(-1, seed=0)


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_lexical_concept_can_be_asked_for(split):
    plain = generate(900, seed=3, split=split)
    asked = generate(900, seed=3, split=split, at_least=3)
    counts = [Counter(c for s in sentences for c in s.concepts) for sentences in (plain, asked)]
    assert min(counts[0][c] for c in LEXICAL_CONCEPTS) < 3
    assert min(counts[1][c] for c in LEXICAL_CONCEPTS) >= 3
    assert len(asked) == len({s.meaning for s in asked}) == 900
    assert {split_of(s.meaning) for s in asked} == {split}
    assert asked[:400] == generate(400, seed=3, split=split, at_least=3)
    assert asked[-50:] != plain[-50:]
    by_chance = {s.meaning for s in plain}
    assert {s.meaning for s in asked[-50:]} <= by_chance  # the rest is drawn by chance
    languages = Counter(s.language for s in asked)
    assert max(languages.values()) < 1.3 * min(languages.values())
    with pytest.raises(ValueError, match="at_least is -1"):
        generate(5, seed=0, at_least=-1)
