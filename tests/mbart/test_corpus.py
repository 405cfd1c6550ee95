"""The corpus: checked sentences for each language, determinism, splits, concepts."""

import pytest

from course_lib.mbart.corpus import (
    CONCEPTS,
    LANGUAGES,
    Meaning,
    Phrase,
    draw_meanings,
    generate,
    render,
    split_of,
)
from course_lib.mbart.lexicon import NOUNS, VERBS

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
}


@pytest.mark.parametrize("case", CHECKED)
def test_checked_sentences(case):
    meaning, *expected = CHECKED[case]
    assert [render(meaning, language).text for language in LANGUAGES] == expected


def test_the_table_covers_every_language_at_least_twelve_times():
    assert LANGUAGES == ("en_XX", "fr_XX", "de_DE", "es_XX")
    assert len(CHECKED) >= 12


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
            "person:teacher",
            "person:boy",
            "furniture:clock",
            "quality:tired",
            "grammar:future",
            "grammar:plural",
            "grammar:recipient",
        }
        for s in sentences
    )


def test_meaning_ids_are_the_same_on_every_machine():
    assert render(Meaning("sleep", P("dog")), "en_XX").meaning == 6809362097863790932


def test_every_concept_occurs_and_no_other():
    seen = set().union(*(s.concepts for s in generate(1500, seed=0)))
    assert seen == set(CONCEPTS)
    assert 100 <= len([c for c, kind in CONCEPTS.items() if kind != "grammar"]) <= 170
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
