"""Labels of a table's rows as concepts: which values are taken, what is refused, and that runs score and name them."""

import functools
import itertools
import json
import random
import re

import pytest
import torch
from typer.testing import CliRunner

from course_lib import sae
from course_lib.__main__ import app
from course_lib.interpret.names import feature_names
from course_lib.interpret.run_directory import RunDirectory
from course_lib.interpret.translated_words import LabelsError, find_labels, held_labels
from course_lib.language.corpus import LANGUAGES
from course_lib.language.text import read_parallel_table
from course_lib.pipeline import InputError, SparseConfig, StackedConfig, report, run
from course_lib.pipeline.tables import find_table, parallel_text
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

WORDS = sorted({word for text in SENTENCES for word in text[:-1].split() if len(word) > 3})[:20]
N = 400


def rows(n=N):
    """Three of the tiny model's words; the topic is known from the first, and in every tenth row it is not given."""
    triples = random.Random(0).sample(list(itertools.permutations(WORDS, 3)), n)
    return [
        {
            "split": "test" if i % 2 else "train",
            "en": f"the {a} {b} {c}.",
            "de": f"das {c} {b} {a}.",
            "text": f"the {a} {b} {c}.",
            "language": ("en", "en_XX", "")[i % 3],
            "topic": "" if i % 10 == 9 else f"T{WORDS.index(a) // 7}",
            "parity": ("even", "odd")[WORDS.index(b) % 2],
            "same": "x",
            "number": str(i),
        }
        for i, (a, b, c) in enumerate(triples)
    ]


def written(path, *header, content=None):
    lines = [header, *([row[name] for name in header] for row in content or rows())]
    separator = "," if path.suffix == ".csv" else "\t"
    path.write_text("\n".join(separator.join(fields) for fields in lines) + "\n", encoding="utf-8")
    return path


def read(path, *labels, **options):
    table = find_table(path, labelled=True)
    return parallel_text(table, labels=labels, **({"known": LANGUAGES, "seed": 0} | options))


# --- Reading -----------------------------------------------------------------------------------------


def test_values_in_enough_rows_of_both_sides_are_concepts():
    held_out = [False] * 40 + [True] * 40
    values = (
        ["a"] * 20 + ["b"] * 10 + ["c"] * 9 + [""] + ["a"] * 10 + ["b"] * 9 + ["c"] * 20 + ["d"]
    )  # too few held out: b; in training: c and d
    (found,) = find_labels({"x": values}, held_out, n_languages=3)
    assert (found.concept, found.rows_train, found.rows_held_out, found.category) == ("x:a", 20, 10, "x")
    held = held_labels([found], {"x": values})
    assert [bool(row) for row in held] == [value == "a" for value in values]
    with pytest.raises(LabelsError, match="must be in 30 of these"):  # one sentence a row: 10 are too few
        find_labels({"x": values}, held_out, n_languages=1)
    everywhere = ["a"] * 40 + ["a"] * 20 + ["b"] * 20
    with pytest.raises(LabelsError, match=r"of whose 2 values none can be named: .* and not in all"):
        find_labels({"x": everywhere}, held_out, n_languages=3)


def test_every_sentence_of_a_row_holds_its_values_and_only_them(tmp_path):
    found = read(written(tmp_path / "t.tsv", "split", "en", "de", "topic", "parity"), "topic", "parity")
    assert found.pivot is None
    given = [{f"topic:{row['topic']}", f"parity:{row['parity']}"} - {"topic:"} for row in rows()]
    assert [s.concepts for s in found.sentences] == [concepts for row in given for concepts in (row, row)]
    assert {word.category for word in found.words} == {"topic", "parity"}
    classes = [f"topic:{row['topic']}" if row["topic"] else None for row in rows()]
    assert found.classes == [one for row in classes for one in (row, row)]
    assert found.notes == []


def test_a_pivot_has_its_words_beside_the_labels(tmp_path):
    path = written(tmp_path / "t.tsv", "split", "en", "de", "topic")
    words, both = read(path, pivot="de"), read(path, "topic", pivot="de")
    assert both.words[: len(words.words)] == words.words
    assert [word.concept for word in both.words[len(words.words) :]] == ["topic:T0", "topic:T1", "topic:T2"]
    assert [a.concepts - b.concepts for a, b in zip(both.sentences, words.sentences, strict=True)] == [
        {f"topic:{row['topic']}"} - {"topic:"} for row in rows() for _ in "ab"
    ]


@pytest.mark.parametrize("header", [("en", "topic"), ("topic", "en", "split"), ("split", "text", "topic")])
@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.txt"])
def test_one_language_is_enough(name, header, tmp_path):
    content = rows(1600)
    found = read(written(tmp_path / name, *header, content=content), "topic")
    language = None if "text" in header else "en_XX"
    assert {s.language for s in found.sentences} == {language}
    assert len(found.sentences) == 1600  # also the rows whose last field is empty


def test_a_column_says_the_language_of_each_row(tmp_path):
    found = read(written(tmp_path / "t.csv", "split", "text", "language", "topic"), "topic")
    assert [s.language for s in found.sentences] == [("en_XX", "en_XX", None)[i % 3] for i in range(N)]
    wrong = rows()
    wrong[4]["language"] = "klingon"
    with pytest.raises(InputError, match=r"line 6: the model does not know the language 'klingon'"):
        read(written(tmp_path / "w.csv", "split", "text", "language", "topic", content=wrong), "topic")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["topics"], r"labels is 'topics'; expected different columns of .*: split, en, topic, same, number"),
        (["topic", "topic"], r"labels is 'topic, topic'; expected different columns"),
        ([""], r"labels is ''; expected different columns"),
        (["same"], r"'same', which has 'x' in all 400 rows"),
        (["number"], r"'number', of whose 400 values none .* expected about \d+ rows with a value, or more"),
        (["split"], r"'split', of whose 2 values none"),
        (["en"], r"of which the model knows none"),
    ],
)
def test_labels_that_give_no_concept_are_named(labels, message, tmp_path):
    path = written(tmp_path / "t.tsv", "split", "en", "topic", "same", "number")
    with pytest.raises(InputError, match=message):
        read(path, *labels)


def test_names_of_the_report_and_a_pivot_of_one_language_are_refused(tmp_path):
    path = written(tmp_path / "t.tsv", "split", "en", "topic")
    with pytest.raises(InputError, match=r"pivot is 'en', and .* has one language"):
        read(path, "topic", pivot="en")
    path.write_text(path.read_text().replace("topic", "all", 1))
    with pytest.raises(InputError, match=r"the column 'all', a name of the report's own"):
        read(path, "all")


def test_a_row_whose_other_fields_are_empty_is_read_and_counted(tmp_path):
    (tmp_path / "t.tsv").write_text("en\tde\n\nx\t\n\ty\nx\ty\n")
    assert read_parallel_table(tmp_path / "t.tsv").rows == [(3, ["x", ""]), (4, ["", "y"]), (5, ["x", "y"])]


# --- A run -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return str(directory)


def quick(**options):
    short = sae.TrainConfig(steps=300, batch_size=64, step_size=1e-2)
    made = {"stacked": StackedConfig(training=short), "sparse": SparseConfig(n_features=128, training=short)}
    return run(**(made | {"device": "cpu", "progress": False} | options))


@pytest.fixture(scope="module")
def result(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    path = written(folder / "t.tsv", "split", "en", "de", "topic", "parity")
    return quick(model=model, text=path, labels=["topic", "parity"], out=folder / "run")


def test_labels_are_scored_beside_their_ceiling_and_reported(result):
    found = result.concepts
    assert {score.concept for score in found.scores["features"]} == {
        *(f"topic:T{i}" for i in range(3)),
        "parity:even",
        "parity:odd",
    }
    assert (found.translated.pivot, found.translated.labels) == (None, ["topic", "parity"])
    summary = found.translated_summary()
    assert {group: row["n"] for group, row in summary.items()} == {"all": 5, "topic": 3, "parity": 2}
    # Bags of words tell neither which word is first nor which is second, but more than nothing of both.
    for language in ("en_XX", "de_DE"):
        assert 0.3 < summary["topic"]["median_f1"]["ceiling"][language] < 0.95
    page, lines = result.report.read_text(), report.describe_concepts(found)
    shown = f"{summary['parity']['median_f1']['features']['de_DE']:.2f}"
    assert "Median held-out F1 of the 2 values of parity" in page
    assert shown in page
    assert re.search(rf"values of parity \(2\): .*de_DE {shown}", lines)
    for told in ("translations say something", "This text was generated", "words that no other language"):
        assert told not in page
    content = json.loads((result.path / "metrics.json").read_text())
    assert content["translated"]["labels"] == ["topic", "parity"]


def test_the_stacked_autoencoder_learns_the_first_column(result):
    stacked, scores = result.stacked(), result.metrics.stacked
    assert stacked.n_outputs == 3
    assert scores.held_out.language_accuracy is None
    classes = [next((c for c in s.concepts if c.startswith("topic")), None) for s in result.sentences]
    known = [i for i, s in enumerate(result.sentences) if s.held_out and classes[i] is not None]
    assert len(known) < sum(s.held_out for s in result.sentences)
    truth = torch.tensor([int(classes[i][-1]) for i in known])
    with torch.no_grad():
        right = stacked.predict(result.vectors()["encoder"][known]).argmax(dim=1) == truth
    assert scores.held_out.label_accuracy == pytest.approx(right.double().mean().item())
    assert scores.held_out.most_frequent_label == pytest.approx((truth.bincount().max() / len(truth)).item())
    assert scores.normality.rows == sum(s.held_out for s in result.sentences) / 2  # one sentence of each row
    page = result.report.read_text()
    assert "reads the label (topic) from the code" in page
    assert f"{scores.held_out.label_accuracy:.1%} of the held-out ones" in page


def test_a_feature_of_a_word_is_named_by_the_label_that_goes_with_it(model, tmp_path):
    """Each row has one of six words, and that word as its label."""
    places = [(a, b, c) for b in WORDS[:6] for a in WORDS[6:] for c in WORDS[6:] if a != c]
    content = [
        {"split": "test" if i % 2 else "train", "en": f"the {a} {b} {c}.", "topic": b}
        for i, (a, b, c) in enumerate(random.Random(0).sample(places, 800))
    ]
    path = written(tmp_path / "t.tsv", "split", "en", "topic", content=content)
    done = quick(model=model, text=path, labels=["topic"], out=tmp_path / "out")
    names = {unit: name.concept for unit, name in feature_names(done.concepts).items()}
    assert len(set(names.values())) >= 3
    assert set(names.values()) <= {f"topic:{word}" for word in WORDS[:6]}
    assert done.concepts.translated_summary()["topic"]["median_f1"]["ceiling"] == {"en_XX": 1.0}
    in_report = {feature.feature: feature.name and feature.name.concept for feature in done.metrics.features}
    assert in_report == {unit: names.get(unit) for unit in in_report}


def test_the_command_takes_labels_and_its_record_repeats_them(model, tmp_path, monkeypatch):
    short = StackedConfig(training=sae.TrainConfig(steps=5, batch_size=64))
    monkeypatch.setattr("course_lib.pipeline.config.StackedConfig", lambda: short)
    monkeypatch.setattr("course_lib.pipeline.run", functools.partial(run, stacked=short))
    path = written(tmp_path / "t.csv", "split", "text", "topic", "parity")
    sizes = ["--features", 64, "--k", 3, "--steps", 20, "--device", "cpu", "--no-progress"]

    def command(*options, code=0):
        done = CliRunner().invoke(app, [str(o) for o in ("pipeline", *options)])
        assert done.exit_code == code, done.output
        return done.output

    first, again = tmp_path / "first", tmp_path / "again"
    said = command("--model", model, "--text", path, "--labels", "topic, parity", "--out", first, *sizes)
    assert "values of topic (3): " in said
    record = RunDirectory(first).metrics.run.choice
    assert (record["labels"], record["pivot"]) == ("topic,parity", None)
    command("--config", first / "metrics.json", "--out", again, "--no-progress")
    assert RunDirectory(again).concepts == RunDirectory(first).concepts
    wrong = command("--model", model, "--text", path, "--labels", "x", "--out", tmp_path / "no", code=2)
    assert "labels is 'x'; expected different columns" in wrong


def test_labels_without_a_table_are_refused(model, tmp_path):
    (tmp_path / "lines.jsonl").write_text("{}")
    for text, message in (
        ("builtin", "labels is 'topic'; expected a table of parallel text, which builtin is not"),
        (tmp_path / "lines.jsonl", "is a table; expected a text file"),
        (tmp_path / "missing.csv", "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            quick(model=model, text=text, labels=["topic"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
