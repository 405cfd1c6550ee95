"""A pytest plugin for `--nbval`: after each answer cell comes the reference solution, in the same kernel.

So one run shows both learners: the one who answers nothing ("not attempted yet.", as the notebook is stored) and
the one who answers everything ("solved."), and every later cell must still print what is stored.
"""

import importlib
from functools import cache

import nbformat
from nbval.plugin import IPyNbCell

from course_lib.editions.teacher.solved import solved
from tests.notebooks.order import rank


def solution_cell(answer_cell, source: str):
    """Return the cell that gives the reference as the answer, with what it must print."""
    text = f"Exercise {answer_cell.metadata.exercise}: solved.\n"
    printed = nbformat.v4.new_output("stream", name="stdout", text=text)
    return nbformat.v4.new_code_cell(source, outputs=[printed], execution_count=answer_cell.execution_count)


@cache
def sources(path, slug: str) -> dict[str, str]:
    """Return the source of each answer cell of a notebook with its solution, by the exercise's number."""
    exercises = importlib.import_module(f"course_lib.lessons.{slug}").EXERCISES
    cells = solved(nbformat.read(path, as_version=4), exercises).cells
    return {cell.metadata.exercise: cell.source for cell in cells if "exercise" in cell.metadata}


def pytest_collection_modifyitems(items):
    """Put a test of the solution behind the test of each answer cell, and the longest notebooks first."""
    items.sort(key=lambda item: rank(item.path))
    for item in list(items):
        if isinstance(item, IPyNbCell) and "exercise" in item.cell.metadata:
            number = item.cell.metadata.exercise
            source = sources(item.path, item.parent.nb.metadata.course.slug)[number]
            filled = IPyNbCell.from_parent(
                item.parent,
                name=f"{item.name}, exercise {number} solved",
                cell_num=item.cell_num,
                cell=solution_cell(item.cell, source),
                options=item.options,
            )
            items.insert(items.index(item) + 1, filled)
