"""The progress file survives a crash, a damaged file and a second look."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from course_lib.teaching.progress import Progress, parsed

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

EMPTY = {"exercises": {}, "predictions": {}, "sentences": {}}


@pytest.fixture
def progress(progress_file):
    return Progress()


def files(progress):
    return sorted(path.name for path in progress.path.parent.iterdir())


def test_the_variable_names_the_file(progress, progress_file):
    assert progress.path == progress_file
    progress.record_attempt("01.1", solved=False)
    assert files(progress) == [progress_file.name]


def test_without_the_variable_it_is_in_the_folder_of_the_notebook(monkeypatch, tmp_path):
    monkeypatch.delenv("COURSE_PROGRESS")
    monkeypatch.chdir(tmp_path)
    Progress().record_hint("01.1", 1)
    assert (tmp_path / ".course_progress.json").is_file()


def test_a_path_given_wins_over_the_variable(tmp_path):
    Progress(tmp_path / "mine.json").record_hint("01.1", 1)
    assert json.loads((tmp_path / "mine.json").read_text())["exercises"]["01.1"]["hints"] == 1


def test_nothing_done_is_empty_and_makes_no_file(progress):
    assert progress.read() == EMPTY
    assert progress.exercise("01.1") == {"attempts": 0, "hints": 0, "solved": False, "mistakes": {}}
    assert not progress.path.exists()


def test_attempts_and_mistakes_count_until_it_is_solved(progress):
    for mistake in ("transposed", None, "transposed", "factor"):
        progress.record_attempt("01.1", solved=False, mistake=mistake)
    counted = {"attempts": 4, "hints": 0, "solved": False, "mistakes": {"transposed": 2, "factor": 1}}
    assert progress.exercise("01.1") == counted
    progress.record_attempt("01.1", solved=True)
    progress.record_attempt("01.1", solved=False, mistake="factor")
    assert Progress().exercise("01.1") == counted | {"attempts": 5, "solved": True}


def test_the_last_answer_once_more_is_no_attempt(progress):
    for answer in ("a", "a", "b", "b", None, None, "b"):
        progress.record_attempt("01.1", solved=False, mistake="factor", answer=answer)
    assert progress.exercise("01.1") == {
        "attempts": 5,
        "hints": 0,
        "solved": False,
        "mistakes": {"factor": 5},
    }
    progress.record_attempt("01.1", solved=True, answer="c")
    progress.record_hint("01.1", 1)
    progress.record_attempt("01.2", solved=False, answer="c")
    assert [Progress().exercise(number)["attempts"] for number in ("01.1", "01.2")] == [6, 1]
    assert Progress().read()["exercises"]["01.2"]["answer"] == "c"


def test_a_file_from_before_mistakes_were_kept_is_read_and_goes_on(progress):
    progress.path.parent.mkdir(parents=True)
    old = {"attempts": 2, "hints": 1, "solved": False}
    progress.path.write_text(json.dumps({"exercises": {"01.1": old, "01.2": old}, "predictions": {}}))
    progress.record_attempt("01.1", solved=False, mistake="factor")
    assert progress.exercise("01.1") == old | {"attempts": 3, "mistakes": {"factor": 1}}
    assert progress.exercise("01.2") == old | {"mistakes": {}}


def test_whether_a_guess_was_sure_is_kept_where_it_is_known(progress):
    progress.record_prediction("01.P1", guess="a", right=True, sure=True)
    progress.record_prediction("01.P2", guess="b", right=True)
    kept = {"01.P1": {"guess": "a", "right": True, "sure": True}, "01.P2": {"guess": "b", "right": True}}
    assert Progress().read()["predictions"] == kept
    kept["01.P1"]["sure"] = "very"
    with pytest.raises(ValueError, match="wrong kind"):
        parsed(json.dumps({"exercises": {}, "predictions": kept}))


def test_hints_keep_the_highest(progress):
    for number in (1, 3, 2):
        progress.record_hint("01.1", number)
    assert progress.exercise("01.1")["hints"] == 3


def test_the_first_prediction_is_kept(progress):
    progress.record_prediction("01.P1", guess="grows", right=False)
    progress.record_prediction("01.P1", guess="shrinks", right=True)
    assert progress.read()["predictions"] == {"01.P1": {"guess": "grows", "right": False}}


def test_a_crash_while_saving_loses_nothing_and_leaves_no_part(progress, monkeypatch):
    progress.record_attempt("01.1", solved=True)
    before = progress.path.read_bytes()

    def crash(source, target):
        assert os.path.exists(source), "the new state must be complete before it replaces the old one"
        raise OSError("disk gone")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="disk gone"):
        progress.record_attempt("01.2", solved=True)
    assert progress.path.read_bytes() == before
    assert files(progress) == [progress.path.name]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"exercises": {}}',
        b'{"exercises": 3, "predictions": {}}',
        b'{"exercises": {"01.1": 5}, "predictions": {}}',
        b'{"exercises": {"01.1": {}}, "predictions": {}}',
        b'{"exercises": {}, "predictions": {"01.P1": {"guess": "a"}}}',
        b'{"exercises": {"01.1": {"attempts": "2", "hints": 0, "solved": true}}, "predictions": {}}',
        b'{"exercises": {"01.1": {"attempts": 2, "hints": 0, "solved": true, "mistakes": {"a": []}}}, "predictions": {}}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_file_is_kept_aside_and_named(progress, content, capsys):
    progress.path.parent.mkdir(parents=True)
    progress.path.write_bytes(content)
    assert progress.read() == EMPTY
    assert progress.path.name in (said := capsys.readouterr().out)
    (aside,) = files(progress)
    assert aside != progress.path.name
    assert aside in said
    assert (progress.path.parent / aside).read_bytes() == content
    progress.record_attempt("01.1", solved=True)
    assert capsys.readouterr().out == ""
    assert progress.exercise("01.1")["solved"]
    assert (progress.path.parent / aside).read_bytes() == content


def test_a_second_damaged_file_does_not_overwrite_the_first(progress, capsys):
    progress.path.parent.mkdir(parents=True)
    for content in ("first", "second"):
        progress.path.write_text(content)
        progress.read()
    assert {(progress.path.parent / name).read_text() for name in files(progress)} == {"first", "second"}


def test_the_report_counts_lesson_by_lesson(progress):
    assert "Nothing recorded yet" in repr(progress.report())
    progress.record_attempt("00.1", solved=True)
    progress.record_hint("00.2", 2)
    progress.record_attempt("01.1", solved=False)
    progress.record_attempt("01.2", solved=True)
    progress.record_attempt("01.2", solved=False)
    progress.record_hint("01.2", 1)
    progress.record_prediction("01.P1", guess="a", right=True)
    progress.record_prediction("01.P2", guess="b", right=False)
    progress.record_sentence("01.Q1", choice="True", right=True)
    progress.record_sentence("01.Q1", choice="False", right=False)
    report = progress.report()
    assert repr(report).splitlines() == [
        "| Lesson | Exercises solved | Hints read | Predictions right | Sentences right |",
        "|---|---|---|---|---|",
        "| 00 | 1 of 1 tried | 2 | 0 of 0 | 0 of 0 |",
        "| 01 | 1 of 2 tried | 1 | 1 of 2 | 1 of 1 |",
        "",
        "**00**",
        "",
        "- 00.1 *solved, attempts: 1, hints: 0*",
        "- 00.2 *not solved yet, attempts: 0, hints: 2*",
        "",
        "**01**",
        "",
        "- 01.1 *not solved yet, attempts: 1, hints: 0*",
        "- 01.2 *solved, attempts: 1, hints: 1*",
        "- 01.P1 *You guessed “a”: right.*",
        "- 01.P2 *You guessed “b”: wrong.*",
    ]
    assert report._repr_markdown_() == repr(report)


def test_reset_forgets_everything_and_may_be_called_twice(progress):
    progress.record_attempt("01.1", solved=True)
    progress.reset()
    progress.reset()
    assert files(progress) == []
    assert progress.read() == EMPTY


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_report_has_the_titles_of_every_lesson(progress, monkeypatch, lesson):
    contents = contents_of(lesson)
    for number in contents.exercises:
        progress.record_attempt(number, solved=False)
    for number in contents.predictions:
        progress.record_prediction(number, guess="a", right=True)
    monkeypatch.chdir(NOTEBOOKS)
    said = repr(progress.report()).splitlines()
    assert f"**{lesson.number} {lesson.title}**" in said
    for number, exercise in contents.exercises.items():
        assert any(line.startswith(f"- {number} {exercise.title}") for line in said)
    for number, ask in contents.predictions.items():
        assert f"- {number} {ask.question} *You guessed “a”: right.*" in said


def test_a_page_that_shows_no_title_names_none(progress, monkeypatch, tmp_path):
    for name, text in (
        ("01_a", "{"),
        ("01_b", "[]"),
        ("01_c", '{"cells": []}'),
        ("01_d", '{"cells": [{"source": "# D"}]}'),
    ):
        (tmp_path / f"{name}.ipynb").write_text(text)
    progress.record_attempt("01.10", solved=True)
    progress.record_attempt("01.9", solved=True)
    monkeypatch.chdir(tmp_path)
    assert [line.split(" *")[0] for line in repr(progress.report()).splitlines()[4:]] == [
        "**01 D**",
        "",
        "- 01.9",
        "- 01.10",
    ]


def test_records_from_two_threads_are_all_kept(tmp_path):
    progress = Progress(tmp_path / "progress.json")

    def guess(thread):
        for number in range(20):
            progress.record_prediction(f"0{thread}.P{number}", guess="yes", right=True)

    with ThreadPoolExecutor(2) as both:
        list(both.map(guess, (1, 2)))
    assert len(progress.read()["predictions"]) == 40
