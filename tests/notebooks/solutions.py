"""A pytest plugin for `--nbval`: after each answer cell comes the reference solution, in the same kernel.

So one run shows both learners: the one who answers nothing ("not attempted yet.", as the notebook is stored) and
the one who answers everything ("solved."), and every later cell must still print what is stored.
"""

import re

import nbformat
from nbval.plugin import IPyNbCell

from tests.notebooks.order import rank


def solution_cell(answer_cell, slug: str):
    """Return the cell that gives the reference as the answer, with what it must print."""
    number = answer_cell.metadata.exercise
    check = answer_cell.source.splitlines()[-1]
    name = re.search(r"\.check\((\w+)\)", check).group(1)
    source = (
        f"from course_lib.lessons.{slug} import EXERCISES as _references\n"
        f'{name} = _references["{number}"].reference\n{check}'
    )
    printed = nbformat.v4.new_output("stream", name="stdout", text=f"Exercise {number}: solved.\n")
    return nbformat.v4.new_code_cell(source, outputs=[printed], execution_count=answer_cell.execution_count)


def pytest_collection_modifyitems(items):
    """Put a test of the solution behind the test of each answer cell, and the longest notebooks first."""
    items.sort(key=lambda item: rank(item.path))
    for item in list(items):
        if isinstance(item, IPyNbCell) and "exercise" in item.cell.metadata:
            solved = IPyNbCell.from_parent(
                item.parent,
                name=f"{item.name}, exercise {item.cell.metadata.exercise} solved",
                cell_num=item.cell_num,
                cell=solution_cell(item.cell, item.parent.nb.metadata.course.slug),
                options=item.options,
            )
            items.insert(items.index(item) + 1, solved)
