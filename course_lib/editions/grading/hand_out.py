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
import math
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Collection, Mapping
from contextlib import redirect_stderr
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import torch

from course_lib.editions.grading.feedback import number_of
from course_lib.files import replacing
from course_lib.lessons import exercises_of
from course_lib.lessons.catalog import LESSONS, Lesson
from course_lib.teaching.exercise import Exercise, Verdict, fresh_generator

# A link to a lesson, whose notebook lies beside this one in the course and has a folder of its own when handed out.
LINK = re.compile(r"\[([^\[\]]*)\]\(((\d\d)_\w+)\.ipynb(#[^)\s]*)?\)")

CONFIG_NAME = "nbgrader_config.py"
CONFIG = """c = get_config()
# Where a solution stood, the learner's notebook has an empty line.
c.ClearSolutions.code_stub = {"python": ""}
# Seconds for one cell; lessons measure their claims again when they are graded.
c.Execute.timeout = 900

# The feedback names its exercises, and its formulas need no network; what learners did not change gives no warning.
from course_lib.editions.grading.feedback import configure

configure(c)
"""


class NotSolvedError(Exception):
    """An answer that gets no points; its text is what the learner reads."""

    says_all = True  # for `course_lib.stopped`

    def _render_traceback_(self) -> list[str]:
        """The text alone, for IPython: the learner did not write the lines above it."""
        return [str(self)]


def judge(number: str, answer: Any, *, share_of: float | None = None) -> float | None:
    """Judge an answer to the exercise of that number; nbgrader gives its points if nothing is raised.

    Where `share_of` is the points of the exercise, an answer that is not right, but is so in more than half of its
    results, gets a share of them: it is returned, which nbgrader takes for partial credit.

    Raises:
        NotSolvedError: the answer gets no points, with the sentence that says why.
    """
    exercise = _exercise(number)
    # nbgrader gives no points to a cell that writes to stderr, and a right answer may warn or log.
    with redirect_stderr(io.StringIO()):
        verdict = exercise.grade(answer, generator=fresh_generator())
        message = f"Exercise {number}: {verdict.message}"
        if verdict.status == "solved":
            print(message)
            return None
        share, reason = (0.0, "") if share_of is None else partly_right(exercise, answer, verdict)
    if share <= 0:
        raise NotSolvedError(message)
    points = round(share_of * share, 2)
    print(message)
    print(f"{reason}: {points:g} of {share_of:g} points.")
    return points


def partly_right(exercise: Exercise, answer: Any, verdict: Verdict) -> tuple[float, str]:
    """Return the share of the points that an answer gets which is not solved, and the reason in words.

    Only what goes beyond one half counts, from 0 there to 1: a guess, a constant, or a formula for the easy inputs is
    right about as often. To keep to what the prompt forbids is the other half of an answer that is right.
    """
    if verdict.status == "not attempted":
        return 0.0, ""
    if verdict.mistake in exercise.forbids:
        return 0.5, "Right, but not in the way that is asked for"
    # On the same inputs for all, so that equal answers get equal points.
    right, total = exercise.count_right(answer, generator=torch.Generator().manual_seed(0))
    # It may be right on all of these inputs and wrong on others.
    right = min(right, total - 1)
    results = "inputs that are tested" if exercise.kind == "function" else "numbers"
    return 2 * right / total - 1, f"Right for {right} of {total} {results}"


# The values that were judged in this kernel, by the numbers of their exercises.
_taken: dict[str, Any] = {}


def taken(number: str, name: str, names: dict[str, Any]) -> Any:
    """Take an answer out of the names of a notebook, and keep it for a judging cell that is run again.

    Values have the same name in all exercises: one that stayed would be judged where the next answer cell fails.
    """
    if name in names:
        _taken[number] = names.pop(name)
    return _taken.get(number, ...)


def _exercise(number: str) -> Exercise:
    return exercises_of(number.partition(".")[0])[number]


def read_points(path: Path) -> dict[str, float]:
    """Return the points of exercises by number, from a file of TOML with a line `"01.3" = 4` for each.

    Raises:
        ValueError: the file is no TOML, names an exercise that is not there, or gives points that are no number from 0 on.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f'{path} cannot be read ({error}); expected TOML with lines like "01.3" = 4'
        ) from error
    # Without quotation marks, TOML takes `01.3` for the entry 3 of a table 01.
    points = {}
    for key, value in found.items():
        points |= (
            {f"{key}.{rest}": one for rest, one in value.items()} if isinstance(value, dict) else {key: value}
        )
    for number, value in points.items():
        if number not in exercises_of(number.partition(".")[0]):
            raise ValueError(
                f'{path} has points for {number!r}; expected numbers of exercises, such as "01.3"'
            )
        if type(value) not in (int, float) or not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{path} has {value!r} points for {number}; expected a number, 0 or more")
    return points


def source_notebook(
    notebook: nbformat.NotebookNode,
    handed: Collection[str] = (),
    *,
    points: Mapping[str, float] | None = None,
    partial: bool = False,
) -> nbformat.NotebookNode:
    """Return a lesson as nbgrader's source: each answer cell holds the reference between its marks, and is judged below.

    An exercise gives its `points` by number, or as many as it has stars; if `partial`, an answer with some of the tested
    properties gets a share of them. `handed` are the numbers of the lessons that learners get: links to these lead to
    their folders, and other lessons are named without a link.
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
            made.cells.append(_graded(cell, points or {}, partial=partial))
    return made


def relink(text: str, handed: Collection[str]) -> str:
    """Return Markdown whose links to lessons hold in a handed-out folder; those to lessons not in `handed` are text."""

    def link(found: re.Match[str]) -> str:
        words, name, number, anchor = found.groups(default="")
        return f"[{words}](../{name}/{name}.ipynb{anchor})" if number in handed else words

    return LINK.sub(link, text)


def _graded(
    cell: nbformat.NotebookNode, given: Mapping[str, float], *, partial: bool
) -> nbformat.NotebookNode:
    """Put the reference into an answer cell, and return the cell that judges it."""
    number = cell.metadata.exercise
    body, check = cell.source.rsplit("\n", 1)
    name = re.search(r"\.check\((\w+)\)", check)[1]
    solution = f'{name} = exercises["{number}"].reference'
    cell.source = f"{body.rstrip()}\n\n### BEGIN SOLUTION\n{solution}\n### END SOLUTION\n{check}"
    identity = number.replace(".", "_")
    cell.metadata.nbgrader = _marks(f"answer_{identity}", solution=True)
    points = given.get(number, _exercise(number).difficulty)
    share = f", share_of={points}" if partial else ""
    function = _exercise(number).kind == "function"
    given_answer = f'globals().get("{name}", ...)' if function else f'taken("{number}", "{name}", globals())'
    needed = "judge" if function else "judge, taken"
    judging = nbformat.v4.new_code_cell(
        f"# Exercise {number} is graded here, for {points:g} point{'' if points == 1 else 's'}.\n"
        "### BEGIN HIDDEN TESTS\n"
        f"from course_lib.editions.grading.hand_out import {needed}\n\n"
        f'judge("{number}", {given_answer}{share})\n'
        "### END HIDDEN TESTS",
        id=f"judge-{identity}",
    )
    judging.metadata.nbgrader = _marks(f"exercise_{identity}", grade=True, locked=True, points=points)
    return judging


def _marks(identity: str, **marks: Any) -> dict[str, Any]:
    """What nbgrader's schema 3 asks for of a cell."""
    plain = {"grade": False, "locked": False, "solution": False, "task": False}
    return plain | {"grade_id": identity, "schema_version": 3} | marks


def write_source(
    directory: Path,
    lesson: Lesson,
    notebooks: Path,
    handed: Collection[str] = (),
    *,
    points: Mapping[str, float] | None = None,
    partial: bool = False,
) -> Path:
    """Write a lesson to source/NN_slug/NN_slug.ipynb of a course directory, and its configuration; return the path.

    `handed` are the numbers of the lessons that are handed out with it; those in the directory count as well. `points`
    and `partial` are those of `source_notebook`.

    Raises:
        FileExistsError: the lesson lies there already as another; what a teacher changed in it is not overwritten.
    """
    path = directory / "source" / Path(lesson.notebook).stem / lesson.notebook
    there = {one.number for one in LESSONS if one.is_open(directory / "source" / Path(one.notebook).stem)}
    notebook = nbformat.read(notebooks / lesson.notebook, as_version=4)
    made = source_notebook(notebook, {lesson.number, *handed, *there}, points=points, partial=partial)
    source = nbformat.writes(made) + "\n"
    # The same one is there where the command was stopped and is given again.
    if path.exists() and (old := path.read_text(encoding="utf-8")) != source:
        raise FileExistsError(
            f"{path} is there already{_other_points(old, made)}; to hand out the lesson afresh remove "
            f"{path.parent} and give the command again. Answers that were graded before are graded again by "
            f"nbgrader autograde {path.stem} --force"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (directory / CONFIG_NAME).exists():
        _write(directory / CONFIG_NAME, CONFIG)
    _write(path, source)
    return path


def _other_points(there: str, made: nbformat.NotebookNode) -> str:
    """Say by which points a notebook that was handed out differs from one that is made now, if by any."""
    try:
        old, new = _points(nbformat.reads(there, as_version=4)), _points(made)
    except ValueError:
        return ""
    given = [
        f"{number} gives {old[number]:g} there and {new[number]:g} now"
        for number in new
        if number in old and old[number] != new[number]
    ]
    shares = {"share_of=" in text for text in (there, nbformat.writes(made))}
    given += ["one of the two is with --partial"] if len(shares) == 2 else []
    return f", with other points ({'; '.join(given)})" if given else ""


def _points(notebook: nbformat.NotebookNode) -> dict[str, float]:
    marks = [cell.metadata.get("nbgrader", {}) for cell in notebook.cells]
    return {number_of(one["grade_id"]): one["points"] for one in marks if one.get("grade")}


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
