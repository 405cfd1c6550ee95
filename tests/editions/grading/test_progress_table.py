"""Progress files of several learners become tables; files that cannot be read are named, and the others are read."""

import csv
import html
import json
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.editions.grading import progress_table as tables
from course_lib.lessons import exercises_of, predictions_of


def entry(attempts, *, hints=0, solved=False, **mistakes):
    return {"attempts": attempts, "hints": hints, "solved": solved, "mistakes": mistakes}


def write(path, exercises):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"exercises": exercises, "predictions": {}}))


FEW, MANY = (exercises_of("00")["00.2"].mistakes[i].name for i in (0, 1))


@pytest.fixture
def folder(tmp_path):
    """Four learners, one of whom has done nothing, and a damaged file."""
    folder = tmp_path / "collected"
    write(
        folder / "ana.json",
        {"00.2": entry(4, hints=2, solved=True, **{FEW: 2, MANY: 1}), "00.1": entry(1, solved=True)},
    )
    write(folder / "group" / "ben" / ".course_progress.json", {"00.2": entry(1, solved=True)})
    write(folder / "dora.JSON", {})
    write(folder / "eve.json", {"00.2": entry(9, hints=3, **{MANY: 1}), "00.3": entry(0, hints=1)})
    (folder / "finn.json").write_text("{")
    (folder / "note.txt").write_text("not looked at")
    return folder


def test_learners_are_counted_by_the_names_of_their_files(folder):
    assert tables.by_learner(tables.collect(folder)).rows == (
        ("ana", "00", 2, 2, 5, 2),
        ("dora", "", 0, 0, 0, 0),
        ("eve", "00", 0, 1, 9, 4),
        ("group/ben", "00", 1, 1, 1, 0),
    )


def test_exercises_are_counted_over_those_who_tried(folder):
    """The medians of 4, 1, 9 attempts and 2, 0, 3 hints; a hint alone is no try."""
    assert tables.by_exercise(tables.collect(folder)).rows == (
        ("00.1", "How well a name fits", 1, 1, 1, 0),
        ("00.2", "How often", 3, 2, 4, 2),
    )


def test_guesses_stand_with_their_questions(tmp_path, folder):
    guesses = {
        "00.P2": {"guess": "b\x1b", "right": False},
        "00.P1": {"guess": "a", "right": True, "sure": True},
        "99.P1": {"guess": "c", "right": True},
    }
    path = tmp_path / "mine" / ".course_progress.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"exercises": {}, "predictions": guesses}))
    questions = [predictions_of("00")[number].question for number in ("00.P1", "00.P2")]
    assert all(question.endswith("?") for question in questions)
    collected = tables.collect(path.parent)
    assert [row[1:] for row in tables.predictions(collected).rows] == [
        ("00.P1", questions[0], "a", "sure", "yes"),
        ("00.P2", questions[1], "b\N{REPLACEMENT CHARACTER}", "", "no"),
        ("99.P1", tables.ABSENT, "c", "", "yes"),
    ]
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["progress", str(path.parent), "--html", str(page), "--details"])
    assert done.exit_code == 0, done.output
    assert questions[0] in html.unescape(page.read_text(encoding="utf-8"))
    assert "Who guessed what" in done.stdout
    assert tables.predictions(tables.collect(folder)).rows == ()


def test_predictions_are_counted_over_those_who_guessed(tmp_path):
    """Of three guesses two are right; of the two who were sure, one."""
    made = [("ana", True, True), ("ben", False, True), ("dora", True, False)]
    for learner, right, sure in made:
        guess = {"00.P1": {"guess": "x", "right": right, "sure": sure}}
        (tmp_path / f"{learner}.json").write_text(json.dumps({"exercises": {}, "predictions": guess}))
    old = {"00.P2": {"guess": "x", "right": False}}
    (tmp_path / "eve.json").write_text(json.dumps({"exercises": {}, "predictions": old}))
    first, second = tables.by_prediction(tables.collect(tmp_path)).rows
    assert (first[0], first[1]) == ("00.P1", predictions_of("00")["00.P1"].question)
    assert first[2:] == (3, 2, 2, 1)
    assert second[2:] == (1, 0, 0, 0)
    sheet = tmp_path / "guesses.csv"
    assert "By prediction" in progress(tmp_path, "--guesses-csv", sheet).stdout
    with sheet.open(encoding="utf-8", newline="") as file:
        rows = [
            (row["Learner"], row["First guess"], row["Sure"], row["Right"]) for row in csv.DictReader(file)
        ]
    assert rows == [
        ("ana", "x", "sure", "yes"), ("ben", "x", "sure", "no"), ("dora", "x", "a guess", "yes"),
        ("eve", "x", "", "no"),
    ]  # fmt: skip


def test_mistakes_are_ranked_by_how_many_made_them(folder):
    """Two attempts of one learner count once."""
    first, second = tables.common_mistakes(tables.collect(folder)).rows
    assert first == (
        "00.2", MANY, 2,
        "That is below 0.01, but not for the first time: 0.5⁷ is below it already.",
    )  # fmt: skip
    assert second[:3] == ("00.2", FEW, 1)


def test_files_that_cannot_be_read_are_named_and_left_alone(folder):
    (folder / "gone.json").symlink_to(folder / "nowhere")
    write(folder / "list.json", [])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    collected = tables.collect(folder)
    assert [line.partition(" is not read: ")[0] for line in collected.unread] == [
        "finn.json",
        "gone.json",
        "list.json",
    ]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_old_files_and_exercises_of_other_editions_are_read(tmp_path):
    old = {"attempts": 2, "hints": 0, "solved": True}
    write(tmp_path / "old.json", {"00.2": old, "99.7": old | {"mistakes": {"unheard of": 1}}})
    collected = tables.collect(tmp_path)
    assert [row[0] for row in tables.by_exercise(collected).rows] == ["00.2", "99.7"]
    assert tables.common_mistakes(collected).rows == (("99.7", "unheard of", 1, ""),)


def test_two_files_of_one_name_are_two_learners(tmp_path):
    write(tmp_path / "ana.json", {"00.2": entry(1)})
    write(tmp_path / "ana" / ".course_progress.json", {"00.2": entry(2)})
    rows = tables.by_learner(tables.collect(tmp_path)).rows
    assert len({row[0] for row in rows}) == 2
    assert sorted(row[4] for row in rows) == [1, 2]


def progress(*options):
    return CliRunner().invoke(app, ["progress", *map(str, options)], env={"COLUMNS": "200"})


def test_the_command_prints_tables_and_names_what_it_left_out(folder):
    done = progress(folder)
    assert done.exit_code == 0, done.output
    for words in ("By learner", "group/ben", "By exercise", "How well a name fits", "not for the first time"):
        assert words in done.stdout
    assert "Who solved what" not in done.stdout
    assert "Who solved what" in progress(folder, "--details").stdout
    assert done.stderr.startswith("finn.json is not read: ")


def test_without_a_readable_file_the_command_says_so(tmp_path):
    (tmp_path / "finn.json").write_text("{")
    for where, words in (
        (tmp_path, "finn.json is not read"),
        (tmp_path / "nowhere", "holds no progress file"),
    ):
        done = progress(where)
        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")
        assert words in done.stderr


def test_help_says_where_names_come_from():
    said = " ".join(progress("--help").stdout.split())
    assert "named by the path of the file, and by nothing else" in said
    assert "nothing is sent anywhere" in said


class Cells(HTMLParser):
    """The texts of a page's cells, and the names of all its tags."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.tags = [], set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


HOSTILE = "<script>alert(1)</script>"


def test_what_stands_in_a_file_is_text_in_every_output(tmp_path):
    """Names of mistakes and files reach a page, a spreadsheet and a terminal as text, not as something to obey."""
    write(tmp_path / "in" / "=1+1 [red]&.json", {"00.2": entry(1, **{HOSTILE: 1}), "\x1b[2J": entry(1)})
    page, sheet = tmp_path / "page.html", tmp_path / "sheet.csv"
    done = progress(tmp_path / "in", "--html", page, "--csv", sheet, "--details")
    assert done.exit_code == 0, done.output
    cells = Cells(page.read_text(encoding="utf-8"))
    assert "script" not in cells.tags
    assert HOSTILE in cells.texts
    assert "=1+1 [red]&" in cells.texts
    with sheet.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["Learner"] for row in rows} == {"'=1+1 [red]&"}
    assert {row["Exercise"] for row in rows} == {"00.2", "\N{REPLACEMENT CHARACTER}[2J"}
    assert "=1+1 [red]&" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_sheet_has_a_row_for_each_exercise_of_each_learner(folder, tmp_path):
    sheet, page = tmp_path / "sheet.csv", tmp_path / "page.html"
    assert progress(folder, "--csv", sheet, "--html", page).exit_code == 0
    with sheet.open(encoding="utf-8", newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert rows == [
        ("ana", "00.1", "How well a name fits", "yes", "1", "0", ""),
        ("ana", "00.2", "How often", "yes", "4", "2", f"{FEW} (2); {MANY} (1)"),
        ("eve", "00.2", "How often", "no", "9", "3", f"{MANY} (1)"),
        ("eve", "00.3", "Catch a wrong sentence", "no", "0", "1", ""),
        ("group/ben", "00.2", "How often", "yes", "1", "0", ""),
    ]
    texts = Cells(page.read_text(encoding="utf-8")).texts
    assert "Who solved what" in texts
    assert any(text.startswith("finn.json is not read") for text in texts)
