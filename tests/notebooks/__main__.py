"""Run notebooks from top to bottom and store them as they ran: `python -m tests.notebooks [01 15 ...]`."""

import sys
from pathlib import Path

from tests.notebooks.store import store

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

for path in sorted(NOTEBOOKS.glob("*.ipynb")):
    if len(sys.argv) == 1 or path.name.split("_")[0] in sys.argv[1:]:
        store(path)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
