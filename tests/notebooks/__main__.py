"""Run notebooks from top to bottom and store them as they ran: `python -m tests.notebooks [01 15 ...]`."""

import sys
from pathlib import Path

import nbformat

from course_lib.editions.teacher.solved import run

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def store(path: Path) -> None:
    """Run one notebook as a learner without progress would, and write it back."""
    notebook = nbformat.read(path, as_version=4)
    run(notebook, NOTEBOOKS)
    nbformat.write(notebook, path)


for path in sorted(NOTEBOOKS.glob("*.ipynb")):
    if len(sys.argv) == 1 or path.name.split("_")[0] in sys.argv[1:]:
        store(path)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
