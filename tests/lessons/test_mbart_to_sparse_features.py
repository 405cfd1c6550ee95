"""What lesson 29's figures show, and what its feature browser finds, draws and says. On a run too short to learn much."""

import dataclasses
import re
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest
import torch

from course_lib import pipeline, sae
from course_lib.interpret.browser.features import Change
from course_lib.interpret.concepts import auroc
from course_lib.interpret.interventions import keep_correct
from course_lib.interpret.outcomes import Outcome
from course_lib.language.corpus import Sentence, generate, split_of
from course_lib.language.word_cases import find_slots
from course_lib.lessons import mbart_to_sparse_features as lesson
from course_lib.lessons.mbart_to_sparse_features import pictures
from course_lib.mbart import families
from course_lib.mbart.activations import extract
from course_lib.measured import measured
from course_lib.pipeline import report
from course_lib.teaching.style import text_alternative
from course_lib.teaching.token_map import shortened
from tests.drawing import assert_clear_layout, assert_line, line_labelled

TEXT = "The old woman sees a small dog."
SENTENCES = 900


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return pipeline.run(
        out=tmp_path_factory.mktemp("lesson") / "run",
        n_sentences=SENTENCES,
        stacked=pipeline.StackedConfig(training=sae.TrainConfig(steps=20)),
        sparse=pipeline.SparseConfig(
            n_features=256,
            training=sae.TrainConfig(steps=40, batch_size=512, step_size=3e-3, unit_norm_decoder=True),
        ),
        device="cpu",
        progress=False,
    )


@pytest.fixture(scope="module")
def explorer(run):
    return lesson.FeatureExplorer(run)


@pytest.fixture
def browser(explorer):
    return explorer.browser


def test_a_run_on_own_text_opens_without_concepts(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw_figures", lambda *_: defaultdict(lambda: report.PageFigure("", "", "")))
    quick = sae.TrainConfig(steps=5, batch_size=64)
    own = generate(60, seed=3, languages=("en_XX",))
    (tmp_path / "own.txt").write_text("".join(f"en_XX\t{sentence.text}\n" for sentence in own))
    result = pipeline.run(
        out=tmp_path / "run",
        text=tmp_path / "own.txt",
        stacked=pipeline.StackedConfig(training=quick),
        sparse=pipeline.SparseConfig(n_features=64, training=quick),
        device="cpu",
        progress=False,
    )
    said = lesson.FeatureExplorer(result).frame(**settings())[1]
    assert "no concept that was scored has it as its best feature" in said


def test_a_model_without_the_four_languages_is_refused_by_name(run, monkeypatch):
    monkeypatch.setattr(families, "languages", lambda tokenizer: {"en_XX": 0, "de_DE": 1, "es_XX": 2})
    with pytest.raises(
        ValueError, match=r"does not know fr_XX; open the run with course_lib\.interpret\.browser\.browse"
    ):
        lesson.FeatureExplorer(run)


def settings(**changed):
    return {name: control.default for name, control in lesson.FeatureExplorer.controls.items()} | changed


def test_lessons_are_imported_without_transformers():
    code = "import sys, course_lib.lessons.mbart_to_sparse_features; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("Der Hund schläft.", "Der Hund schläft.", ([], [])),
        ("Der Hund schläft.", "Die Katze schläft.", (["Der", "Hund"], ["Die", "Katze"])),
        ("Der Hund schläft.", "Der alte Hund schläft.", ([], ["alte"])),
        ("Der Hund schläft.", "", (["Der", "Hund", "schläft."], [])),
    ],
)
def test_words_that_differ_are_marked(before, after, differ):
    marked = lesson.changed_words(before, after)
    assert [" ".join(word for word, _ in words) for words in marked] == [before, after]
    assert tuple([word for word, other in words if other] for words in marked) == differ


# The browser


def test_what_is_shown_of_a_sentence_is_the_autoencoders_code(explorer, browser):
    states = extract(
        browser.model, browser.tokenizer, [Sentence(TEXT, "en_XX")], [browser.site], progress=False
    )[browser.site]
    with torch.no_grad():
        expected = browser.autoencoder.encode(states.values) * browser.autoencoder.decoder_weight.norm(dim=0)
    state = explorer.compute(**settings(sentence=TEXT))
    order = expected.amax(dim=0).argsort(descending=True, stable=True)
    shown = order[: len(state["activation"])]
    torch.testing.assert_close(torch.from_numpy(state["activation"]), expected[:, shown].T)
    assert state["n_active"] == int((expected > 0).any(dim=0).sum())
    assert state["feature"] == int(order[state["place"]])
    assert "".join(state["tokens"]).replace("␣", "") == TEXT.replace(" ", "")


def test_only_held_out_sentences_are_shown_the_strongest_first(explorer, browser, run):
    held_out = [row.sentence for row in run.sentences if row.held_out]
    assert len(held_out) == run.metrics.run.held_out < len(run.sentences) == SENTENCES
    state = explorer.compute(**settings(sentence=TEXT))
    states = browser.states(held_out)
    column = browser.activations(states.values)[:, state["feature"]]
    largest = torch.zeros(len(held_out)).scatter_reduce(0, states.sentence, column, "amax")
    examples, texts = state["examples"], [sentence.text for sentence in held_out]
    found = [example["activation"] for example in examples]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(float(largest.max()), rel=1e-3)
    of_language = [sum(e["language"] == language for e in examples) for language in lesson.LANGUAGES]
    assert max(of_language) <= 2
    for example in examples:
        row = texts.index("".join(part for part, _ in example["parts"]))
        assert example["activation"] == pytest.approx(float(largest[row]), rel=1e-3)
        place = int(column.where(states.sentence == row, -1).argmax())
        excerpt = pictures._excerpt(example)
        (word,) = re.findall(r"\[(.*?)\]", excerpt)
        piece = browser.tokenizer.convert_ids_to_tokens(int(states.token[place])).replace("▁", "")
        assert piece in word
        assert len(excerpt) <= lesson.EXCERPT + 6


def test_features_are_named_by_a_concept_they_detect_well(explorer, run):
    index = explorer.index
    assert index.concepts
    for feature, rows in index.concepts.items():
        scores = [s for s in run.concepts.scores["features"] if s.unit == feature and s.sign > 0]
        scores.sort(key=lambda score: (-score.f1, -score.auroc))
        assert [row["concept"] for row in rows] == [score.concept for score in scores]
        assert [row["f1"] for row in rows] == pytest.approx([score.f1 for score in scores], rel=1e-3)
        good = rows[0]["f1"] >= 0.8
        assert index.name(feature) == (rows[0]["concept"] if good else f"feature {feature}")
        # Thin evidence gives no name.
        assert all(row["positives_held_out"] >= 30 for row in rows)
        assert not {row["concept"] for row in rows} & set(run.concepts.skipped)
    unknown = next(i for i in range(index.n_features) if i not in index.concepts)
    assert index.name(unknown) == f"feature {unknown}"


def test_only_what_fires_and_is_changed_changes_the_translation(browser):
    features = browser.read(TEXT, "en_XX").features
    silent = next(i for i in range(browser.autoencoder.n_features) if i not in features)
    original = browser.translate(TEXT, "en_XX", "de_DE")
    assert original

    def scaled(factors):
        changes = [Change(feature, "scale", factor) for feature, factor in factors.items()]
        return browser.translate(TEXT, "en_XX", "de_DE", changes)

    assert scaled({features[0]: 1}) == original
    assert scaled({silent: 0}) == original
    assert scaled(dict.fromkeys(features, 0)) != original


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
        line.get_text() == ""
        for name in ("rows", "columns", "before", "after")
        for line in explorer.artists[name]
    )
    assert_clear_layout(explorer.figure)


def test_words_and_picture_say_the_same(explorer):
    for changed in (
        {},
        {"rank": 8, "factor": 3.0},
        {"sentence": "Der Hund schläft.", "language": "de_DE", "target": "fr_XX"},
    ):
        chosen = settings(**changed)
        _, words = explorer.frame(**chosen)
        state = explorer.compute(**chosen)
        assert f"Feature {state['feature']} (" in words
        assert f"number {state['place'] + 1} of the {state['n_active']}" in words
        shown = [text.get_text() for text in explorer.artists["columns"] if text.get_text()]
        assert shown == [shortened(token, 9) for token in state["tokens"]]
        box = explorer.artists["box"]
        n_rows = len(state["activation"])
        assert box.get_y() == pytest.approx(1 - (state["place"] + 1) / n_rows)
        for name, key in (("before", "original"), ("after", "steered")):
            drawn = " ".join(text.get_text().strip("*") for text in explorer.artists[name] if text.get_text())
            assert drawn == " ".join(word for word, _ in state[key])
            assert drawn in words
        assert_clear_layout(explorer.figure)


def test_words_that_differ_are_red_and_between_stars(explorer):
    texts = explorer.artists["after"]
    pictures._set_words(texts, [("Die", True), ("Frau", False)])
    assert [text.get_text() for text in texts[:3]] == ["*Die*", "Frau", ""]
    assert [text.get_color() for text in texts[:2]] == [pictures.RED, pictures.BLACK]
    assert texts[1].get_position()[0] == texts[0].get_position()[0] + 6
    pictures._set_words(texts, [("x" * 60, False)] * 3)
    assert [bool(text.get_text()) for text in texts[:3]] == [True, False, False]


def test_a_rank_beyond_the_last_feature_is_the_last(explorer, browser, monkeypatch):
    full = browser.read(TEXT, "en_XX")
    kept = torch.zeros_like(full.largest).index_fill(0, torch.tensor(full.features[:3]), 1)
    few = dataclasses.replace(full, activation=full.activation * kept)
    monkeypatch.setattr(browser, "read", lambda *_: few)
    state = explorer.compute(**settings(rank=8))
    assert state["feature"] == full.features[2]
    assert "it is the last one" in explorer.words(state)


def test_a_strange_word_is_said_and_translated_all_the_same(explorer):
    words = explorer.words(explorer.compute(**settings(sentence="The astronaut sees a dog.")))
    assert "“astronaut”" in words
    assert "German translation" in words


# The scores


def test_curves_are_the_scores_best_first(run):
    figure = lesson.plot_concepts(run)
    scores, shares = lesson.concept_scores(run), lesson.lexical_shares(run)
    for units, label in lesson.UNITS.items():
        values = sorted((score.f1 for score in scores[units]), reverse=True)
        assert values
        assert_line(
            line_labelled(figure.axes[0], label), 100 * np.arange(1, len(values) + 1) / len(values), values
        )
        reached = sum(value >= 0.9 for value in values) / len(values)
        assert shares[units] == pytest.approx(reached)
        assert f"{label} {100 * reached:.0f}%" in text_alternative(figure)
    assert_clear_layout(figure)


def test_the_prediction_says_what_the_run_found(run):
    prediction = lesson.concepts_prediction(run)
    shares = lesson.lexical_shares(run)
    for units in ("features", "neurons", "components", "random"):
        assert f"{100 * shares[units]:.0f}%" in prediction.choices[prediction.answer]


def test_the_exercise_has_the_librarys_auroc():
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        inputs = lesson.EXERCISES["29.2"].draw(generator)
        table = auroc(inputs["scores"][:, None], inputs["labels"][:, None])
        assert float(lesson.area_under_roc(**inputs)) == pytest.approx(table.item(), abs=1e-12)
        assert lesson.area_by_steps(**inputs) == pytest.approx(table.item(), abs=1e-12)


def test_pairs_are_held_out_translations_of_each_other():
    sources, targets = lesson.translation_pairs(5)
    assert [s.meaning for s in sources] == [t.meaning for t in targets]
    assert {s.language for s in sources} == {"en_XX"}
    assert {t.language for t in targets} == {"de_DE"}
    assert all(split_of(s.meaning) == "test" for s in sources)


# Causes


def test_nouns_are_drawn_with_their_features_and_an_aim_of_their_kind(browser, monkeypatch):
    detected = {
        "animal:dog": 1.0,
        "animal:cat": 0.9,
        "animal:horse": 0.8,
        "animal:cow": 0.79,
        "colour:red": 1.0,
    }
    report = browser.run.concepts
    scored = [
        dataclasses.replace(report.scores["features"][0], concept=concept, unit=3 * i, sign=1, f1_train=f1)
        for i, (concept, f1) in enumerate(detected.items(), 1)
    ]
    monkeypatch.setitem(report.scores, "features", scored)
    nouns = lesson.noun_cases(browser, 6, n_sentences=200)
    assert nouns.concepts == ["animal:cat", "animal:dog", "animal:horse"]
    assert nouns.detectors.tolist() == [6, 3, 9]
    assert nouns.cases
    assert keep_correct(browser.model, browser.tokenizer, nouns.cases) == nouns.cases
    assert [nouns.concepts[i] for i in nouns.concept] == [case.concept for case in nouns.cases]
    assert [nouns.concepts[i] for i in nouns.aim] == nouns.aims
    for case, aim in zip(nouns.cases, nouns.aims, strict=True):
        assert aim != case.concept
        assert not find_slots(case.meaning, aim)
    assert nouns.own.any(dim=1).all()
    assert not nouns.own[:, 0].any()
    assert nouns.features(2).nonzero().tolist() == [[0, 6], [1, 3], [2, 9]]
    assert (nouns.features(0.1) >= nouns.features(0.5)).all()


def test_the_picture_of_causes_has_all_arms_and_words_without_digits_of_the_run():
    figure = lesson.draw_nouns()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [*lesson.ARMS.values(), *lesson.CONTROLS.values()]
    none = Outcome(n=4, changed=0, elsewhere=0, agreement=0, exact=0, words_changed=0, words=0)
    other = lesson.draw_nouns(dict.fromkeys([*lesson.ARMS, *lesson.CONTROLS], none))
    assert text_alternative(other) == text_alternative(figure)
    assert_clear_layout(figure)


def test_without_a_run_the_picture_of_causes_shows_the_stored_benchmark():
    drawn = lesson.draw_nouns()
    stored = measured("causes", "encoder, switched off: detector")
    places = np.concatenate([np.ravel(line.get_xdata()) for line in drawn.axes[0].lines])
    assert np.isclose(places, 100 * stored["changed"] / stored["n"]).any()


def test_the_picture_of_arms_says_what_it_shows():
    outcome, control = Outcome(300, 240, 30, 20, 100, 40, 2400), Outcome(300, 3, 6, 0, 0, 9, 2400)
    figure = lesson.draw_arms(
        {"switched off": {"feature": outcome, "random direction": control}}, controls=["random direction"]
    )
    assert "feature: the word changed in 80%, another word in 10%" in text_alternative(figure)
    points = [line for line in figure.axes[0].lines if line.get_marker() in "os" and len(line.get_xdata())]
    assert [float(line.get_xdata()[0]) for line in points] == [80, 10, 1, 2]
    assert [line.get_markerfacecolor() == "white" for line in points] == [False, False, True, True]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["feature", "random direction"]


def test_the_large_experiment_is_drawn_as_stored():
    figure = lesson.draw_large()
    assert "Switched off, detector: the word changed in 37%, another word in 5%" in text_alternative(figure)
    assert_clear_layout(figure)


# Both sides, and sizes


def test_vectors_are_the_runs_by_split_and_language(run):
    vectors = lesson.sentence_vectors(run)
    assert list(vectors) == ["encoder", "decoder"]
    for splits in vectors.values():
        for split, (states, languages) in splits.items():
            chosen = [row.language for row in run.sentences if row.split == split]
            assert len(states) == len(chosen) == getattr(run.metrics.run, split)
            assert [lesson.LANGUAGES[i] for i in languages] == chosen
    assert not torch.equal(vectors["encoder"]["train"][0], vectors["decoder"]["train"][0])


def test_sizes_are_drawn_as_stored():
    sweep = lesson.size_sweep()
    reached, used = lesson.plot_sizes(sweep).axes
    assert_line(line_labelled(reached, "F1 0.9 or more"), lesson.SIZES, sweep["F1 0.9 or more"])
    assert_line(line_labelled(used, "dead features"), lesson.SIZES, sweep["dead"])
    assert sweep["dead"] == sorted(sweep["dead"])


def test_splits_are_drawn_as_the_run_found_them(run):
    rows = lesson.split_concepts(run)
    excess = [row.gap - row.gap_shuffled for row in rows]
    assert excess == sorted(excess, reverse=True)
    figure = lesson.plot_splits(run, count=5)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()][::-1]
    assert [label.partition(",")[0] for label in labels] == [
        row.concept.partition(":")[2] for row in rows[:5]
    ]
    longer = sum(gap > 0 for gap in excess[:5])
    assert f"In {longer} rows the gap is longer" in text_alternative(figure)
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [dot.get_xdata()[0] for dot in dots][::-1] == [100 * row.recall_with for row in rows[:5]]
