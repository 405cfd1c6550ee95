"""Run notebooks from top to bottom and store them as they ran: `python -m tests.notebooks [01 15 ...]`.

With `--statements` nothing is run: only the statements of their exercises are written anew.
"""

import argparse
from pathlib import Path

import nbformat

from course_lib.editions.budget import budget
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from tests.notebooks.store import store

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

parser = argparse.ArgumentParser(prog="python -m tests.notebooks", description=__doc__.partition("\n")[0])
parser.add_argument("lessons", nargs="*", metavar="LESSON", help="numbers of lessons; all without any")
parser.add_argument("--statements", action="store_true", help="run nothing, write the exercises' statements")
given = parser.parse_args()
for lesson in LESSONS:
    path = NOTEBOOKS / lesson.notebook
    if not given.lessons or lesson.number in given.lessons:
        contents = contents_of(lesson)
        store(path, contents.exercises, runs=not given.statements)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
        notebook = nbformat.read(path, as_version=4)
        if notebook.metadata.course.get("edition") == 3:
            spent = budget(notebook, contents.exercises, len(contents.sentences))
            print(
                "\n".join(
                    [f"  {spent.line()}", f"  {spent}", *(f"  OVER: {row}" for row in spent.overdrawn())]
                )
            )
