"""A lesson's comparison with another library runs where the library is there, and says what to install where not."""

import ast
import json
import sys
from pathlib import Path

import pytest

from course_lib.teaching import has_peer

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
# The import names of the extra `peers`.
PEERS = {"concept_erasure", "cvxpy", "peft", "transformer_lens"}


def test_a_library_that_is_there(capsys):
    assert has_peer("json")
    assert capsys.readouterr().out == ""


def test_a_library_that_is_missing_is_named_with_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "peft", None)
    assert not has_peer("peft")
    (line,) = capsys.readouterr().out.splitlines()
    assert "peft" in line
    assert "make lab PEERS=1" in line
    assert "pip install 'course-lib[peers]'" in line


def peers_of(tree: ast.AST) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names} & PEERS


def unguarded(source: str) -> set[str]:
    """Peers that a cell imports other than inside of `if has_peer(...)`, or of what that answered."""
    tree = ast.parse(source)
    answers = {"has_peer"} | {
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and "has_peer" in ast.unparse(node.value)
    }
    rest = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and any(answer in ast.unparse(node.test) for answer in answers))
    ]
    return peers_of(ast.Module(rest, []))


def code_cells() -> list[tuple[str, str]]:
    return [
        (path.stem, "".join(cell["source"]))
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]


def test_no_notebook_imports_a_peer_that_may_be_absent():
    assert [(name, unguarded(source)) for name, source in code_cells() if unguarded(source)] == []
    # It does find them: every peer is imported by some cell.
    assert set().union(*(peers_of(ast.parse(source)) for _, source in code_cells())) == PEERS


def is_guard(node: ast.stmt, answers: set[str]) -> bool:
    return isinstance(node, ast.If) and any(answer in ast.unparse(node.test) for answer in answers)


def names(node: ast.AST, context: type) -> set[str]:
    """Names that a statement reads or, by assignment or import, sets."""
    found = {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }
    if context is ast.Store:
        found |= {(alias.asname or alias.name) for alias in ast.walk(node) if isinstance(alias, ast.alias)}
    return found


def used_without_peer(sources: list[str]) -> list[str]:
    """Names that only a guarded block sets, and that the notebook reads later outside of one."""
    answers, only_with_peer, known, faults = {"has_peer", "to_compare"}, set(), set(), []
    for node in (node for source in sources for node in ast.parse(source).body):
        if is_guard(node, answers):
            only_with_peer |= names(node, ast.Store) - known
            continue
        faults += sorted(names(node, ast.Load) & only_with_peer)
        known |= names(node, ast.Store)
        only_with_peer -= known
    return faults


@pytest.mark.parametrize("name", sorted({name for name, source in code_cells() if "has_peer(" in source}))
def test_what_a_comparison_sets_is_not_needed_later(name):
    sources = [
        "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!")))
        for stem, source in code_cells()
        if stem == name
    ]
    assert used_without_peer(sources) == []


def test_a_name_that_is_missing_without_the_peer_is_found():
    guarded = "if has_peer('peft'):\n    x = y = 1"
    assert used_without_peer([guarded, "y = 2", "print(x, y)"]) == ["x"]


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("import peft.x", {"peft"}),
        ("if has_peer('peft'):\n    import peft", set()),
        ("there = has_peer('peft')\nif there:\n    from peft import x", set()),
        ("if has_peer('peft'):\n    pass\nfrom peft import x", {"peft"}),
    ],
)
def test_an_unguarded_import_is_found(source, left):
    assert unguarded(source) == left
