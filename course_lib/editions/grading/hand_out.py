"""Lessons as assignments of nbgrader: learners get notebooks without solutions, and exercises are judged by behaviour.

nbgrader was taken, and not otter-grader, for three reasons. Its unit is what a lesson has already, an answer cell and
the cell below it that judges, with points of its own. What a learner gets needs no further package, and nothing of the
grading stands in it: nbgrader puts its own copy of each judging cell back before it runs them. And its feedback is the
learner's notebook with the sentence about the mistake below the answer. Both install beside the versions of
constraints.txt (nbgrader 0.9.6, otter-grader 7.0.0).

Two limits. The reference solutions are part of `course_lib`, which learners have. And as in any notebook grader, a
learner's code runs in the process that judges it, so that who wants to can fool it; grade where such code may run.
"""

import io
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Sequence
from contextlib import redirect_stderr
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat

from course_lib.files import replacing
from course_lib.lessons import exercises_of
from course_lib.lessons.catalog import LESSONS, Lesson
from course_lib.teaching.exercise import Exercise, fresh_generator

# A link to a lesson, whose notebook lies beside this one in the course and has a folder of its own when handed out.
LINK = re.compile(r"\[([^\[\]]*)\]\(((\d\d)_\w+)\.ipynb(#[^)\s]*)?\)")

CONFIG_NAME = "nbgrader_config.py"
CONFIG = """c = get_config()
# Where a solution stood, the learner's notebook has an empty line.
c.ClearSolutions.code_stub = {"python": ""}
# Seconds for one cell; lessons measure their claims again when they are graded.
c.Execute.timeout = 900
"""


class NotSolvedError(Exception):
    """An answer that gets no points; its text is what the learner reads."""

    def _render_traceback_(self) -> list[str]:
        """The text alone, for IPython: the learner did not write the lines above it."""
        return [str(self)]


def judge(number: str, answer: Any) -> None:
    """Judge an answer to the exercise of that number; nbgrader gives its points if nothing is raised.

    Raises:
        NotSolvedError: the answer is not right, with the sentence that says why.
    """
    # nbgrader gives no points to a cell that writes to stderr, and a right answer may warn or log.
    with redirect_stderr(io.StringIO()):
        verdict = _exercise(number).grade(answer, generator=fresh_generator())
    message = f"Exercise {number}: {verdict.message}"
    if verdict.status != "solved":
        raise NotSolvedError(message)
    print(message)


def _exercise(number: str) -> Exercise:
    return exercises_of(number.partition(".")[0])[number]


def source_notebook(notebook: nbformat.NotebookNode, handed: Collection[str] = ()) -> nbformat.NotebookNode:
    """Return a lesson as nbgrader's source: each answer cell holds the reference between its marks, and is judged below.

    An exercise gives as many points as it has stars. `handed` are the numbers of the lessons that learners get: links
    to these lead to their folders, and other lessons are named without a link.
    """
    made = deepcopy(notebook)
    made.metadata.pop("widgets", None)
    cells, made.cells = made.cells, []
    for cell in cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        elif cell.cell_type == "markdown":
            cell.source = relink(cell.source, handed)
        made.cells.append(cell)
        if "exercise" in cell.metadata:
            made.cells.append(_graded(cell))
    return made


def relink(text: str, handed: Collection[str]) -> str:
    """Return Markdown whose links to lessons hold in a handed-out folder; those to lessons not in `handed` are text."""

    def link(found: re.Match[str]) -> str:
        words, name, number, anchor = found.groups(default="")
        return f"[{words}](../{name}/{name}.ipynb{anchor})" if number in handed else words

    return LINK.sub(link, text)


def _graded(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Put the reference into an answer cell, and return the cell that judges it."""
    number = cell.metadata.exercise
    body, check = cell.source.rsplit("\n", 1)
    name = re.search(r"\.check\((\w+)\)", check)[1]
    solution = f'{name} = exercises["{number}"].reference'
    cell.source = f"{body.rstrip()}\n\n### BEGIN SOLUTION\n{solution}\n### END SOLUTION\n{check}"
    identity = number.replace(".", "_")
    cell.metadata.nbgrader = _marks(f"answer_{identity}", solution=True)
    points = _exercise(number).difficulty
    judging = nbformat.v4.new_code_cell(
        f"# Exercise {number} is graded here, for {points} point{'s' if points > 1 else ''}.\n"
        "### BEGIN HIDDEN TESTS\n"
        "from course_lib.editions.grading.hand_out import judge\n\n"
        f'judge("{number}", {name})\n'
        "### END HIDDEN TESTS",
        id=f"judge-{identity}",
    )
    judging.metadata.nbgrader = _marks(f"exercise_{identity}", grade=True, locked=True, points=points)
    return judging


def _marks(identity: str, **marks: Any) -> dict[str, Any]:
    """What nbgrader's schema 3 asks for of a cell."""
    plain = {"grade": False, "locked": False, "solution": False, "task": False}
    return plain | {"grade_id": identity, "schema_version": 3} | marks


def choose_lessons(numbers: Sequence[str], notebooks: Path) -> list[Lesson]:
    """Return the lessons of these numbers, or all, whose notebooks lie in a folder.

    Raises:
        ValueError: a number is not that of a lesson, or there is no notebook of it.
    """
    by_number = {lesson.number: lesson for lesson in LESSONS if lesson.is_open(notebooks)}
    if unknown := [number for number in numbers if number not in by_number]:
        raise ValueError(
            f"no notebook of lesson {unknown[0]} lies in {notebooks}; there are {list(by_number)}"
        )
    if not by_number:
        raise ValueError(f"no notebook of a lesson lies in {notebooks}; name the folder by --notebooks")
    return [by_number[number] for number in numbers] or list(by_number.values())


def write_source(directory: Path, lesson: Lesson, notebooks: Path, handed: Collection[str] = ()) -> Path:
    """Write a lesson to source/NN_slug/NN_slug.ipynb of a course directory, and its configuration; return the path.

    `handed` are the numbers of the lessons that are handed out with it; those in the directory count as well.

    Raises:
        FileExistsError: the lesson lies there already as another; what a teacher changed in it is not overwritten.
    """
    path = directory / "source" / Path(lesson.notebook).stem / lesson.notebook
    there = {one.number for one in LESSONS if one.is_open(directory / "source" / Path(one.notebook).stem)}
    notebook = nbformat.read(notebooks / lesson.notebook, as_version=4)
    source = nbformat.writes(source_notebook(notebook, {lesson.number, *handed, *there})) + "\n"
    # The same one is there where the command was stopped and is given again.
    if path.exists() and path.read_text(encoding="utf-8") != source:
        raise FileExistsError(f"{path} is there already; remove it to hand out the lesson afresh")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (directory / CONFIG_NAME).exists():
        _write(directory / CONFIG_NAME, CONFIG)
    _write(path, source)
    return path


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def nbgrader(directory: Path, *arguments: str) -> str:
    """Run a command of nbgrader in a course directory, as a teacher would in a terminal; return what it printed.

    Raises:
        RuntimeError: the command fails, with what it printed.
    """
    # It starts a program of its own by name, which lies beside this Python.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"nbgrader {' '.join(arguments)} failed:\n{run.stdout}")
    return run.stdout


def release(directory: Path, assignment: str) -> Path:
    """Let nbgrader make the learners' notebook of an assignment, release/NN_slug/, and return that folder."""
    # Without it nbgrader leaves a folder alone that it was stopped in.
    nbgrader(directory, "generate_assignment", assignment, "--force")
    return directory / "release" / assignment
