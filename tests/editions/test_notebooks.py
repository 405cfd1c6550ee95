"""What a lesson's metadata state is what its page says, and a notebook without them is refused."""

import re
from pathlib import Path

import nbformat
import pytest

from course_lib.editions import notebooks
from course_lib.lessons.catalog import LESSONS

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture(params=LESSONS, ids=lambda lesson: lesson.number)
def lesson(request):
    return request.param


@pytest.fixture
def notebook(lesson):
    return notebooks.read(NOTEBOOKS / lesson.notebook)


def test_goal_background_and_minutes_are_those_of_the_first_cell(lesson, notebook):
    about, first = notebook.metadata.course, notebook.cells[0].source
    said = dict(re.findall(r"^\*\*(\w+)\.\*\* (.+)$", first, re.MULTILINE))
    assert said.keys() == {"Goal", "Prerequisites", "Time"}
    assert (said["Goal"], said["Prerequisites"]) == (about.goal, about.background)
    # The lesson's minutes come first, then those of what is optional; "33.5" is an exercise.
    minutes = [int(number) for number in re.findall(r"(?<![\w.])\d+(?!\.?\d)", said["Time"])]
    assert about.minutes == minutes[0]
    assert about.optional_minutes == (minutes[1] if "optional" in said["Time"] else 0)


def test_the_question_is_asked_on_the_page(lesson, notebook):
    question = notebook.metadata.course.question
    assert re.fullmatch(r"[A-Z].+\?", question)
    # The lesson on the course itself asks nothing; a page of the third edition asks in its own words.
    if lesson.part and notebook.metadata.course.get("edition", 2) < 3:
        assert question[1:] in notebooks.section(notebook, "The question")


def test_what_is_shown_to_be_wrong_is_listed(notebook):
    shown = re.findall(
        r"^\*\*\d+\. (.+?)\*\*", notebooks.section(notebook, "What the notes say wrongly"), re.MULTILINE
    )
    assert notebook.metadata.course.mistakes == shown


def test_an_unfinished_notebook_is_refused(tmp_path):
    lesson = LESSONS[0]
    notebook = notebooks.read(NOTEBOOKS / lesson.notebook)
    with pytest.raises(FileNotFoundError, match="the notebook of every lesson is needed"):
        notebooks.read(tmp_path / lesson.notebook)
    for name in notebooks.FIELDS:
        kept = notebook.metadata.course.pop(name)
        nbformat.write(notebook, tmp_path / lesson.notebook)
        with pytest.raises(ValueError, match=rf"must have course\.{name}, and have none"):
            notebooks.read(tmp_path / lesson.notebook)
        notebook.metadata.course[name] = kept
