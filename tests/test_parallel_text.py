"""Tables of parallel text: how they are read, split by row and named, and that report and browser say the same names."""

import dataclasses
import functools
import itertools
import random
import re
import statistics

import pytest
import torch
from typer.testing import CliRunner

from course_lib import sae
from course_lib.__main__ import app
from course_lib.interpret.browser.build import build_index
from course_lib.interpret.names import feature_names
from course_lib.interpret.run_directory import RunDirectory
from course_lib.language.corpus import LANGUAGES
from course_lib.language.text import read_parallel_table
from course_lib.pipeline import InputError, SparseConfig, StackedConfig, report, run
from course_lib.pipeline.tables import find_table, parallel_text
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

QUICK = sae.TrainConfig(steps=300, batch_size=64, step_size=1e-2)
WORDS = sorted({word for text in SENTENCES for word in text[:-1].split() if len(word) > 3})[:20]
N = 300


def rows(n=N):
    """Three of the tiny model's words, in English and, each word for another, in German."""
    triples = random.Random(0).sample(list(itertools.permutations(WORDS, 3)), n)
    other = dict(zip(WORDS, WORDS[5:] + WORDS[:5], strict=True))
    return [(f"the {a} {b} {c}.", f"das {other[c]} {other[b]} {other[a]}.") for a, b, c in triples]


def written(path, header, lines):
    path.write_text("\n".join("\t".join(fields) for fields in [header, *lines]) + "\n", encoding="utf-8")
    return path


def table(path, *, split=True, texts=None, header=("page", "split", "en", "de", "note")):
    lines = [
        ("p", "test" if i % 2 else "train", *texts_of_row, "x")
        for i, texts_of_row in enumerate(texts or rows())
    ]
    keep = [i for i, name in enumerate(header) if split or name != "split"]
    return written(path, [header[i] for i in keep], [[line[i] for i in keep] for line in lines])


def read(path, **options):
    return parallel_text(find_table(path), **({"known": LANGUAGES, "seed": 0} | options))


# --- Reading -----------------------------------------------------------------------------------------


def test_tables_are_known_by_their_first_line_and_lines_of_text_are_none(tmp_path):
    lines = tmp_path / "lines.tsv"
    for content in ("en_XX\tthe dog.\n", "en\tNo\n", "the dog.\n", "\nthe dog\tsees\n", ""):
        lines.write_text(content)
        assert find_table(lines) is None
    for name, content in (
        ("a.txt", "en\tde\nx\ty\n"),
        ("a.csv", "en,de\nx,y\n"),
        ("b", "id\tsplit\ten_XX\n"),
    ):
        (tmp_path / name).write_text(content)
        assert find_table(tmp_path / name).names == re.split(r"[\t,]", content.split("\n")[0])
    (tmp_path / "t.jsonl").write_text('{"en": "a\tb\tc"}')
    assert find_table(tmp_path / "t.jsonl") is None
    assert find_table(tmp_path / "missing.csv") is None


def test_a_csv_may_hold_commas_quotes_and_ends_of_lines(tmp_path):
    (tmp_path / "t.csv").write_bytes(
        b'\xef\xbb\xbfen,de\r\n"a, b",c\r\n\r\n"say ""a""", d \r\n"two\r\nlines",e\r\n'
    )
    assert read_parallel_table(tmp_path / "t.csv").rows == [
        (2, ["a, b", "c"]),
        (4, ['say "a"', "d"]),
        (6, ["two\r\nlines", "e"]),
    ]
    (tmp_path / "t.tsv").write_text('en\tde\n"a, b\tc\n')  # between tabs a quote is a sign like others
    assert read_parallel_table(tmp_path / "t.tsv").rows == [(2, ['"a, b', "c"])]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"en,de\nx\n", "line 2 has 1 columns; expected 2"),
        ("t.csv", b"en,de\nx,\xff\n", "line 2: byte 0xff is not UTF-8"),
        ("t.csv", b'en,de\n"x,y\n', r"line 2: .*; expected a table separated by commas"),
        ("t.tsv", b"en\tde\ten\nx\ty\tz\n", "expected different names of columns"),
        ("t.tsv", b"en\tde\tsplit\nx\ty\n", "line 2 has 2 columns; expected 3"),
    ],
)
def test_damaged_tables_are_refused_with_the_line(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        find_table(tmp_path / name)


# --- Rows --------------------------------------------------------------------------------------------


def test_a_row_is_one_meaning_on_one_side_and_holds_its_words_in_every_language(tmp_path):
    found = read(table(tmp_path / "t.tsv"))
    sentences, out = found.sentences, found.sentence_held_out.tolist()
    assert [s.text for s in sentences] == [text for row in rows() for text in row]
    assert [s.language for s in sentences[:4]] == ["en_XX", "de_DE"] * 2
    assert [s.meaning for s in sentences[:4]] == [2, 2, 3, 3]  # lines of the file
    assert out[:4] == [False, False, True, True]
    assert found.pivot == "en_XX"
    assert {word.word for word in found.words} == {word.lower() for word in WORDS}
    for english, german in zip(sentences[::2], sentences[1::2], strict=True):
        assert (
            english.concepts
            == german.concepts
            == {f"en:{word.lower()}" for word in english.text[4:-1].split()}
        )
    (note,) = found.notes
    assert note.endswith("no language that the model knows, and not read: column note")
    german = read(table(tmp_path / "t.tsv"), pivot="de")
    assert german.pivot == "de_DE"
    assert german.sentences[0].concepts == {f"de:{word.lower()}" for word in rows()[0][1][4:-1].split()}


def test_without_a_column_a_tenth_of_the_rows_is_held_out_by_seed(tmp_path):
    path = table(tmp_path / "t.tsv", split=False, texts=rows(1200))
    first, again, other = (read(path, seed=seed).held_out for seed in (0, 0, 1))
    assert int(first.sum()) == 120
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_text_is_never_on_both_sides(tmp_path):
    texts = rows()
    texts[3] = (texts[2][0], texts[3][1])  # a held-out row says in English what a training row says
    texts[5] = (texts[5][0], texts[4][0])  # and one in German what a training row says in English
    texts[8] = (texts[6][0], texts[8][1])  # both are trained on
    found = read(table(tmp_path / "t.tsv", texts=texts))
    numbers = set(found.numbers)
    assert {3 + 2, 5 + 2}.isdisjoint(numbers)
    assert {2 + 2, 4 + 2, 6 + 2, 8 + 2} <= numbers
    assert len(numbers) == N - 2
    assert "2 held-out rows with a text that a training row has were left out" in found.notes
    sides = [
        {s.text for s, out in zip(found.sentences, found.sentence_held_out, strict=True) if out == side}
        for side in (False, True)
    ]
    assert sides[0].isdisjoint(sides[1])


def test_rows_without_text_in_some_language_are_left_out(tmp_path):
    texts = rows()
    texts[7] = (texts[7][0], " ")
    found = read(table(tmp_path / "t.tsv", texts=texts))
    assert 9 not in found.numbers
    assert len(found.numbers) == N - 1
    assert "1 rows without text in some language were left out" in found.notes


def test_a_limit_draws_whole_rows_by_seed_of_both_sides(tmp_path):
    path = table(tmp_path / "t.tsv")
    whole, few = read(path), read(path, limit=481)
    assert len(few.sentences) == 480
    assert int(few.held_out.sum()) == 110  # 11 of 24
    assert few.numbers == sorted(few.numbers)
    sides = dict(zip(whole.numbers, whole.held_out.tolist(), strict=True))
    assert [sides[number] for number in few.numbers] == few.held_out.tolist()
    assert few.numbers != read(path, limit=481, seed=1).numbers
    assert read(path, limit=10 * N).numbers == whole.numbers


ERRORS = {
    "one language": (
        ("split", "en", "klingon"),
        {},
        r"of which the model knows one, en_XX; expected .* two or more",
    ),
    "no language": (("split", "x1", "klingon"), {}, r"of which the model knows none"),
    "twice": (("en", "en_XX", "de"), {}, r"has two columns of en_XX, en and en_XX"),
    "pivot": (
        ("split", "en", "de"),
        {"pivot": "fr"},
        r"pivot is 'fr'; expected a language of .*: en_XX, de_DE",
    ),
    "unknown pivot": (("split", "en", "de"), {"pivot": "xx"}, r"pivot is 'xx'; expected a language"),
    "side": (("en", "split", "de"), {}, r"line 2: split is 'the"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_table_that_cannot_be_used_is_named(name, tmp_path):
    header, options, message = ERRORS[name]
    lines = [("test" if i % 2 else "train", *row) for i, row in enumerate(rows())]
    if name in ("twice", "side"):
        lines = [(row[1], *row[1:]) for row in lines]
    with pytest.raises(InputError, match=message):
        read(written(tmp_path / "t.tsv", header, lines), **options)


def test_too_little_text_and_no_frequent_word_are_named(tmp_path):
    with pytest.raises(InputError, match=r"20 rows with 40 different sentences; at least 50"):
        read(table(tmp_path / "few.tsv", texts=rows(20)))
    with pytest.raises(InputError, match=r"t.tsv: no word of en_XX is in 10 training rows, 15 held-out ones"):
        read(table(tmp_path / "t.tsv", texts=[(f"a {i}", f"ein {i}") for i in range(N)]))
    one_side = [("train", *row) for row in rows()]
    with pytest.raises(InputError, match=r"300 rows to train on and 0 held-out ones"):
        read(written(tmp_path / "one.tsv", ("split", "en", "de"), one_side))


# --- A run -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return str(directory)


def quick(**options):
    made = {
        "stacked": StackedConfig(training=dataclasses.replace(QUICK, steps=20)),
        "sparse": SparseConfig(n_features=128, training=QUICK),
    }
    return run(**(made | {"device": "cpu", "progress": False} | options))


@pytest.fixture(scope="module")
def result(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    return quick(model=model, text=table(folder / "t.tsv"), out=folder / "run")


def test_concepts_of_a_table_are_scored_beside_their_ceiling(result):
    found = result.concepts
    assert set(found.scores) == {"features", "neurons", "components", "random", "means", "lda", "probe"}
    assert found.translated.languages == ["en_XX", "de_DE"]
    assert {score.concept for score in found.scores["features"]} == {f"en:{word.lower()}" for word in WORDS}
    assert (found.spans, found.categories) == ({}, [])  # where a word stands in German is not known
    summary = found.translated_summary()
    # Each word has one translation: the words of either language tell all.
    assert summary["all"]["median_f1"]["ceiling"] == {"en_XX": 1.0, "de_DE": 1.0}
    by_hand = statistics.median(score.by_language["de_DE"] for score in found.scores["neurons"])
    assert summary["all"]["median_f1"]["neurons"]["de_DE"] == by_hand
    near = [score.by_language["de_DE"] >= 0.9 for score in found.scores["features"]]
    assert summary["all"]["at_ceiling"]["de_DE"] == sum(near) / len(near)
    assert (
        summary["all"]["n"] == sum(summary[group]["n"] for group in summary if group != "all") == len(WORDS)
    )
    assert found.across.language == "en_XX"
    page = result.report.read_text()
    assert "its translations say something about them" in page
    assert "ceiling: a probe of the words" in page
    assert f"{summary['translated']['median_f1']['features']['de_DE']:.2f}" in page
    assert "This text was generated" not in page
    assert f"{summary['all']['median_f1']['features']['de_DE']:.2f} of 1.00" in report.describe_concepts(
        found
    )
    assert any("column note" in warning for warning in result.metrics.run.warnings)


def test_report_command_and_browser_call_features_by_the_same_names(result):
    names = {unit: name.concept for unit, name in feature_names(result.concepts).items()}
    index = build_index(result, effects=0, threads=1, progress=False)
    every = range(index.n_features)
    assert {i: index.name(i) for i in every} == {i: names.get(i, f"feature {i}") for i in every}
    assert index.summary(every)["names"] == [names.get(i) for i in every]
    headings = re.findall(r"<h3>Feature (\d+)(?:: (.*?))?</h3>", result.report.read_text())
    assert len(headings) == 20
    assert {int(number): name or None for number, name in headings} == {
        feature.feature: names.get(feature.feature) for feature in result.metrics.features
    }
    assert {bool(name) for _, name in headings} == {True, False}  # some have a name, and some do not
    assert f"names: {len(names)} features have one" in report.describe_concepts(result.concepts)
    unnamed = next(feature for feature in result.metrics.features if feature.name is None)
    said = result.report.read_text().split(f"<h3>Feature {unnamed.feature}</h3>")[1]
    assert said.index("No name. It fires most at") < said.index("</section>")


def test_the_command_takes_a_pivot_and_its_record_has_it(model, tmp_path, monkeypatch):
    short = StackedConfig(training=dataclasses.replace(QUICK, steps=5))
    monkeypatch.setattr("course_lib.pipeline.config.StackedConfig", lambda: short)
    monkeypatch.setattr("course_lib.pipeline.run", functools.partial(run, stacked=short))
    options = ["--model", model, "--text", table(tmp_path / "t.tsv"), "--pivot", "de", "--sentences", 480]
    sizes = ["--features", 64, "--k", 3, "--steps", 20, "--device", "cpu", "--no-progress"]
    done = CliRunner().invoke(
        app, [str(o) for o in ("pipeline", "--out", tmp_path / "out", *options, *sizes)]
    )
    assert done.exit_code == 0, done.output
    assert "words of de_DE, all (" in done.output
    found = RunDirectory(tmp_path / "out")
    assert found.metrics.run.choice["pivot"] == "de"
    assert (found.metrics.run.sentences, found.metrics.run.held_out) == (480, 220)
    assert found.concepts.across.language == "de_DE"


def test_a_pivot_without_a_table_is_refused(model, tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(SENTENCES[:60]))
    for text in ("builtin", tmp_path / "lines.txt"):
        with pytest.raises(InputError, match=r"pivot is 'en'; expected a table of parallel text"):
            quick(model=model, text=text, pivot="en", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
