"""Reading the lessons' notebooks: what their metadata state, and what their cells and outputs are."""

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

# What `metadata.course` of a lesson's notebook holds: number and slug of the lesson, its goal in one sentence, the
# question that it asks, what it needs as numbers of lessons and in words, the minutes that it takes and that its
# optional sections take on top, and what it shows to be wrong, as titles.
FIELDS = (
    *("number", "slug", "goal", "question", "prerequisites", "background"),
    *("minutes", "optional_minutes", "mistakes"),
)
# What the course's kit displays for a prediction and an explorer without a kernel.
PREDICTION = re.compile(r"\*\*Prediction (\d\d\.P\d+)\.\*\*")
STRIP = "<details><summary>For reading without a kernel"
FOLDED_QUIZ = f"{STRIP}: the sentences"
WIDGET = "application/vnd.jupyter.widget-view+json"
# The last line of an exercise's statement, on how to get hints.
STUCK = re.compile(r"\n\nStuck\? Run [^\n]*$")
# The explorers that a code cell makes.
EXPLORER = re.compile(r"\blesson\.(\w+)\(")


def read(path: Path) -> NotebookNode:
    """Read the stored notebook of a lesson.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: its metadata lack something.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: the notebook of every lesson is needed")
    notebook = nbformat.read(path, as_version=4)
    if missing := [name for name in FIELDS if name not in notebook.metadata.get("course", {})]:
        raise ValueError(f"the metadata of {path} must have course.{missing[0]}, and have none")
    return notebook


def third_edition(notebook: NotebookNode) -> bool:
    """Whether a lesson names in its cells' metadata what answers a prediction, and has a quiz and a budget."""
    return notebook.metadata.get("course", {}).get("edition") == 3


def answers(cell: NotebookNode) -> str | None:
    """Return the number of the prediction that a cell answers, None for other cells."""
    return cell.metadata.get("course", {}).get("answers")


def states(cell: NotebookNode) -> str | None:
    """Return the number of the exercise that a Markdown cell states, None for other cells."""
    return cell.metadata.get("course", {}).get("states")


def statement(cell: NotebookNode) -> str:
    """Return what a cell states of an exercise, without its line on hints in JupyterLab."""
    return STUCK.sub("", cell.source)


def section(notebook: NotebookNode, title: str) -> str:
    """Return the Markdown of the section whose heading begins with `title`, empty where there is none."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    found = re.search(rf"^## {re.escape(title)}[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def printed(*cells: NotebookNode) -> str:
    """Return all that cells of a stored notebook printed."""
    outputs = [out for cell in cells if cell.cell_type == "code" for out in cell.outputs]
    return "\n".join(out.text for out in outputs if out.output_type == "stream")
