"""A learner's record says what the progress file holds, and running the pages again finds answers that are not there."""

import inspect
import json

import nbformat
import pytest
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.commands import learn
from course_lib.editions import record
from course_lib.lessons import exercises_of, predictions_of
from tests.editions.teacher.conftest import BY_NUMBER, NOTEBOOKS

MISTAKE = exercises_of("00")["00.1"].mistakes[0]
STATE = {
    "exercises": {
        "00.1": {"attempts": 3, "hints": 1, "solved": True, "mistakes": {MISTAKE.name: 2}},
        "00.2": {"attempts": 1, "hints": 0, "solved": True, "mistakes": {}},
        "00.3": {"attempts": 0, "hints": 2, "solved": False, "mistakes": {}},
        "99.1": {"attempts": 1, "hints": 0, "solved": False, "mistakes": {}},
    },
    "predictions": {
        "00.P1": {"guess": "A <wrong> one", "right": False, "sure": True},
        "00.P2": {"guess": "None", "right": True, "sure": True},
        "99.P1": {"guess": "a", "right": True, "sure": False},
        "99.P2": {"guess": "b", "right": False},
    },
    "sentences": {"00.Q1": {"choice": "True", "right": True}},
}


@pytest.fixture
def folder(tmp_path):
    """A learner's folder: a page that holds the answer to one of two solved exercises, and the progress file."""
    notebook = nbformat.read(NOTEBOOKS / BY_NUMBER["00"].notebook, as_version=4)
    setup = nbformat.v4.new_code_cell("from course_lib.lessons.start_here import EXERCISES as exercises")
    notebook.cells = [setup, *(cell for cell in notebook.cells if "exercise" in cell.metadata)]
    for cell in notebook.cells[1:]:
        check = cell.source.splitlines()[-1]
        cell.source = {"00.1": "1 / 0", "00.2": f"answer = 7\n{check}"}.get(
            cell.metadata.exercise, cell.source
        )
    nbformat.write(notebook, tmp_path / BY_NUMBER["00"].notebook)
    (tmp_path / ".course_progress.json").write_text(json.dumps(STATE))
    return tmp_path


def test_it_counts_by_how_sure_the_learner_was():
    assert record.summary(STATE) == [
        "Sure in 2 predictions, right in 1 of them.",
        "Guessed in 1 prediction, right in 1 of them.",
        "Not asked whether sure in 1 prediction, right in 0 of them.",
        "Solved 2 of 3 exercises tried; met a named mistake in 1 of them.",
        "Marked 1 sentence, 1 of them right at once.",
    ]


def test_first_guesses_stand_beside_what_happens():
    predicted, solved, met = record.tables(STATE)
    questions = predictions_of("00")
    right = questions["00.P1"].example().answer
    assert predicted.rows == (
        ("00.P1", questions["00.P1"].question, "A <wrong> one", "sure", right, "no"),
        ("00.P2", questions["00.P2"].question, "None", "sure", "None", "yes"),
        ("99.P1", record.ABSENT, "a", "a guess", "a", "yes"),
        ("99.P2", record.ABSENT, "b", "", "", "no"),
    )
    assert [row[:4] for row in solved.rows][:2] == [
        ("00.1", "How well a name fits", "yes", 3),
        ("00.2", "How often", "yes", 1),
    ]
    assert met.rows == (("00.1", MISTAKE.name, 2, MISTAKE.explanation),)


def test_formulas_stand_as_text():
    guess = "Those of the signs and of $UV^\\top$"
    (predicted, *_) = record.tables(
        {"exercises": {}, "predictions": {"06.P2": {"guess": guess, "right": False}}}
    )
    assert predicted.rows[0][2] == "Those of the signs and of UVᵀ"
    assert not {"$", "\\"} & set("".join(map(str, predicted.rows[0])))


def test_the_pages_are_run_again_and_nothing_of_the_learner_is_changed(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    page = folder.parent / "page.html"
    done = CliRunner().invoke(app, ["record", str(folder), "--check", "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "Run again: 1 of 2 stored answers are solved." in done.stdout
    made = page.read_text(encoding="utf-8")
    assert "<td>no answer was checked</td>" in made
    assert "<td>solved</td>" in made
    assert "A record, not a certificate" in made
    assert "A &lt;wrong&gt; one" in made
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_without_check_no_page_is_run(folder, monkeypatch):
    monkeypatch.setattr(record, "check", lambda *args: pytest.fail("a page was run"))
    page = folder / "page.html"
    assert CliRunner().invoke(app, ["record", str(folder), "--out", str(page)]).exit_code == 0
    assert "Run again" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (None, "no progress file lies at"),
        ("{", "cannot be read"),
        ('{"exercises": {}, "predictions": {}}', "holds nothing yet"),
    ],
)
def test_a_file_that_shows_nothing_is_named_and_no_page_is_written(tmp_path, text, match):
    if text is not None:
        (tmp_path / ".course_progress.json").write_text(text)
    done = CliRunner().invoke(app, ["record", str(tmp_path), "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 2
    assert match in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_git_does_not_see_the_page():
    default = inspect.signature(learn.record).parameters["out"].default
    assert str(default) in (NOTEBOOKS.parent / ".gitignore").read_text().splitlines()
