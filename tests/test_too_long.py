"""Sentences of more tokens than `--max-tokens`: cut or skipped, counted, and said by line, wherever text is read."""

import pytest
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.interpret.run_directory import RunDirectory
from course_lib.language.corpus import Sentence
from course_lib.language.text import ParallelTable
from course_lib.mbart.activation_store import ActivationStore
from course_lib.mbart.activations import tokenise
from course_lib.mbart.model import load
from course_lib.mbart.too_long import TokenLimit
from course_lib.pipeline.tables import parallel_text
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

SHORT = SENTENCES[:80]
LONG = " ".join([SENTENCES[0][:-1]] * 4) + "."
LONG_AT = (3, 10)  # lines, counted from 1, blank ones too


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A tiny model and a text with a blank line and two long ones."""
    root = tmp_path_factory.mktemp("made")
    (root / "model").mkdir()
    write_tiny_mbart(root / "model")
    lines = list(SHORT)
    lines.insert(1, "")
    for number in LONG_AT:
        lines.insert(number - 1, LONG)
    (root / "text.txt").write_text("\n".join(lines))
    return root


@pytest.fixture(scope="module")
def tokenizer(made):
    return load(str(made / "model"), device="cpu")[1]


def command(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done


def of(made, name, *more, code=0):
    return command(
        name, "--model", made / "model", "--text", made / "text.txt", "--no-progress", *more, code=code
    )


def limit_of(tokenizer):
    """The tokens of the longest short sentence."""
    return max(map(len, tokenise(tokenizer, [Sentence(text, None) for text in SHORT])))


def test_a_cut_sentence_is_a_beginning_with_as_many_tokens_as_allowed(tokenizer):
    limit = TokenLimit(tokenizer, limit_of(tokenizer) + 2)
    ((_, (cut, other)),) = limit.apply([(7, (Sentence(LONG, "en_XX"), Sentence(SHORT[0], "de_DE")))])
    assert LONG.startswith(cut.text)
    assert cut.language == "en_XX"
    assert len(tokenise(tokenizer, [cut])[0]) == limit.max_tokens
    assert other == Sentence(SHORT[0], "de_DE")
    assert limit.numbers == [7]


@pytest.mark.parametrize("too_long", ["cut", "skip"])
def test_what_no_sentence_is_too_long_for_stays(too_long, tokenizer):
    rows = [(i, (Sentence(text, None),)) for i, text in enumerate(SHORT, start=1)]
    limit = TokenLimit(tokenizer, limit_of(tokenizer), too_long)
    assert list(limit.apply(rows)) == rows
    assert limit.note() == []


def test_only_rows_that_were_asked_for_are_counted(tokenizer):
    limit = TokenLimit(tokenizer, limit_of(tokenizer), "skip")
    rows = limit.apply((i, (Sentence(LONG if i in (2, 50) else SHORT[0], None),)) for i in range(1, 100))
    assert [next(rows)[0] for _ in range(3)] == [1, 3, 4]
    assert limit.numbers == [2]


def test_a_note_lists_the_first_lines_only(tokenizer):
    limit = TokenLimit(tokenizer, limit_of(tokenizer), "skip")
    assert list(limit.apply((i, (Sentence(LONG, None),)) for i in range(1, 9))) == []
    assert limit.note()[0].endswith("were skipped: lines 1, 2, 3, 4, 5 and 3 more")


@pytest.mark.parametrize(("too_long", "rows"), [("cut", 82), ("skip", 80)])
def test_activations_and_pipeline_say_which_lines(too_long, rows, made, tokenizer, tmp_path):
    most = limit_of(tokenizer)
    options = ["--max-tokens", most, "--too-long", too_long]
    done = of(made, "activations", "--out", tmp_path / "store", "--dtype", "float32", *options)
    assert "2 lines with a sentence of more than" in done.stderr
    assert "lines 3, 10" in done.stderr
    manifest = ActivationStore(tmp_path / "store").manifest
    assert manifest["sentences"] == rows
    assert (manifest["max_tokens"], manifest["too_long"]) == (most, too_long)
    assert (manifest["too_long_rows"], manifest["first_too_long"]) == (2, list(LONG_AT))
    # The same text in the same order: a run takes its tokens from that store.
    done = of(
        made,
        "pipeline",
        *("--out", tmp_path / "run", "--store", tmp_path / "store", "--steps", 5, "--features", 32, "--k", 2),
        *options,
    )
    described = RunDirectory(tmp_path / "run").metrics.run
    assert described.sentences == rows
    assert any("lines 3, 10" in warning for warning in described.warnings)
    assert (described.choice["max_tokens"], described.choice["too_long"]) == (most, too_long)
    other = of(made, "activations", "--out", tmp_path / "store", "--dtype", "float32", code=2)
    assert "its max_tokens is" in other.output


def test_sentences_are_counted_after_skipping(made, tokenizer, tmp_path):
    of(
        made,
        "activations",
        *("--out", tmp_path / "store", "--sentences", 20, "--max-tokens", limit_of(tokenizer)),
        *("--too-long", "skip"),
    )
    assert ActivationStore(tmp_path / "store").manifest["sentences"] == 20


def test_an_autoencoder_of_a_cut_text_is_trained_evaluated_and_browsed(made, tokenizer, tmp_path):
    options = ["--max-tokens", limit_of(tokenizer), "--too-long", "skip"]
    text = ["--model", made / "model", "--text", made / "text.txt"]
    of(made, "activations", "--out", tmp_path / "store", "--dtype", "float32", *options)
    store = ["--store", tmp_path / "store", "--no-progress"]
    done = command(
        *("sae", "train", *store, "--out", tmp_path / "sae", "--features", 32, "--k", 2, "--steps", 5, *text)
    )
    assert "cross-entropy" in done.stdout
    done = command("sae", "evaluate", tmp_path / "sae", *store, *text, *options)
    assert "lines 3, 10" in done.stderr
    command(
        *("browse", tmp_path / "sae", "--out", tmp_path / "seen", "--export", tmp_path / "page.html"),
        *("--text", made / "text.txt", "--no-progress", "--effects", 0, *options),
    )
    assert any("lines 3, 10" in warning for warning in RunDirectory(tmp_path / "seen").metrics.run.warnings)


def test_a_skipped_row_of_a_table_is_skipped_in_all_languages(tokenizer, tmp_path):
    assert len(SENTENCES) >= 140
    rows = [
        (
            i,
            [
                SENTENCES[i],
                LONG if i in (4, 10) else SENTENCES[i + 20],
                "test" if i % 2 else "train",
                "ab"[i // 2 % 2],
            ],
        )
        for i in range(2, 120)
    ]
    table = ParallelTable(tmp_path / "t.tsv", ["en", "de", "split", "topic"], rows)
    known = {"en_XX", "de_DE"}
    found = {
        too_long: parallel_text(
            table,
            known=known,
            seed=0,
            labels=["topic"],
            max_tokens=TokenLimit(tokenizer, limit_of(tokenizer), too_long),
        )
        for too_long in ("cut", "skip")
    }
    for too_long, read in found.items():
        fields_of = dict(rows)
        assert [fields_of[number][0] for number in read.numbers] == read.texts["en_XX"]
        for number, german in zip(read.numbers, read.texts["de_DE"], strict=True):
            whole = fields_of[number][1]
            assert german == whole if number not in (4, 10) else whole.startswith(german) and german != whole
        assert {4, 10}.isdisjoint(read.numbers) == (too_long == "skip")
        assert read.notes[-1].endswith("lines 4, 10")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-tokens", "0"], "max_tokens is 0; expected 3 or more"),
        (["--max-tokens", "2"], "max_tokens is 2; expected 3 or more"),
        (["--max-tokens", "9", "--too-long", "drop"], "too_long is 'drop'; expected 'cut' or 'skip'"),
        (["--too-long", "skip"], "too_long is 'skip' without max_tokens"),
        (["--max-tokens", "9", "--text", "builtin"], "max_tokens is 9, and the text builtin"),
    ],
)
@pytest.mark.parametrize("name", ["activations", "pipeline"])
def test_wrong_arguments_are_named(name, options, words, made, tmp_path):
    done = of(made, name, "--out", tmp_path / "out", *options, code=2)
    assert words in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_limit_that_leaves_too_little_is_named(made, tmp_path):
    done = of(made, "pipeline", "--out", tmp_path / "out", "--max-tokens", 3, "--too-long", "skip", code=2)
    assert "max_tokens is 3, which leaves 0 sentences" in done.stderr
