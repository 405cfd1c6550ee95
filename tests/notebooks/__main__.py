"""Run notebooks from top to bottom and store them as they ran: `python -m tests.notebooks [01 15 ...]`."""

import sys
from pathlib import Path

import nbformat

from course_lib.editions.budget import budget
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from tests.notebooks.store import store

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

for path in sorted(NOTEBOOKS.glob("*.ipynb")):
    if len(sys.argv) == 1 or path.name.split("_")[0] in sys.argv[1:]:
        store(path)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
        notebook = nbformat.read(path, as_version=4)
        if notebook.metadata.course.get("edition") == 3:
            (lesson,) = (one for one in LESSONS if one.notebook == path.name)
            contents = contents_of(lesson)
            spent = budget(notebook, contents.exercises, len(contents.sentences))
            print(
                "\n".join(
                    [f"  {spent.line()}", f"  {spent}", *(f"  OVER: {row}" for row in spent.overdrawn())]
                )
            )
