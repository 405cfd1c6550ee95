"""A learner who answers everything: with the reference solutions inserted, the notebook passes."""

import os
import re
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests import HANG_S

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def run(notebook, folder):
    client = NotebookClient(
        notebook, timeout=HANG_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ})
    return notebook


def answered(notebook, slug):
    """Put the reference solution of each exercise into its answer cell."""
    for cell in notebook.cells:
        if (number := cell.metadata.get("exercise")) is None:
            continue
        *_, check = cell.source.splitlines()
        name = re.search(r"\.check\((\w+)\)", check).group(1)
        cell.source = (
            f"from course_lib.lessons.{slug} import EXERCISES as _references\n"
            f'{name} = _references["{number}"].reference\n{check}'
        )
    return notebook


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_reference_solutions_make_the_notebook_pass(path):
    notebook = nbformat.read(path, as_version=4)
    slug = notebook.metadata.course.slug
    done = run(answered(notebook, slug), NOTEBOOKS)
    said = {
        cell.metadata.exercise: "".join(output.text for output in cell.outputs)
        for cell in done.cells
        if "exercise" in cell.metadata
    }
    numbers = list(import_module(f"course_lib.lessons.{slug}").EXERCISES)
    assert said == {number: f"Exercise {number}: solved.\n" for number in numbers}
