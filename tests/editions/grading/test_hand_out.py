"""A lesson handed out through nbgrader comes back with the points that its answers deserve.

What nbgrader does itself is tested where it is installed: `make grading-test` gives it an environment of its own.
"""

import contextlib
import csv
import re
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
import torch
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.commands import options
from course_lib.editions.grading import feedback, hand_out
from course_lib.lessons import exercises_of
from course_lib.lessons.catalog import LESSONS, choose_lessons
from course_lib.teaching import Exercise, Mistake
from course_lib.teaching.exercise import _complaint
from course_lib.teaching.sandbox import Outcome
from tests.browser.conftest import browser, chromium  # noqa: F401

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = ROOT / "notebooks"
START = "00_start_here"

needs_nbgrader = pytest.mark.skipif(
    find_spec("nbgrader") is None, reason="nbgrader is not installed (the extra named grading)"
)


@pytest.fixture(autouse=True)
def new_kernel(monkeypatch):
    """In which nothing was judged before."""
    monkeypatch.setattr(hand_out, "_taken", {})


def read(path):
    return nbformat.read(path, as_version=4)


def answer_cells(notebook):
    return {cell.metadata.exercise: cell for cell in notebook.cells if "exercise" in cell.metadata}


# ---------------------------------------------------------------- judging


def test_the_reference_is_solved(capsys):
    exercise = exercises_of("00")["00.1"]
    hand_out.judge("00.1", exercise.reference)
    assert capsys.readouterr().out == "Exercise 00.1: solved.\n"


@pytest.mark.parametrize("mistake", exercises_of("00")["00.1"].mistakes, ids=lambda mistake: mistake.name)
def test_a_mistake_raises_its_sentence(mistake):
    wrong = exercises_of("00")["00.1"].wrong_answer(mistake)
    with pytest.raises(hand_out.NotSolvedError, match=re.escape(mistake.explanation)) as raised:
        hand_out.judge("00.1", wrong)
    assert raised.value._render_traceback_() == [f"Exercise 00.1: {mistake.explanation}"]


def test_what_is_not_attempted_gets_no_points():
    with pytest.raises(hand_out.NotSolvedError, match="not attempted"):
        hand_out.judge("00.2", ...)


def test_a_right_answer_that_logs_writes_nothing_to_stderr(capfd):
    """nbgrader gives no points to a cell that does."""

    def f1(hits, misses, false_alarms):
        sys.stderr.write("working\n")
        return 2 * hits / (2 * hits + misses + false_alarms)

    hand_out.judge("00.1", f1)
    assert capfd.readouterr().err == ""


def test_a_share_is_what_of_the_inputs_is_right_beyond_one_half(capsys):
    """On 34 of the 40 the bound is no whole number, and to round up is right."""
    exercise = exercises_of("01")["01.3"]
    by_name = {one.name: exercise.wrong_answer(one) for one in exercise.mistakes}
    assert hand_out.judge("01.3", by_name["rounded up"], share_of=4) == 2.8
    said = capsys.readouterr().out
    assert "You rounded up" in said
    assert "Right for 34 of 40 inputs that are tested: 2.8 of 4 points." in said
    assert hand_out.judge("01.3", exercise.reference, share_of=4) is None  # all points


def test_a_share_is_what_of_the_numbers_is_right_beyond_one_half(capsys):
    answer = exercises_of("05")["05.1"].reference | {"run": 1.0}
    assert hand_out.judge("05.1", answer, share_of=3) == 1
    assert "Right for 2 of 3 numbers: 1 of 3 points." in capsys.readouterr().out
    with pytest.raises(hand_out.NotSolvedError):
        hand_out.judge("05.1", answer | {"mean": 1.0}, share_of=3)


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("01.1", 5.0),
        ("01.2", 0.25),  # has one of two properties, as has half of all numbers
        ("00.1", lambda hits, misses, false_alarms: hits / (hits + misses)),
        ("00.1", lambda hits, misses, false_alarms: None),
        ("00.1", lambda hits: 1.0),
        ("00.2", "seven"),
        ("00.2", ...),
    ],
)
def test_what_is_right_on_half_or_less_gets_no_share(number, answer):
    with pytest.raises(hand_out.NotSolvedError):
        hand_out.judge(number, answer, share_of=6)


def test_few_known_mistakes_get_a_share():
    """Those that are right but for some inputs. All but one of 01.4 keep its first property, and none solves it."""
    earned = {}
    for number, exercise in exercises_of("01").items():
        for mistake in exercise.mistakes:
            with contextlib.suppress(hand_out.NotSolvedError):
                answer = exercise.wrong_answer(mistake)
                earned[number, mistake.name] = hand_out.judge(number, answer, share_of=100)
    assert earned == {
        ("01.3", "left out the absolute value"): 20,
        ("01.3", "no case for a factor of 0"): 35,
        ("01.3", "rounded up"): 70,
        ("01.3", "rounded up, no case for a factor of 0"): 5,
        ("01.4", "kept the zero"): 10,
    }


@pytest.mark.parametrize("number", [lesson.number for lesson in LESSONS])
def test_no_constant_gets_a_share(number):
    """A function that returns the right output of some input for every input is right on half of them at most."""
    for exercise in exercises_of(number).values():
        same = torch.Generator().manual_seed(0)
        if exercise.kind == "function":
            cases = exercise._cases(same)
            expected = exercise._expected(cases)
            counts = [
                sum(
                    _complaint(Outcome(value), right) is None and exercise._is_right(case, value, right)
                    for case, right in zip(cases, expected, strict=True)
                )
                for value in expected[:10]
            ]
            assert max(counts) <= len(cases) / 2


def test_an_answer_that_is_right_on_the_inputs_of_all_but_not_on_others_gets_less_than_all(monkeypatch):
    monkeypatch.setattr(Exercise, "count_right", lambda *_, generator: (40, 40))
    assert hand_out.judge("00.1", lambda h, m, f: 0.5, share_of=6) == 5.7
    monkeypatch.setattr(Exercise, "count_right", lambda *_, generator: (1, 1))
    with pytest.raises(hand_out.NotSolvedError):
        hand_out.judge("00.1", lambda h, m, f: 0.5, share_of=6)


def test_equal_answers_get_equal_shares():
    best = exercises_of("01")["01.4"]
    (answer,) = [best.wrong_answer(one) for one in best.mistakes if one.name == "kept the zero"]
    assert {hand_out.judge("01.4", answer, share_of=6) for _ in range(5)} == {0.6}


def test_a_right_answer_that_does_what_is_forbidden_gets_less_than_all(monkeypatch):
    def halved(x):
        total = 0.0
        for entry in x.tolist():
            total += entry / 2
        return torch.tensor(total)

    exercise = Exercise(
        id="99.1", title="", kind="function", difficulty=1, minutes=1, prompt="", reference=lambda x: x.sum() / 2,
        hints=("", "", ""), mistakes=(Mistake("a", lambda x: x.sum(), ""), Mistake("b", lambda x: x[0], "")),
        draw=lambda g: {"x": torch.rand(int(torch.randint(2, 9, (), generator=g)), generator=g)},
        same=lambda a, b: abs(float(a) - float(b)) < 1e-3, forbids=("loop",),
    )  # fmt: skip
    monkeypatch.setattr(hand_out, "_exercise", lambda number: exercise)
    assert hand_out.judge("99.1", halved, share_of=2) == 1


# ---------------------------------------------------------------- points


@pytest.mark.parametrize("text", ['"00.1" = 4\n"00.3" = 0.5', "00.1 = 4\n00.3 = 0.5"])
def test_points_are_read_with_and_without_quotation_marks(tmp_path, text):
    path = tmp_path / "points.toml"
    path.write_text(text)
    assert hand_out.read_points(path) == {"00.1": 4, "00.3": 0.5}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('"00.9" = 1', "'00.9'; expected numbers of exercises"),
        ('"lesson" = 1', "'lesson'; expected numbers of exercises"),
        ('"00.1" = -1', "-1 points for 00.1; expected a number, 0 or more"),
        ('"00.1" = "two"', "'two' points for 00.1"),
        ('"00.1" = true', "True points"),
        ('"00.1" = nan', "nan points"),
        ("00.1;4", "cannot be read .*; expected TOML with lines like"),
    ],
)
def test_points_that_cannot_be_given_are_named(tmp_path, text, match):
    path = tmp_path / "points.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=match):
        hand_out.read_points(path)
    done = CliRunner().invoke(app, ["hand-out", str(tmp_path / "course"), "00", "--points", str(path)])
    assert done.exit_code == 2
    assert not (tmp_path / "course").exists()


def test_points_and_shares_reach_the_cells_that_judge():
    made = hand_out.source_notebook(read(NOTEBOOKS / f"{START}.ipynb"), points={"00.1": 2.5}, partial=True)
    judging = [cell for cell in made.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert [cell.metadata.nbgrader.points for cell in judging] == [2.5, 1, 1]
    assert "for 2.5 points." in judging[0].source
    assert 'judge("00.1", globals().get("f1", ...), share_of=2.5)' in judging[0].source
    assert "for 1 point." in judging[1].source


def test_a_cell_that_fails_leaves_no_answer_of_another_exercise_to_be_judged():
    made = hand_out.source_notebook(read(NOTEBOOKS / "01_gradient_descent_stability.ipynb"), partial=True)
    judging = {c.id: c.source for c in made.cells if c.id.startswith("judge-")}
    kernel = {"answer": exercises_of("01")["01.1"].reference}
    exec(judging["judge-01_1"], kernel)
    for number in ("01_2", "01_3"):  # a value and a function, whose cells stopped
        with pytest.raises(hand_out.NotSolvedError, match="not attempted"):
            exec(judging[f"judge-{number}"], kernel)


def test_a_judging_cell_that_is_run_again_judges_the_same_answer_or_a_newer_one(capsys):
    made = hand_out.source_notebook(read(NOTEBOOKS / "01_gradient_descent_stability.ipynb"))
    judging = {c.id: c.source for c in made.cells if c.id.startswith("judge-")}
    kernel = {"answer": exercises_of("01")["01.1"].reference}
    for _ in range(2):
        exec(judging["judge-01_1"], kernel)
    assert capsys.readouterr().out == "Exercise 01.1: solved.\n" * 2
    kernel["answer"] = 2.4
    with pytest.raises(hand_out.NotSolvedError, match="multiplied the error once"):
        exec(judging["judge-01_1"], kernel)


def test_an_exercise_of_another_edition_is_named_by_its_number():
    assert (
        feedback.name_exercises('<a href="#exercise_99_7">Test cell</a>')
        == '<a href="#exercise_99_7">Exercise 99.7</a>'
    )


# ---------------------------------------------------------------- what could not be read


def graded(*places):
    """A notebook as learners hand it in, of answer cells and judging cells by their names."""
    cells = [
        nbformat.v4.new_code_cell(name, metadata={"nbgrader": {"grade_id": name}}, id=f"cell-{i}")
        for i, name in enumerate(places)
    ]
    return nbformat.v4.new_notebook(cells=cells)


def test_a_submission_says_why_it_could_not_be_read(tmp_path):
    path = tmp_path / "99_a.ipynb"
    parts = lambda: feedback.unread_parts(path, ["exercise_99_1", "exercise_99_2"])  # noqa: E731
    assert parts() == "could not be read: there is no 99_a.ipynb"
    (tmp_path / "mine.ipynb").write_text("{}")
    assert parts() == "could not be read: there is no 99_a.ipynb, but mine.ipynb"
    path.write_text('{"cells": [\n"a')
    assert parts() == "could not be read: it is not the JSON of a notebook from line 2 on"
    path.write_bytes(b"\xff\xfe\x00")
    assert parts() == "could not be read: it is not the JSON of a notebook"
    path.write_text("[1]")
    assert re.fullmatch(r"could not be read: it is not a notebook \(\w+\)", parts())
    nbformat.write(graded("answer_99_1"), path)
    assert parts() == "could not be read: there is no answer cell of 99.2"
    nbformat.write(graded("answer_99_1", "answer_99_2"), path)
    assert parts() == ""


def test_judging_cells_that_were_deleted_are_put_back_below_their_answers():
    notebook = graded("answer_99_1", "other", "answer_99_2", "exercise_99_2")
    judging = {f"exercise_99_{i}": nbformat.v4.new_code_cell(f"judge {i}") for i in (1, 2, 3)}
    feedback.put_back(notebook, judging)
    assert [cell.source for cell in notebook.cells] == [
        "answer_99_1", "judge 1", "other", "answer_99_2", "exercise_99_2",
        "**Exercise 99.3 could not be read: there is no answer cell of it.**", "judge 3",
    ]  # fmt: skip


def test_a_verdict_is_said_once():
    notebook = graded("answer_99_1", "exercise_99_1")
    text = "working\nExercise 99.1: not yet.\nExercise 99.2: a word of mine\n"
    for cell in notebook.cells:
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    feedback.say_once(notebook)
    answer, judging = notebook.cells
    assert answer.outputs[0].text == "working\nExercise 99.2: a word of mine\n"
    assert judging.outputs[0].text == text


def test_the_columns_of_nbgrader_stay_and_those_of_the_exercises_follow():
    theirs = 'assignment,student_id,name,score\n00_a,ana,Ana,3.0\n00_a,bo,"x, y",0.0\n99_b,ana,Ana,1.0\n'
    points = {
        ("00_a", "ana"): {"exercise_00_2": 1.0, "exercise_00_1": 0.5},
        ("99_b", "ana"): {"exercise_99_1": 1},
    }
    made = feedback.with_exercises(theirs, points, {("00_a", "bo"): "could not be read: a, b"})
    lines = made.splitlines()
    one, two = (feedback.title(f"exercise_00_{i}") for i in (1, 2))
    assert two == "00.2 How often"
    assert lines == [
        f"assignment,student_id,name,score,{one},{two},99.1,not_read",
        "00_a,ana,Ana,3.0,0.5,1.0,,",
        '00_a,bo,"x, y",0.0,,,,"could not be read: a, b"',
        "99_b,ana,Ana,1.0,,,1,",
    ]


# ---------------------------------------------------------------- the source


@pytest.fixture(scope="module", params=[lesson for lesson in LESSONS if lesson.number in ("00", "13")])
def lesson(request):
    return request.param


@pytest.fixture(scope="module")
def stored(lesson):
    return read(NOTEBOOKS / lesson.notebook)


@pytest.fixture(scope="module")
def source(stored):
    return hand_out.source_notebook(stored)


def test_every_exercise_of_the_course_is_judged_once_and_right_below_its_answer():
    """With as many points as it has stars."""
    for lesson in LESSONS:
        cells = hand_out.source_notebook(read(NOTEBOOKS / lesson.notebook)).cells
        found = {}
        for answer, judging in pairwise(cells):
            if judging.metadata.get("nbgrader", {}).get("grade"):
                number = answer.metadata.exercise
                name = re.search(r"\.check\((\w+)\)", answer.source)[1]
                function = exercises_of(lesson.number)[number].kind == "function"
                given = (
                    f'globals().get("{name}", ...)' if function else f'taken("{number}", "{name}", globals())'
                )
                assert f'judge("{number}", {given})' in judging.source
                found[number] = judging.metadata.nbgrader.points
        assert list(found.items()) == [(e.id, e.difficulty) for e in exercises_of(lesson.number).values()]


def test_the_source_is_the_lesson_and_the_solutions_stand_between_marks(stored, source):
    """Taken out as nbgrader does, they leave the cells of the lesson but for empty lines."""
    kept = [cell for cell in source.cells if not cell.metadata.get("nbgrader", {}).get("grade")]
    for cell, original in zip(kept, stored.cells, strict=True):
        without = re.sub(r"### BEGIN SOLUTION\n.*?\n### END SOLUTION\n", "\n", cell.source, flags=re.DOTALL)
        assert without.replace("\n", "") == hand_out.relink(original.source, ()).replace("\n", "")
        assert not cell.get("outputs")
    for cell in answer_cells(source).values():
        assert ".reference\n### END SOLUTION" in cell.source
    nbformat.validate(source)
    assert len({cell.id for cell in source.cells}) == len(source.cells)


def test_the_stored_notebook_is_not_changed(lesson, stored, source):
    assert stored == read(NOTEBOOKS / lesson.notebook)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("See [it](13_b.ipynb).", "See [it](../13_b/13_b.ipynb)."),
        ("The [map](00_start_here.ipynb#The-map) of [it](x.html)", "The map of [it](x.html)"),
        ("[a](13_b.ipynb#C)[d](14_e.ipynb)", "[a](../13_b/13_b.ipynb#C)d"),
        ("13_b.ipynb and [13]", "13_b.ipynb and [13]"),
    ],
)
def test_a_link_leads_to_the_folder_of_a_lesson_that_is_handed_out(text, made):
    assert hand_out.relink(text, {"13"}) == made


def test_every_link_of_handed_out_lessons_leads_to_a_file(tmp_path, monkeypatch):
    """Those of one call, and those of an earlier call; the rest of the course is named without a link."""
    monkeypatch.setattr(options, "require", lambda module, extra: None)
    monkeypatch.setattr(hand_out, "release", lambda directory, assignment: directory)
    by_slug = {lesson.slug: lesson.number for lesson in LESSONS}
    one, two = by_slug["rotary_position_embedding"], by_slug["kernelized_attention"]
    for numbers in (["00"], [one, two]):
        done = CliRunner().invoke(app, ["hand-out", str(tmp_path), *numbers, "--notebooks", str(NOTEBOOKS)])
        assert done.exit_code == 0, done.output
    targets = set()
    for path in (tmp_path / "source").glob("*_*/*.ipynb"):
        text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
        for target in re.findall(r"\]\(([^)#]*\.ipynb)", text):
            assert (path.parent / target).is_file()
            targets.add(f"{path.name[:2]} to {Path(target).name[:2]}")
    assert {f"{one} to 00", f"{one} to {two}", f"{two} to 00"} <= targets
    assert {target[-2:] for target in targets} == {"00", two}


def test_what_a_teacher_changed_is_not_overwritten(tmp_path, lesson):
    path = hand_out.write_source(tmp_path, lesson, NOTEBOOKS)
    made = path.read_bytes()
    assert hand_out.write_source(tmp_path, lesson, NOTEBOOKS) == path  # as after a stop
    assert path.read_bytes() == made
    path.write_text("changed")
    (tmp_path / hand_out.CONFIG_NAME).write_text("# changed")
    with pytest.raises(FileExistsError, match="is there already"):
        hand_out.write_source(tmp_path, lesson, NOTEBOOKS)
    other = next(one for one in LESSONS if one.number == "01")
    hand_out.write_source(tmp_path, other, NOTEBOOKS)
    assert path.read_text() == "changed"
    assert (tmp_path / hand_out.CONFIG_NAME).read_text() == "# changed"


def test_other_points_are_named_and_how_to_take_them(tmp_path):
    (lesson,) = choose_lessons(["01"], NOTEBOOKS)
    hand_out.write_source(tmp_path, lesson, NOTEBOOKS)
    with pytest.raises(FileExistsError) as raised:
        hand_out.write_source(tmp_path, lesson, NOTEBOOKS, points={"01.3": 4})
    said = str(raised.value)
    assert "is there already, with other points (01.3 gives 2 there and 4 now); to hand out" in said
    assert (
        f"remove {tmp_path / 'source' / '01_gradient_descent_stability'} and give the command again" in said
    )
    assert "nbgrader autograde 01_gradient_descent_stability --force" in said
    with pytest.raises(FileExistsError, match=r"with other points \(one of the two is with --partial\)"):
        hand_out.write_source(tmp_path, lesson, NOTEBOOKS, partial=True)


def test_lessons_are_chosen_by_number(tmp_path):
    assert [one.number for one in choose_lessons(["13", "00"], NOTEBOOKS)] == ["13", "00"]
    assert choose_lessons([], NOTEBOOKS) == list(LESSONS)
    with pytest.raises(ValueError, match="no notebook of lesson 77"):
        choose_lessons(["00", "77"], NOTEBOOKS)
    with pytest.raises(ValueError, match="no notebook of a lesson lies in"):
        choose_lessons([], tmp_path)


def test_without_nbgrader_the_command_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["hand-out", str(tmp_path / "course"), "00"])
    assert done.exit_code == 2
    assert "pip install -c constraints.txt -e '.[grading]'" in done.stderr
    assert not (tmp_path / "course").exists()


# ---------------------------------------------------------------- there and back

RIGHT = {
    "00.1": "def f1(hits, misses, false_alarms):\n    return 2 * hits / (2 * hits + misses + false_alarms)",
    "00.2": "answer = 7",
    "00.3": 'answer = {"factor": -2}',
}
WRONG = {
    "00.1": "def f1(hits, misses, false_alarms):\n    return hits / (hits + misses)",
    "00.2": "answer = 6",
    "00.3": 'answer = {"factor": 0.5}',
}
SENTENCES = (
    "That is the recall: a number that is always active has a recall of 1.",
    "0.5⁶ = 0.015625, which is still above 0.01. One more.",
    "Between 0 and 1 the sentence is right: look at negative numbers.",
)
LEARNERS = {
    "right": RIGHT,
    "wrong": WRONG,
    "empty": {},
    "partly": {**RIGHT, "00.1": "def f1(:", "00.3": "..."},
    "lost": RIGHT,
    "cut": RIGHT,
}


@pytest.fixture(scope="module")
def short_lesson(tmp_path_factory):
    """The first lesson's notebook with its exercises alone, so that it is graded in seconds."""
    folder = tmp_path_factory.mktemp("notebooks")
    notebook = read(NOTEBOOKS / f"{START}.ipynb")
    setup = nbformat.v4.new_code_cell(
        "from course_lib.lessons import start_here as lesson\n\nexercises = lesson.EXERCISES"
    )
    formula = nbformat.v4.new_markdown_cell("The share $p_i$ and\n\n$$\\frac{a}{b}. \\tag{00.9}$$")
    notebook.cells = [setup, formula, *answer_cells(notebook).values()]
    nbformat.write(notebook, folder / f"{START}.ipynb")
    return folder


@pytest.fixture(scope="module")
def course(short_lesson, tmp_path_factory):
    """A course directory in which learners handed in and nbgrader has graded."""
    course = tmp_path_factory.mktemp("course")
    done = CliRunner().invoke(app, ["hand-out", str(course), "00", "--notebooks", str(short_lesson)])
    assert done.exit_code == 0, done.output
    for learner, answers in LEARNERS.items():
        notebook = read(course / "release" / START / f"{START}.ipynb")
        for number, cell in answer_cells(notebook).items():
            check = cell.source.splitlines()[-1]
            cell.source = f"{answers[number]}\n{check}" if number in answers else cell.source
        if learner == "wrong":
            # A learner who puts something else into the cells that judge.
            for cell in notebook.cells:
                cell.source = "pass" if cell.source.endswith("point.") else cell.source
        if learner == "lost":
            gone = ("exercise_00_1", "answer_00_2", "exercise_00_2")
            marked = lambda cell: cell.metadata.get("nbgrader", {}).get("grade_id")  # noqa: E731
            notebook.cells = [cell for cell in notebook.cells if marked(cell) not in gone]
        path = course / "submitted" / learner / START / f"{START}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
        if learner == "cut":
            path.write_text(path.read_text(encoding="utf-8")[:2000], encoding="utf-8")
    (course / "autograde.log").write_text(hand_out.nbgrader(course, "autograde", START), encoding="utf-8")
    hand_out.nbgrader(course, "generate_feedback", START)
    hand_out.nbgrader(course, "export", "--to", "grades.csv")
    return course


@needs_nbgrader
def test_the_learners_copy_holds_no_solution_and_no_judging(course):
    released = (course / "release" / START / f"{START}.ipynb").read_text(encoding="utf-8")
    for absent in ("reference", "judge(", "SOLUTION", "HIDDEN"):
        assert absent not in released
    stored = answer_cells(read(NOTEBOOKS / f"{START}.ipynb"))
    handed = answer_cells(read(course / "release" / START / f"{START}.ipynb"))
    for number, cell in stored.items():
        assert handed[number].source.replace("\n", "") == cell.source.replace("\n", "")


@needs_nbgrader
def test_points_are_full_none_none_and_in_part(course):
    with (course / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = {
            row["student_id"]: (float(row["raw_score"]), float(row["max_score"]))
            for row in csv.DictReader(file)
        }
    assert rows == {
        "right": (3, 3), "wrong": (0, 3), "empty": (0, 3), "partly": (1, 3), "lost": (2, 3), "cut": (0, 3)
    }  # fmt: skip


@needs_nbgrader
def test_the_export_has_the_points_of_each_exercise_and_what_could_not_be_read(course):
    text = (course / "grades.csv").read_text(encoding="utf-8")
    head = next(csv.reader(text.splitlines()))
    theirs = (
        "assignment,duedate,timestamp,student_id,last_name,first_name,email,raw_score,late_submission_penalty,"
        "score,max_score"
    )
    titles = [f"{one.id} {one.title}" for one in exercises_of("00").values()]
    assert head == [*theirs.split(","), *titles, "not_read"]
    rows = {row["student_id"]: row for row in csv.DictReader(text.splitlines())}
    points = {learner: [float(row[one]) for one in titles] for learner, row in rows.items()}
    assert points == {
        "right": [1, 1, 1], "wrong": [0, 0, 0], "empty": [0, 0, 0], "partly": [0, 1, 0], "lost": [1, 0, 1],
        "cut": [0, 0, 0],
    }  # fmt: skip
    unread = {learner: row["not_read"] for learner, row in rows.items() if row["not_read"]}
    assert unread.keys() == {"lost", "cut"}
    assert unread["lost"] == "could not be read: there is no answer cell of 00.2"
    assert re.fullmatch(
        r"could not be read: it is not the JSON of a notebook from line \d+ on", unread["cut"]
    )


@needs_nbgrader
def test_the_feedback_holds_the_sentence_of_each_mistake(course):
    pages = {
        learner: (course / "feedback" / learner / START / f"{START}.html").read_text(encoding="utf-8")
        for learner in LEARNERS
    }
    for sentence in SENTENCES:
        # From the judge, and not from the learner's own check as well.
        assert pages["wrong"].count(sentence) == 1
        assert sentence not in pages["right"] + pages["empty"]
    assert "Exercise 00.1: not attempted yet." in pages["empty"]
    for learner, page in pages.items():
        assert [one for one in ("HIDDEN", "judge(", "taken(") if one in page] == []
        # A cell that judges does not say where it stopped; an answer cell that fails does.
        assert page.count("stopped at line") == (learner == "partly")
    assert "SyntaxError" in pages["partly"]
    assert "Exercise 00.1: not attempted yet." in pages["partly"]
    assert "Exercise 00.2 could not be read: there is no answer cell of it." in pages["lost"]
    assert (
        f"The file {START}.ipynb could not be read: it is not the JSON of a notebook from line"
        in pages["cut"]
    )
    index, _, _ = pages["wrong"].partition('id="notebook"')
    for exercise in exercises_of("00").values():
        assert f"Exercise {exercise.id} {exercise.title}</a> (Score: 0.0 / 1.0)" in index
    assert "Test cell" not in index


@needs_nbgrader
def test_only_cells_that_a_learner_changed_give_a_warning(course):
    log = (course / "autograde.log").read_text(encoding="utf-8")
    found = re.findall(r"Attribute '(\w+)' for cell (\w+) has changed!", log)
    assert found == [("checksum", f"exercise_00_{place}") for place in (1, 2, 3)]
    _, _, of_wrong = log.partition("student with ID 'wrong'")
    assert of_wrong.count("has changed!") == 3


@needs_nbgrader
def test_formulas_of_the_feedback_need_no_network(course, browser):  # noqa: F811
    page = browser.new_page()
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto((course / "feedback" / "right" / START / f"{START}.html").as_uri())
    page.wait_for_function("() => document.querySelectorAll('mjx-container svg').length >= 2")
    assert page.locator("mjx-merror").count() == 0
    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


@needs_nbgrader
def test_set_points_and_shares_are_what_nbgrader_gives(short_lesson, tmp_path):
    course = tmp_path / "course"
    points = tmp_path / "points.toml"
    points.write_text('"00.1" = 6\n"00.3" = 0\n')
    partly = "def f1(h, m, f):\n    return 2 * h / (2 * h + m + f) if h > 5 else 0.0"
    command = ["hand-out", str(course), "00", "--notebooks", str(short_lesson), "--points", str(points)]
    done = CliRunner().invoke(app, [*command, "--partial"])
    assert done.exit_code == 0, done.output
    notebook = read(course / "release" / START / f"{START}.ipynb")
    for number, cell in answer_cells(notebook).items():
        answer = (RIGHT | {"00.1": partly})[number]
        cell.source = f"{answer}\n{cell.source.splitlines()[-1]}"
    path = course / "submitted" / "ana" / START / f"{START}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    hand_out.nbgrader(course, "autograde", START)
    hand_out.nbgrader(course, "export", "--to", "grades.csv")
    with (course / "grades.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    right, total = exercises_of("00")["00.1"].count_right(
        lambda h, m, f: 2 * h / (2 * h + m + f) if h > 5 else 0.0, generator=torch.Generator().manual_seed(0)
    )
    assert total / 2 < right < total
    share = round(6 * (2 * right / total - 1), 2)
    assert (float(row["raw_score"]), float(row["max_score"])) == (share + 1, 6 + 1)
