"""Edits against their definitions, and many sentences translated at once against one by one."""

import pytest
import torch
from torch.nn.functional import one_hot

from course_lib.interpret import interventions
from course_lib.interpret.word_table import number_concepts
from course_lib.language.corpus import Sentence, draw_meanings, render
from course_lib.language.word_cases import Effect, draw_cases
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load
from course_lib.sae import TopKSparseAutoencoder

ENCODER = Site("encoder")
WORDS = ["animal:dog", "verb:eat", "place:school", "determiner:my"]


@pytest.fixture(scope="module")
def mbart():
    model, tokenizer = load()
    return model.requires_grad_(False), tokenizer


@pytest.fixture(scope="module")
def cases():
    return draw_cases(WORDS, 12, seed=0, pool=1000)


@pytest.fixture(scope="module")
def autoencoder(mbart, cases):
    model, tokenizer = mbart
    states = extract(model, tokenizer, [c.sentence for c in cases], [ENCODER], progress=False)[ENCODER].values
    made = TopKSparseAutoencoder(256, 300, k=6, generator=torch.Generator().manual_seed(0))
    made.fit_normalisation(states)
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def rows(mbart, cases):
    """States, the number of each row's case, and its token."""
    model, tokenizer = mbart
    states = extract(model, tokenizer, [c.sentence for c in cases], [ENCODER], progress=False)[ENCODER]
    return states.values, states.sentence, states.position


# --- Translating -----------------------------------------------------------------------------------


def test_word_tokens_are_those_that_spell_the_word(mbart, cases):
    tokenizer = mbart[1]
    for c, own in zip(cases, interventions.find_word_tokens(tokenizer, cases), strict=True):
        tokenizer.src_lang = c.source
        ids = torch.tensor(tokenizer(c.sentence.text)["input_ids"])
        [word] = {c.sentence.text[a:b] for a, b, concept in c.sentence.words if concept == c.concept}
        assert tokenizer.decode(ids[own[: len(ids)]]).lower() == word.lower()
        assert not own[len(ids) :].any()


def test_many_at_once_are_translated_as_one_by_one(mbart, cases, autoencoder):
    """Under a different edit in each case, at two sites."""
    model, tokenizer = mbart
    own = interventions.find_word_tokens(tokenizer, cases)
    drawn = torch.randn(12, 256, generator=torch.Generator().manual_seed(1))

    def translated(chosen, **options):
        some = [cases[i] for i in chosen.tolist()]
        edits = {
            ENCODER: interventions.edit_tokens(own[chosen], interventions.add_vectors(2 * drawn[chosen])),
            Site("decoder", 1): interventions.edit_all_tokens(
                interventions.add_vectors(0.3 * drawn[chosen].flip(1))
            ),
        }
        return translate(some, edits, **options)

    def translate(some, edits, **options):
        read, targets = [c.sentence for c in some], [c.target for c in some]
        return interventions.translate_edited(model, tokenizer, read, targets, edits, **options)

    every = torch.arange(12)
    at_once = translated(every, batch_size=8)
    assert at_once == [translated(every[i : i + 1])[0] for i in range(12)]
    clean = translate(cases, {})
    assert sum(a != b for a, b in zip(at_once, clean, strict=True)) >= 6
    assert interventions.keep_correct(model, tokenizer, cases) == [
        c for c, text in zip(cases, clean, strict=True) if text == render(c.meaning, c.target).text
    ]


def test_a_language_that_the_model_lacks_is_refused(mbart, cases):
    with pytest.raises(ValueError, match="targets has 'xx_XX'; expected languages of the model"):
        interventions.translate_edited(*mbart, [cases[0].sentence], ["xx_XX"], {})


def test_another_words_state_makes_the_other_word(mbart):
    """An edit of the word's own tokens reaches the decoder: the state of "cat" there writes it."""
    model, tokenizer = mbart
    drawn = draw_cases(["animal:dog"], 6, seed=1, pool=600)
    seen = interventions.keep_correct(model, tokenizer, drawn)
    other = [
        Sentence(render(m, "en_XX").text, "en_XX", words=render(m, "en_XX").words)
        for m in draw_meanings(1200, seed=1)
    ]
    other = [s for s in other if any(concept == "animal:cat" for *_, concept in s.words)]
    states = extract(model, tokenizer, other, [ENCODER], progress=False)[ENCODER].values
    cat = states[number_concepts(tokenizer, other, ["animal:cat"]) == 0].mean(dim=0)
    own = interventions.find_word_tokens(tokenizer, seen)
    edit = interventions.edit_tokens(own, lambda _, sentence: cat.expand(len(sentence), -1))
    found = interventions.measure_effects(model, tokenizer, seen, {ENCODER: edit})
    assert len(seen) >= 4
    assert all(e.changed for e in found)
    assert sum(e.became == "animal:cat" for e in found) >= len(seen) / 2
    nothing = interventions.edit_all_tokens(lambda x, _: x)
    untouched = interventions.measure_effects(model, tokenizer, seen, {ENCODER: nothing})
    assert untouched == [Effect(False, 0, 0, "animal:dog")] * len(seen)


# --- Edits -----------------------------------------------------------------------------------------


def test_edited_features_change_what_they_write_and_nothing_else(autoencoder, rows):
    x, sentence, _ = rows
    off = torch.rand(12, 300, generator=torch.Generator().manual_seed(2)) < 0.3
    values = torch.zeros(12, 300)
    values[torch.arange(12), torch.arange(12)] = 1.5
    found = interventions.edit_features(autoencoder, off, factor=-0.5, values=values)(x, sentence)
    for i in range(0, len(x), 7):
        code = autoencoder.encode(x[i : i + 1])[0]
        changed = code.clone()
        changed[off[sentence[i]]] *= -0.5
        changed[sentence[i]] = 1.5
        moved = autoencoder.decoder_weight @ (changed - code) * autoencoder.input_scale
        torch.testing.assert_close(found[i], x[i] + moved, rtol=1e-4, atol=1e-4)
    same = interventions.edit_features(autoencoder, off, factor=1)(x, sentence)
    assert torch.equal(same, x)


def test_only_chosen_tokens_are_edited(rows):
    x, sentence, token = rows
    chosen = torch.zeros(12, int(token.max()) + 1, dtype=torch.bool)
    chosen[3, 2] = chosen[5, 1] = True
    found = interventions.edit_tokens(chosen, interventions.add_vectors(torch.ones(12, 256)))(
        x, sentence, token
    )
    moved = (found != x).any(dim=1)
    assert moved.sum() == 2
    assert list(zip(sentence[moved].tolist(), token[moved].tolist(), strict=True)) == [(3, 2), (5, 1)]


def test_an_erased_direction_leaves_the_centres_component_and_all_others(rows):
    x, sentence, _ = rows
    direction, centre = torch.randn(2, 12, 256, generator=torch.Generator().manual_seed(3)).unbind()
    unit = (direction / direction.norm(dim=1, keepdim=True))[sentence]
    found = interventions.erase_direction(direction, centre)(x, sentence)
    torch.testing.assert_close(
        (found * unit).sum(dim=1), (centre[sentence] * unit).sum(dim=1), atol=1e-4, rtol=1e-4
    )
    across = lambda y: y - (y * unit).sum(dim=1, keepdim=True) * unit  # noqa: E731
    torch.testing.assert_close(across(found), across(x), atol=1e-4, rtol=1e-4)


def test_controls_are_as_strong_as_what_they_are_beside(autoencoder, rows):
    x, sentence, _ = rows
    code = autoencoder.encode(x)
    unit = torch.tensor([int(code[sentence == i].sum(dim=0).argmax()) for i in range(12)])
    edit = interventions.edit_features(autoencoder, one_hot(unit, 300).bool())
    length = (edit(x, sentence) - x).norm(dim=1)
    fires = code.gather(1, unit[sentence, None])[:, 0] > 0
    assert fires.any()
    assert not fires.all()
    assert torch.equal(length > 1e-6, fires)
    drawn = interventions.move_randomly(edit, torch.Generator().manual_seed(4))(x, sentence) - x
    torch.testing.assert_close(drawn.norm(dim=1), length, rtol=1e-3, atol=1e-4)
    allowed = torch.ones(12, 300, dtype=torch.bool)
    allowed[:, ::2] = False
    other = interventions.edit_other_feature(autoencoder, unit, allowed, like=edit)(x, sentence) - x
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
        off = (
            interventions.edit_other_feature(autoencoder, unit, allowed)(x[i : i + 1], sentence[i : i + 1])
            - x[i]
        )
        removed = -code[i, nearest] * autoencoder.decoder_weight[:, nearest] * autoencoder.input_scale
        torch.testing.assert_close(off[0], removed, rtol=1e-3, atol=1e-4)


def test_reconstruction_is_the_autoencoders(autoencoder, rows):
    x, sentence, _ = rows
    assert torch.equal(interventions.reconstruct(autoencoder)(x, sentence), autoencoder(x))
