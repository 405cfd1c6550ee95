"""Which cells of a notebook have to run for its widgets to live: the others were run and compared by nbval."""

import ast
import json
from pathlib import Path

WIDGET = "application/vnd.jupyter.widget-view+json"


def needed_cells(notebook: Path) -> list[int]:
    """Return the places of the cells that show a widget, and of those that make a name that they need."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = {place: "".join(cell["source"]) for place, cell in enumerate(cells) if cell["cell_type"] == "code"}
    needed: set[int] = set()
    open_cells = [
        place
        for place in code
        if any(WIDGET in out.get("data", {}) for out in cells[place].get("outputs", []))
    ]
    while open_cells:
        place = open_cells.pop()
        needed.add(place)
        for name in _names(code[place], ast.Load):
            makers = [
                earlier for earlier in code if earlier < place and name in _names(code[earlier], ast.Store)
            ]
            open_cells += [maker for maker in makers[-1:] if maker not in needed]
    return sorted(needed)


def _names(source: str, context: type[ast.expr_context]) -> set[str]:
    """Return the names that a cell reads (`ast.Load`) or makes (`ast.Store`: assigned, defined or imported)."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            names.add(node.id)
        elif context is ast.Store and isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif context is ast.Store and isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names
