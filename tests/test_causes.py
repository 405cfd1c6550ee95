"""Effects on hand-made translations, changes against their definitions, and many cases at once against one by one."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest
from torch.nn.functional import one_hot

from course_lib.figures import text_alternative
from course_lib.language.corpus import Meaning, Phrase, Sentence, draw_meanings, render
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load
from course_lib.pipeline import causes
from course_lib.pipeline.causes import Case, Effect, Outcome, effect
from course_lib.sae import TopKSparseAutoencoder

ENCODER = Site("encoder")
WORDS = ["animal:dog", "verb:eat", "place:school", "determiner:my"]

# "La pomme verte tombe." / "The green apple falls." / "Der grüne Apfel fällt." / "La manzana verde cae."
FALLS = Meaning("fall", Phrase("apple", adjective="green"))
# "Un perro grande ve a la mujer." and its translations.
SEES = Meaning("see", Phrase("dog", "a", adjective="big"), Phrase("woman"), tense="past")


def case(meaning, concept, target):
    return Case(meaning, concept, "de_DE" if target != "de_DE" else "en_XX", target)


@pytest.fixture(scope="module")
def mbart():
    model, tokenizer = load()
    return model.requires_grad_(False), tokenizer


@pytest.fixture(scope="module")
def cases():
    return causes.draw_cases(WORDS, 12, seed=0, pool=1000)


@pytest.fixture(scope="module")
def autoencoder(mbart, cases):
    model, tokenizer = mbart
    states = extract(model, tokenizer, [c.read for c in cases], [ENCODER], progress=False)[ENCODER].values
    made = TopKSparseAutoencoder(256, 300, k=6, generator=torch.Generator().manual_seed(0))
    made.fit_normalisation(states)
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def rows(mbart, cases):
    """States, the number of each row's case, and its token."""
    model, tokenizer = mbart
    states = extract(model, tokenizer, [c.read for c in cases], [ENCODER], progress=False)[ENCODER]
    return states.values, states.sentence, states.position


# --- Effects ---------------------------------------------------------------------------------------

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
    assert effect(case(meaning, concept, target), text) == expected


def test_an_exchange_of_the_word_is_seen_in_every_part_of_speech():
    """Any rendering becomes its concept, with nothing elsewhere; one word more is one elsewhere."""
    for meaning in draw_meanings(2, seed=5):
        for concept in sorted(render(meaning, "en_XX").concepts):
            if len(causes.slots(meaning, concept)) != 1:
                continue
            seen = case(meaning, concept, "es_XX")
            for other in list(seen.renderings)[1:4]:
                written = seen.renderings[other]
                found = effect(seen, " ".join(written))
                assert found.changed
                assert found.others == 0
                assert seen.renderings[found.became] == written
                assert effect(seen, " ".join([*written, "und"])).others == 1


def test_distance_is_the_shortest_way():
    assert causes.distance(["a", None, "c"], ["a", "x", "c"]) == 0
    assert causes.distance(["a", None, "c"], ["a", "c"]) == 0
    assert causes.distance(["a", None, "c"], ["a", "x", "y", "c"]) == 1
    assert causes.distance(["a", "b", "c"], ["b", "c"]) == 1
    assert causes.distance(["a", "b"], ["c", "d", "e"]) == 3


def test_alternatives_change_one_word_and_keep_its_number():
    many = replace(SEES, object=Phrase("woman", "two", True))
    assert set(causes.alternatives(many, "determiner:two")) >= {"determiner:many", "determiner:my"}
    one = replace(SEES, object=Phrase("woman", "my"))
    assert set(causes.alternatives(one, "determiner:my")) == {
        "determiner:my",
        "determiner:our",
        "determiner:the",  # and not "a", which the sentence says already
        "determiner:this",
    }
    assert "animal:dog" not in causes.alternatives(SEES, "person:woman")  # the sentence says it already
    assert "verb:sleep" not in causes.alternatives(SEES, "verb:see")  # it takes no object


def test_what_is_not_said_once_is_refused():
    twice = replace(SEES, object=Phrase("woman", adjective="big"))
    for meaning, concept, places in ((twice, "size:big", 2), (SEES, "food:bread", 0)):
        with pytest.raises(ValueError, match=f"{concept}' in {places} places; expected 1"):
            case(meaning, concept, "fr_XX")
    with pytest.raises(ValueError, match="0 concepts and n_cases 3"):
        causes.draw_cases([], 3, seed=0)
    with pytest.raises(ValueError, match="concepts has 'food:bread'; expected some of LEXICAL_CONCEPTS"):
        causes.draw_cases(["food:bread"], 3, seed=0)


def test_outcomes_count_and_add_up():
    seen = [case(FALLS, "food:apple", "fr_XX")] * 3
    found = [
        effect(c, text)
        for c, text in zip(seen, (FRENCH, "Le chien vert tombe.", "La banane verte dort."), strict=True)
    ]
    aimed = Outcome.of(seen, found, ["animal:dog", "animal:dog", "food:banana"])
    # Four words and marks stand beside each word.
    assert aimed == Outcome(3, 2, 1, 1, 1, 1, 12, aimed=1)
    assert Outcome.of(seen, found) + Outcome.of(seen, found) == Outcome(6, 4, 2, 2, 2, 2, 24)
    with pytest.raises(ValueError, match="expected both or neither"):
        aimed + Outcome.of(seen, found)
    assert str(aimed).startswith("n 3, %: changed 67 [21..94], elsewhere 33")


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (3, 10), (7, 7), (180, 300)])
def test_wilson_is_scipys(hits, n):
    theirs = binomtest(hits, n).proportion_ci(method="wilson")
    assert causes.wilson(hits, n) == pytest.approx((hits / n, theirs.low, theirs.high), abs=1e-4)


def test_wilson_refuses_more_hits_than_cases():
    with pytest.raises(ValueError, match="hits is 3 of n = 2"):
        causes.wilson(3, 2)


# --- Cases and translations ------------------------------------------------------------------------


def test_cases_are_held_out_distinct_and_in_turn(cases):
    assert len({c.meaning for c in cases}) == len(cases) == 12
    assert [sum(c.concept == word for c in cases) for word in WORDS] == [3, 3, 3, 3]
    assert all(c.source != c.target and c.meaning not in set(draw_meanings(50, seed=200)) for c in cases)
    assert len(causes.draw_cases(["animal:dog"], 10**4, seed=0, pool=200)) < 50  # as many as there are


def test_own_tokens_are_those_that_spell_the_word(mbart, cases):
    tokenizer = mbart[1]
    for c, own in zip(cases, causes.own_tokens(tokenizer, cases), strict=True):
        tokenizer.src_lang = c.source
        ids = torch.tensor(tokenizer(c.read.text)["input_ids"])
        [said] = {c.read.text[a:b] for a, b, concept in c.read.words if concept == c.concept}
        assert tokenizer.decode(ids[own[: len(ids)]]).lower() == said.lower()
        assert not own[len(ids) :].any()


def test_many_at_once_are_translated_as_one_by_one(mbart, cases, autoencoder):
    """Under a different change in each case, at two sites."""
    model, tokenizer = mbart
    own = causes.own_tokens(tokenizer, cases)
    drawn = torch.randn(12, 256, generator=torch.Generator().manual_seed(1))

    def changes(chosen):
        return {
            ENCODER: causes.at(own[chosen], causes.shifted(2 * drawn[chosen])),
            Site("decoder", 1): causes.everywhere(causes.shifted(0.3 * drawn[chosen].flip(1))),
        }

    every = torch.arange(12)
    at_once = causes.translations(model, tokenizer, cases, changes(every), batch_size=8)
    alone = [
        causes.translations(model, tokenizer, [cases[i]], changes(every[i : i + 1]))[0] for i in range(12)
    ]
    assert at_once == alone
    clean = causes.translations(model, tokenizer, cases)
    assert sum(a != b for a, b in zip(at_once, clean, strict=True)) >= 6
    assert causes.right_cases(model, tokenizer, cases) == [
        c for c, text in zip(cases, clean, strict=True) if text == render(c.meaning, c.target).text
    ]


def test_another_words_state_makes_the_other_word(mbart):
    """A change at the word's own tokens reaches the decoder: the state of "cat" there writes it."""
    model, tokenizer = mbart
    drawn = causes.draw_cases(["animal:dog"], 6, seed=1, pool=600)
    seen = causes.right_cases(model, tokenizer, drawn)
    other = [
        Sentence(render(m, "en_XX").text, "en_XX", words=render(m, "en_XX").words)
        for m in draw_meanings(1200, seed=1)
    ]
    other = [s for s in other if any(concept == "animal:cat" for *_, concept in s.words)]
    states = extract(model, tokenizer, other, [ENCODER], progress=False)[ENCODER].values
    cat = states[causes.word_concepts(tokenizer, other, ["animal:cat"]) == 0].mean(dim=0)
    change = causes.at(causes.own_tokens(tokenizer, seen), causes.set_to(cat.expand(len(seen), -1)))
    found = causes.effects(model, tokenizer, seen, {ENCODER: change})
    assert len(seen) >= 4
    assert all(e.changed for e in found)
    assert sum(e.became == "animal:cat" for e in found) >= len(seen) / 2
    untouched = causes.effects(model, tokenizer, seen, {ENCODER: causes.everywhere(lambda x, _: x)})
    assert untouched == [Effect(False, 0, 0, "animal:dog")] * len(seen)


# --- Changes ---------------------------------------------------------------------------------------


def test_rewritten_changes_what_the_features_write_and_nothing_else(autoencoder, rows):
    x, sentence, _ = rows
    off = torch.rand(12, 300, generator=torch.Generator().manual_seed(2)) < 0.3
    values = torch.zeros(12, 300)
    values[torch.arange(12), torch.arange(12)] = 1.5
    found = causes.rewritten(autoencoder, off, factor=-0.5, values=values)(x, sentence)
    for i in range(0, len(x), 7):
        code = autoencoder.encode(x[i : i + 1])[0]
        changed = code.clone()
        changed[off[sentence[i]]] *= -0.5
        changed[sentence[i]] = 1.5
        moved = autoencoder.decoder_weight @ (changed - code) * autoencoder.input_scale
        torch.testing.assert_close(found[i], x[i] + moved, rtol=1e-4, atol=1e-4)
    same = causes.rewritten(autoencoder, off, factor=1)(x, sentence)
    assert torch.equal(same, x)


def test_only_chosen_tokens_are_edited(rows):
    x, sentence, token = rows
    chosen = torch.zeros(12, int(token.max()) + 1, dtype=torch.bool)
    chosen[3, 2] = chosen[5, 1] = True
    found = causes.at(chosen, causes.shifted(torch.ones(12, 256)))(x, sentence, token)
    moved = (found != x).any(dim=1)
    assert moved.sum() == 2
    assert list(zip(sentence[moved].tolist(), token[moved].tolist(), strict=True)) == [(3, 2), (5, 1)]


def test_erased_leaves_the_centres_component_and_all_others(rows):
    x, sentence, _ = rows
    direction, centre = torch.randn(2, 12, 256, generator=torch.Generator().manual_seed(3)).unbind()
    unit = (direction / direction.norm(dim=1, keepdim=True))[sentence]
    found = causes.erased(direction, centre)(x, sentence)
    torch.testing.assert_close(
        (found * unit).sum(dim=1), (centre[sentence] * unit).sum(dim=1), atol=1e-4, rtol=1e-4
    )
    across = lambda y: y - (y * unit).sum(dim=1, keepdim=True) * unit  # noqa: E731
    torch.testing.assert_close(across(found), across(x), atol=1e-4, rtol=1e-4)


def test_a_neuron_is_set(rows):
    x, sentence, _ = rows
    found = causes.neuron_set(torch.arange(12), torch.full((12,), 7.0))(x, sentence)
    assert (found.gather(1, sentence[:, None]) == 7).all()
    assert (found != x).sum(dim=1).max() == 1


def test_controls_are_as_strong_as_what_they_are_beside(autoencoder, rows):
    x, sentence, _ = rows
    code = autoencoder.encode(x)
    unit = torch.tensor([int(code[sentence == i].sum(dim=0).argmax()) for i in range(12)])
    edit = causes.rewritten(autoencoder, one_hot(unit, 300).bool())
    length = (edit(x, sentence) - x).norm(dim=1)
    fires = code.gather(1, unit[sentence, None])[:, 0] > 0
    assert fires.any()
    assert not fires.all()
    assert torch.equal(length > 1e-6, fires)
    drawn = causes.random_direction(edit, torch.Generator().manual_seed(4))(x, sentence) - x
    torch.testing.assert_close(drawn.norm(dim=1), length, rtol=1e-3, atol=1e-4)
    allowed = torch.ones(12, 300, dtype=torch.bool)
    allowed[:, ::2] = False
    other = causes.another_feature(autoencoder, unit, allowed, like=edit)(x, sentence) - x
    strength = code * autoencoder.decoder_weight.norm(dim=0)
    for i in range(len(x)):
        own = unit[sentence[i]]
        fitting = [f for f in code[i].nonzero()[:, 0].tolist() if f % 2 and f != own]
        if not fires[i] or not fitting:
            assert other[i].norm() < 1e-6
            continue
        nearest = min(fitting, key=lambda f: abs(float(strength[i, f] - strength[i, own])))
        direction = torch.nn.functional.normalize(autoencoder.decoder_weight[:, nearest], dim=0)
        torch.testing.assert_close(other[i], -length[i] * direction, rtol=1e-3, atol=1e-4)
        off = causes.another_feature(autoencoder, unit, allowed)(x[i : i + 1], sentence[i : i + 1]) - x[i]
        removed = -code[i, nearest] * autoencoder.decoder_weight[:, nearest] * autoencoder.input_scale
        torch.testing.assert_close(off[0], removed, rtol=1e-3, atol=1e-4)


def test_reconstruction_is_the_autoencoders(autoencoder, rows):
    x, sentence, _ = rows
    assert torch.equal(causes.reconstructed(autoencoder)(x, sentence), autoencoder(x))


# --- Features of words -----------------------------------------------------------------------------


def test_word_table_by_hand():
    states = torch.arange(8.0).view(4, 2)
    code = torch.tensor([[1.0, 0, 0], [3.0, 0, 2], [0, 5.0, 4], [0, 0, 6.0]])
    table = causes.WordTable.of(states, code.to_sparse_coo(), torch.tensor([0, 0, 1, -1]), 3)
    assert table.n_tokens.tolist() == [2, 1, 0]
    assert table.recall.tolist() == [[1, 0, 0.5], [0, 1, 1], [0, 0, 0]]
    torch.testing.assert_close(table.precision, torch.tensor([[1, 0, 1 / 3], [0, 1, 1 / 3], [0, 0, 0]]))
    assert table.activation.tolist() == [[2, 0, 1], [0, 5, 4], [0, 0, 0]]
    assert table.state.tolist() == [[1, 2], [4, 5], [0, 0]]
    found = table.features(torch.tensor([0, 2, 1]), precision=0.5)
    assert found.tolist() == [[True, False, False], [False, True, True], [False, True, False]]
    assert table.features(torch.tensor([0, 2, 1]), precision=0.3)[0].tolist() == [True, False, True]


def test_words_are_numbered_at_the_rows_of_extract(mbart, cases):
    model, tokenizer = mbart
    read = [c.read for c in cases]
    states = extract(model, tokenizer, read, [ENCODER], progress=False)[ENCODER]
    concepts = sorted({c.concept for c in cases})
    found = causes.word_concepts(tokenizer, read, concepts)
    own = causes.own_tokens(tokenizer, cases)[states.sentence, states.position]
    expected = torch.tensor([concepts.index(cases[i].concept) for i in states.sentence.tolist()])
    assert len(found) == len(states.values)
    assert torch.equal(found[own], expected[own])


# --- The picture -----------------------------------------------------------------------------------


def test_the_picture_says_what_it_shows():
    outcome, control = Outcome(300, 240, 30, 20, 100, 40, 2400), Outcome(300, 3, 6, 0, 0, 9, 2400)
    figure = causes.draw_arms(
        {"switched off": {"feature": outcome, "random direction": control}}, controls=["random direction"]
    )
    assert "feature: the word changed in 80%, another word in 10%" in text_alternative(figure)
    points = [line for line in figure.axes[0].lines if line.get_marker() in "os" and len(line.get_xdata())]
    assert [float(line.get_xdata()[0]) for line in points] == [80, 10, 1, 2]
    assert [line.get_markerfacecolor() == "white" for line in points] == [False, False, True, True]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["feature", "random direction"]
