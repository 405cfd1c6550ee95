"""Run notebooks from top to bottom and store them as they ran: `python -m tests.notebooks [01 15 ...]`.

Widget state is stored without the bytes of pictures: beside each explorer stands a static picture, and a kernel
draws the live one anew. Settings that are None are left out too, since that is what they are by default.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
WIDGETS = "application/vnd.jupyter.widget-state+json"


def slim(notebook: nbformat.NotebookNode) -> None:
    """Take the pictures' bytes and the empty settings out of the stored widget state."""
    for widget in notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {}).values():
        widget["state"] = {name: value for name, value in widget["state"].items() if value is not None}
        if widget["model_name"] == "ImageModel":
            widget.pop("buffers", None)


def store(path: Path) -> None:
    """Run one notebook as a learner without progress would, and write it back."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)
    client = NotebookClient(
        notebook, timeout=None, kernel_name="python3", record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        client.execute(env={**os.environ, "COURSE_PROGRESS": str(Path(folder) / "progress.json")})
    slim(notebook)
    nbformat.write(notebook, path)


for path in sorted(NOTEBOOKS.glob("*.ipynb")):
    if len(sys.argv) == 1 or path.name.split("_")[0] in sys.argv[1:]:
        store(path)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
