"""A lesson's notebook with the reference solutions in the answer cells, and run."""

import ast
import copy
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from nbformat import NotebookNode

from course_lib.editions.notebooks import printed
from course_lib.teaching import Exercise
from course_lib.teaching.exercise import source_of

CHECK = re.compile(r"\.check\((\w+)\)")
WIDGETS = "application/vnd.jupyter.widget-state+json"


def answer_source(exercise: Exercise, source: str, bound: Mapping[str, ast.stmt] | None = None) -> str:
    """Return the source of an answer cell, which ends with the check, with the reference as the answer.

    `bound` holds the import statements of the cells before, by the names that they bind. What a function needs besides
    is imported above it, and inside it where the notebook has another thing of that name.
    """
    check = source.splitlines()[-1]
    name = CHECK.search(check)[1]
    if not callable(exercise.reference):
        return f"{name} = {exercise.reference!r}\n{check}"
    reference, bound = inspect.unwrap(exercise.reference), bound or {}
    text = source_of(reference).rstrip()
    written = ast.parse(text).body[0]
    first = written.body[1 if ast.get_docstring(written) else 0].lineno - 1
    lines = text.splitlines()
    above = []
    for needed in sorted(find_needed_names(reference)):
        if needed not in bound:
            above.append(_import(needed, reference))
        elif _bound(needed, bound[needed]) is not reference.__globals__[needed]:
            lines.insert(first, f"    {_import(needed, reference)}")
    if above:
        lines = [*above, "", "", *lines]
    if reference.__name__ != name:
        lines += ["", "", f"{name} = {reference.__name__}"]
    return "\n".join([*lines, "", "", check])


def find_needed_names(function: Callable) -> set[str]:
    """Return the names in the source of a function that its module gives."""
    written = {node.id for node in ast.walk(ast.parse(source_of(function))) if isinstance(node, ast.Name)}
    return written & _global_names(function.__code__) & set(function.__globals__)


def _global_names(code: CodeType) -> set[str]:
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(_global_names, inner))


def _import(name: str, function: Callable) -> str:
    thing = function.__globals__[name]
    if isinstance(thing, ModuleType):
        return f"import {thing.__name__}" + ("" if thing.__name__ == name else f" as {name}")
    home = getattr(thing, "__module__", None)
    public = home in sys.modules and getattr(sys.modules[home], name, None) is thing
    return f"from {home if public else function.__module__} import {name}"


def read_imports(source: str) -> dict[str, ast.stmt]:
    """Return the import statements of a cell by the names that they bind."""
    return {
        alias.asname or alias.name.partition(".")[0]: node
        for node in ast.parse(source).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _bound(name: str, statement: ast.stmt) -> Any:
    scope: dict[str, Any] = {}
    exec(compile(ast.Module([statement], []), "<import>", "exec"), scope)
    return scope[name]


def solved(notebook: NotebookNode, exercises: dict[str, Exercise]) -> NotebookNode:
    """Return a copy of a stored notebook with every answer cell filled in; nothing is run."""
    filled, bound = copy.deepcopy(notebook), {}
    for cell in filled.cells:
        if cell.cell_type == "code":
            if "exercise" in cell.metadata:
                cell.source = answer_source(exercises[cell.metadata.exercise], cell.source, bound)
            bound |= read_imports(cell.source)
    return filled


def run(notebook: NotebookNode, folder: Path, *, progress: Path | None = None, go_on: bool = False) -> None:
    """Run a notebook from top to bottom in `folder`, as a learner without progress would, and keep its outputs.

    What is solved on the way is left in the file `progress`, if it is given. If `go_on`, a cell that fails does not
    stop the run.

    Widget state is kept without the bytes of pictures: beside each explorer stands a static picture, and a kernel
    draws the live one anew. Settings that are None are left out too, since that is what they are by default.

    Raises:
        CellExecutionError: a cell stops with an error, unless `go_on`.
    """
    from nbclient import NotebookClient

    notebook.metadata.pop("widgets", None)
    client = NotebookClient(
        notebook, timeout=None, kernel_name="python3", record_timing=False, coalesce_streams=True,
        allow_errors=go_on, resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as kept:
        file = progress or Path(kept) / "progress.json"
        client.execute(env={**os.environ, "COURSE_PROGRESS": str(file)})
    for widget in notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {}).values():
        widget["state"] = {name: value for name, value in widget["state"].items() if value is not None}
        if widget["model_name"] == "ImageModel":
            widget.pop("buffers", None)


def find_unsolved(notebook: NotebookNode) -> list[str]:
    """Return the numbers of the exercises whose check, as the notebook ran, did not print that they are solved."""
    return [
        cell.metadata.exercise
        for cell in notebook.cells
        if "exercise" in cell.metadata
        and f"Exercise {cell.metadata.exercise}: solved." not in printed(cell).splitlines()
    ]
