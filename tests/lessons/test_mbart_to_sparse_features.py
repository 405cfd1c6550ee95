"""What lesson 37's figures show, and what its feature browser finds, draws and says."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from course_lib.interpret import rivals
from course_lib.interpret.concepts import auroc, f1_scores
from course_lib.language.corpus import LANGUAGES, Sentence, concepts_of, generate, split_of
from course_lib.lessons import mbart_to_sparse_features as lesson
from course_lib.lessons.mbart_to_sparse_features import material as of_material
from course_lib.lessons.mbart_to_sparse_features import pictures
from course_lib.mbart.activations import extract
from course_lib.mbart.model import load
from course_lib.measured import measured
from course_lib.sae.course_dictionary import course_dictionary, detectors
from course_lib.teaching.style import text_alternative
from course_lib.teaching.token_map import shortened
from tests.drawing import assert_clear_layout

TEXT = "The old woman sees a small dog."


@pytest.fixture(scope="module")
def material():
    return lesson.read_material()


@pytest.fixture(scope="module")
def explorer(material):
    return lesson.FeatureExplorer(material)


def settings(**changed):
    return {name: control.default for name, control in lesson.FeatureExplorer.controls.items()} | changed


def test_lessons_are_imported_without_transformers():
    code = "import sys, course_lib.lessons.mbart_to_sparse_features; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# What is read


def test_what_judges_shares_no_meaning_with_what_chooses(material):
    assert {split_of(s.meaning) for s in material.english.sentences} == {"train"}
    assert {split_of(s.meaning) for s in material.held_out.sentences} == {"test"}
    assert {s.language for s in material.english.sentences} == {"en_XX"}
    by_language = [
        [s.meaning for s in material.held_out.sentences if s.language == code] for code in LANGUAGES
    ]
    assert all(meanings == by_language[0] for meanings in by_language)
    assert len(by_language[0]) == of_material.N_MEANINGS


def test_the_pages_word_is_in_as_many_meanings_as_it_says(material):
    found = of_material.with_apples(40, split="test")
    assert sum(of_material.APPLE in concepts_of(meaning) for meaning in found) == of_material.N_APPLES
    assert len(set(found)) == 40


def test_a_text_is_read_as_the_library_reads_it(material):
    sentence = Sentence(TEXT, "en_XX")
    read = material.read([sentence])
    states = extract(*load("course-mbart"), [sentence], [of_material.site()], progress=False)
    (expected,) = states.values()
    torch.testing.assert_close(read.states, expected.values)
    torch.testing.assert_close(read.code, course_dictionary().encode(expected.values))
    assert "".join(read.words(0)).strip() == TEXT


# What a text is


@pytest.mark.parametrize(
    ("text", "language", "said"),
    [
        (TEXT, "en_XX", ""),
        ("La petite fille cherche un chat.", "fr_XX", ""),
        (
            "La petite fille cherche un chat.",
            "en_XX",
            "looks French, and the model was told that it is English",
        ),
        ("The astronaut sees a dog.", "en_XX", "corpus's English words: “astronaut”; expect"),
        ("42 !", "de_DE", "no word"),
    ],
)
def test_strange_words_are_named(text, language, said):
    found = lesson.strange_words(text, language)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("The dog's bone.", (5, 6), "dog's"),
        ("¿Duerme?", (1, 4), "Duerme"),
        ("Sleep.", (5, 6), "."),
        ("a b", (2, 3), "b"),
    ],
)
def test_a_token_belongs_to_the_word_around_it(text, place, word):
    start, end = pictures.word_at(text, *place)
    assert text[start:end] == word


def test_the_word_in_brackets_is_where_the_feature_is_strongest(material):
    held_out = material.held_out
    feature = next(one.feature for one in detectors() if one.concept == of_material.APPLE)
    best = held_out.scores[:, feature].argsort(descending=True)[:30].tolist()
    inside = [lesson.marked_sentence(held_out, i, feature).split("[")[1].split("]")[0].lower() for i in best]
    assert {word[:4] for word in inside} <= {"appl", "apfe", "äpfe", "pomm", "manz"}


# The explorer


@pytest.mark.parametrize(
    ("text", "said"), [("", "type a sentence"), ("   ", "type a sentence"), ("dog " * 40, "shorten it")]
)
def test_what_cannot_be_read_is_said(explorer, text, said):
    explorer.frame(**settings(sentence=text))
    state = explorer.compute(**settings(sentence=text))
    assert said in explorer.words(state)
    assert explorer.artists["message"].get_text() == "no sentence to show"
    assert all(
        line.get_text() == "" for name in ("rows", "columns", "concepts") for line in explorer.artists[name]
    )
    assert_clear_layout(explorer.figure)


def test_words_and_picture_agree_with_the_code_at_a_grid_of_settings(explorer, material):
    named = {}
    for one in detectors():
        named.setdefault(one.feature, set()).add(one.concept)
    for text, language in ((lesson.TEXT, "en_XX"), ("Der Hund schläft.", "de_DE")):
        code = material.read([Sentence(text, language)]).code.amax(dim=0)
        order = code.argsort(descending=True, stable=True)
        for rank in range(1, 9):
            for reveal in (False, True):
                chosen = settings(sentence=text, language=language, rank=rank, reveal=reveal)
                state, (_, words) = explorer.compute(**chosen), explorer.frame(**chosen)
                feature = int(order[rank - 1])
                assert f"Feature {feature} is number {rank} of the {int((code > 0).sum())}" in words
                drawn = " ".join(text.get_text() for text in explorer.artists["concepts"])
                concepts = named.get(feature, set())
                for concept in concepts:
                    assert (concept in words) == (concept in drawn) == reveal
                assert ("another feature is as good" in words) == (reveal and not concepts)
                assert ("Its name is hidden" in words) == (not reveal)
                shown = [text.get_text() for text in explorer.artists["columns"] if text.get_text()]
                assert shown == [shortened(token.strip() or "␣", 9) for token in state["tokens"]]
    assert_clear_layout(explorer.figure)


def test_examples_are_held_out_strongest_first_at_most_two_of_a_language(explorer, material):
    state = explorer.compute(**settings())
    values = [value for _, value in state["examples"]]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(float(material.held_out.scores[:, state["feature"]].max()))
    languages = [text[:2] for text, _ in state["examples"]]
    assert max(languages.count(code) for code in languages) <= 2


def test_a_strange_word_is_said_and_read_all_the_same(explorer):
    words = explorer.words(explorer.compute(**settings(sentence="The astronaut sees a dog.")))
    assert "“astronaut”" in words
    assert "Feature" in words


# Figures


def test_the_parts_add_up_to_the_state(material):
    figure = lesson.plot_parts(material)
    table = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(table[0], table[1:].sum(axis=0), atol=1e-5)
    read, row = lesson.apple_token(material)
    assert len(table) == 3 + int((read.code[row] > 0).sum())
    assert_clear_layout(figure)


def test_the_ranking_says_what_it_draws(material):
    figure = lesson.plot_ranking(material)
    english = material.held_out.language == 0
    holds = material.held_out.labels[english, lesson.CONCEPTS.index(of_material.APPLE)][:, None]
    for axes, (name, (unit, values, threshold)) in zip(
        figure.axes, lesson.apple_detectors(material).items(), strict=True
    ):
        values = values[english][:, None]
        area, f1 = float(auroc(values, holds)[0, 0]), float(f1_scores(values > threshold, holds)[0])
        assert axes.get_title() == f"{name} {int(unit)}: AUROC {area:.2f}, F1 {f1:.2f}"
    assert_clear_layout(figure)


def test_the_strips_have_every_sentence_and_its_threshold(material):
    figure = lesson.plot_strips(material)
    for axes, name in zip(figure.axes, ("LDA", "one feature"), strict=True):
        points = sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() == "o")
        assert points == len(material.held_out.sentences)
        assert axes.get_title() == name
    assert "one feature: F1 1.00 in English" in text_alternative(figure)
    assert_clear_layout(figure)


def test_stored_shares_are_drawn_as_stored():
    figure = lesson.plot_across()
    for question in (lesson.ENGLISH, lesson.OTHERS):
        for place, arm in enumerate(lesson.DRAWN_ACROSS):
            values = lesson.stored_shares(arm, question)
            assert any(
                np.array_equal(line.get_xdata(), values) and round(float(line.get_ydata()[0])) == place
                for line in figure.axes[0].lines
            )
    assert_clear_layout(figure)
    assert_clear_layout(lesson.plot_untrained())


def test_of_lda_the_best_shrinkages_are_shown():
    """In English little of it, elsewhere much."""
    for question, shown in ((lesson.ENGLISH, "0.01"), (lesson.OTHERS, "10")):
        medians = {
            f"{g:g}": np.median(
                measured("across_languages", f"LDA, told sentences, shrinkage {g:g}: {question}, %")
            )
            for g in measured("across_languages", "shrinkages")
        }
        assert max(medians, key=medians.get) == shown
        assert f"LDA, told sentences, shrinkage {shown}" in lesson.ARMS
    again = [
        f"LDA refitted, told sentences, shrinkage {g:g}" for g in measured("across_languages", "shrinkages")
    ]
    assert max(again, key=lambda arm: np.median(lesson.stored_shares(arm, lesson.OTHERS))) == lesson.REFITTED
    assert set(lesson.plain_rivals()) & set(lesson.ARMS) >= {
        "k-means, cosine",
        "LDA, told sentences, shrinkage 10",
    }


def test_sizes_are_told_as_stored():
    sweep = lesson.size_sweep()
    table = lesson.size_table().data.splitlines()
    assert len(table) == 2 + len(lesson.SIZES)
    for line, good, dead in zip(table[2:], sweep["F1 0.9 or more"], sweep["dead"], strict=True):
        assert f"{good:.0f}%" in line
        assert f"{dead:,.0f}" in line
    assert sweep["dead"] == sorted(sweep["dead"])


def test_which_of_equals_is_taken_matters_elsewhere_only(material):
    tied, strongest = lesson.tied_shares(material)
    first = lesson.live_shares(material)["dictionary"]
    assert 0 < tied < len(material.scored)
    assert strongest[lesson.ENGLISH] == pytest.approx(first[lesson.ENGLISH], abs=0.03)
    assert strongest[lesson.OTHERS] > first[lesson.OTHERS] + 0.05


def test_lda_is_refitted_on_the_pages_sentences(material):
    labels = material.english.labels[:, material.scored]
    rows = replace(material.english.rows, labels=labels)
    directions = rivals.refitted_discriminants(rows, shrinkage=10)
    found = rivals.own_detectors(rivals.largest_projections(rows, directions), labels)
    values = rivals.largest_projections(material.held_out.rows, directions)
    own = material.held_out.language == 0
    f1 = f1_scores(found.calls(values)[own], material.held_out.labels[own][:, material.scored])
    shares = lesson.refitted_shares(material)
    assert shares[lesson.ENGLISH] == pytest.approx(float((f1 >= 0.9).double().mean()))
    assert shares[lesson.OTHERS] > lesson.live_shares(material)["LDA, told sentences"][lesson.OTHERS]


# Exercises and the experiment


def test_the_exercise_has_the_librarys_auroc():
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        inputs = lesson.EXERCISES["37.2"].draw(generator)
        table = auroc(inputs["scores"][:, None], inputs["labels"][:, None])
        assert float(lesson.area_under_roc(**inputs)) == pytest.approx(table.item(), abs=1e-12)
        assert lesson.area_by_steps(**inputs) == pytest.approx(table.item(), abs=1e-12)


def test_no_two_activations_of_the_first_exercise_are_equal():
    generator = torch.Generator().manual_seed(4)
    for _ in range(200):
        drawn = lesson.EXERCISES["37.1"].draw(generator)
        before = (drawn["x"] - drawn["decoder_bias"]) @ drawn["encoder"].T + drawn["encoder_bias"]
        rows = before.sort(dim=1).values
        assert (rows.diff(dim=1) > 1e-6).all()


def test_the_live_experiment_is_the_sum_of_its_parts(material):
    shares = lesson.live_shares(material)["difference of means, told sentences"]
    english, held_out, scored = material.english, material.held_out, material.scored
    labels = english.labels[:, scored]
    directions = rivals.difference_of_means(english.states, labels[english.sentence])
    found = rivals.own_detectors(rivals.largest_projections(english.rows, directions), labels)
    values = rivals.largest_projections(held_out.rows, directions)
    own = held_out.language == 0
    f1 = f1_scores(values[own] > found.threshold, held_out.labels[own][:, scored])
    assert shares["English"] == pytest.approx(float((f1 >= 0.9).double().mean()))


def test_known_words_are_those_of_the_corpus():
    words = lesson.known_words("de_DE")
    for sentence in generate(20, seed=1, languages=("de_DE",)):
        assert sum(word in words for word in pictures._words_of(sentence.text)) >= 2
