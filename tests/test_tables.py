"""No number of a lesson's table is typed by hand: a cell of the page prints it, or `TYPED` says why it may stand there.

Tables of measurements are made by cells, from the store or from what the page computes; nbval compares those. This test
looks at the tables that are left in the text.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# Sizes and numbers that the page bounds and does not print, by the id of their cell.
TYPED: dict[str, set[str]] = {}

NUMBER = re.compile(r"(?<![\w.^{])\d[\d,]*(?:\.\d+)?%?(?!\w)")
# Formulas, code, links and numbers of claims, equations and papers.
NO_FIGURES = re.compile(r"\$[^$]*\$|`[^`]*`|\[[^\]]*\]\([^)]*\)|arXiv:[\d.]+|\b\d\d\.[a-z]*\d+\b")


def numbers(text: str) -> set[str]:
    """Return the numbers of a text that look measured: with a point, in %, or of four digits and more."""
    found = (number.rstrip(",") for number in NUMBER.findall(text))
    return {number for number in found if "." in number or "%" in number or "," in number}


def printed(cells: list[dict]) -> set[float]:
    """Return all numbers that code cells print, or that stand in their code."""
    texts = ["".join(cell["source"]) for cell in cells]
    for output in (output for cell in cells for output in cell["outputs"]):
        texts.append("".join(output.get("text", [])))
        texts += ["".join(data) for kind, data in output.get("data", {}).items() if kind.startswith("text/")]
    return {float(number) for text in texts for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text)}


def typed_numbers(notebook: dict) -> list[tuple[str, str]]:
    """Return cell and number of each number in a table that no cell prints and `TYPED` does not hold."""
    known = printed([cell for cell in notebook["cells"] if cell["cell_type"] == "code"])
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        rows = [line for line in "".join(cell["source"]).splitlines() if line.startswith("|")]
        for number in sorted(numbers(NO_FIGURES.sub("", " ".join(rows)))):
            value = float(number.strip("%").replace(",", ""))
            if number not in TYPED.get(cell["id"], ()) and not {value, value / 100} & known:
                found.append((cell["id"], number))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_numbers_in_tables_are_printed_on_the_page(path):
    assert typed_numbers(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("cell_id", TYPED)
def test_a_digit_changed_by_hand_is_noticed(cell_id):
    (path,) = (path for path in NOTEBOOKS if f'"id": "{cell_id}"' in path.read_text(encoding="utf-8"))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    (cell,) = (cell for cell in notebook["cells"] if cell["id"] == cell_id)
    assert numbers(NO_FIGURES.sub("", "".join(cell["source"]))) >= TYPED[cell_id]
    number = max(TYPED[cell_id], key=len)
    changed = number.translate(str.maketrans("123456789", "987654321"))
    cell["source"] = "".join(cell["source"]).replace(number, changed)
    assert (cell_id, changed) in typed_numbers(notebook)


def test_a_table_typed_by_hand_is_noticed():
    made = {"cell_type": "code", "source": ["x"], "outputs": [{"text": ["half is 0.5, a third 0.33\n"]}]}
    table = {
        "cell_type": "markdown",
        "id": "t",
        "source": ["| a | 0.5 | 0.34 | $0.7$ (19.2) | 33% |\n|---|\n| 1 | 1,640 |"],
    }
    assert typed_numbers({"cells": [made, table]}) == [("t", "0.34"), ("t", "1,640")]
