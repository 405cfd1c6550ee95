"""Store a notebook as it ran, so that only what changed differs from what was stored: git keeps every version."""

import base64
import copy
import io
import json
import re
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

import nbformat
import numpy as np
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from PIL import Image

from course_lib.editions.notebooks import states
from course_lib.editions.teacher.solved import WIDGETS, run
from course_lib.files import replacing
from course_lib.teaching import Exercise
from course_lib.teaching.words import STORED_MODULE, Words

PNG = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=]+")


def store(path: Path, exercises: Mapping[str, Exercise], *, runs: bool = True) -> None:
    """Run one notebook as a learner without progress would, and put it in the place of the stored one.

    Its `exercises`, by number, are stated anew; without `runs` that is all that changes.
    """
    stored = state_exercises(nbformat.read(path, as_version=4), exercises)
    notebook = copy.deepcopy(stored)
    if runs:
        run(notebook, path.parent)
    keep_pictures(notebook, stored)
    keep_still(notebook)
    with replacing(path) as file:
        file.write((nbformat.writes(number_widgets(notebook)) + "\n").encode())


def state_exercises(notebook: NotebookNode, exercises: Mapping[str, Exercise]) -> NotebookNode:
    """Return the notebook with the statement of each exercise in a cell of Markdown above its answer cell.

    A cell that stated it before keeps its id and its metadata.
    """
    stated = {states(cell): cell for cell in notebook.cells if states(cell)}
    cells = []
    for cell in notebook.cells:
        if states(cell):
            continue
        if number := cell.metadata.get("exercise"):
            above = stated.get(number) or new_markdown_cell(
                id=f"exercise-{number.replace('.', '-')}", metadata={"course": {"states": number}}
            )
            cells.append(above | {"source": exercises[number].statement})
        cells.append(cell)
    return nbformat.from_dict(notebook | {"cells": cells})


def keep_pictures(notebook: NotebookNode, stored: NotebookNode) -> None:
    """Give each picture that shows the same pixels as the stored one of its cell the stored bytes."""
    before = {cell.id: cell for cell in stored.cells}
    for cell in notebook.cells:
        old = before[cell.id].get("outputs", [])
        for output, was in zip_longest(cell.get("outputs", []), old, fillvalue={}):
            data, kept = output.get("data", {}), was.get("data", {})
            if "image/png" in data and same_pixels(data["image/png"], kept.get("image/png", "")):
                data["image/png"] = kept["image/png"]
            if "text/html" in data:
                pictures = iter(PNG.findall(kept.get("text/html", "")))
                data["text/html"] = PNG.sub(
                    lambda found, pictures=pictures: (
                        old if same_pixels(found[0], old := next(pictures, "")) else found[0]
                    ),
                    data["text/html"],
                )


def keep_still(notebook: NotebookNode) -> None:
    """Give widgets of words the module of a page without a kernel, which is half as long."""
    for model in notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {}).values():
        if model["state"].get("_anywidget_id", "").endswith(".words.Words"):
            model["state"]["_esm"], model["state"]["_css"] = STORED_MODULE, Words._css


def same_pixels(one: str, other: str) -> bool:
    """Return whether two PNG files, in base64, show the same; nothing is a picture unlike any other."""
    if not (one and other):
        return False
    pictures = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA")) for text in (one, other)
    ]
    return np.array_equal(*pictures)


def number_widgets(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook with its widgets numbered in the order of their making instead of random names."""
    state = notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {})
    text = json.dumps(notebook)
    for number, name in enumerate(state):
        text = text.replace(name, f"{number:032x}")
    return nbformat.from_dict(json.loads(text))
