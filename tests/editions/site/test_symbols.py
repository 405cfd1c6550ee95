"""The symbols of the lessons: each is found in the text that its lesson has, with the words for it."""

import nbformat
import pytest
from nbformat import v4

from course_lib.editions.site import symbols
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from tests.editions.site.pages.conftest import ROOT


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_every_symbol_is_introduced_by_its_lesson(lesson):
    notebook = nbformat.read(ROOT / "notebooks" / lesson.notebook, as_version=4)
    listed = contents_of(lesson).symbols
    found = symbols.places(notebook, lesson.number, listed)
    assert list(found) == [symbols.anchor_of(lesson.number, place) for place in range(1, len(listed) + 1)]
    assert len(found) >= (6 if lesson.part else 1)
    for symbol, cell in zip(listed, found.values(), strict=True):
        assert symbol in notebook.cells[cell].source


def text(*cells):
    return v4.new_notebook(
        cells=[v4.new_markdown_cell("# Title with $b$, a price"), *map(v4.new_markdown_cell, cells)]
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Every step multiplies by $b$, the price.", True),
        ("$$x = 2b \\tag{01.1}$$ has the price $x$ of every step multiplied.", True),
        ("Every step multiplies by $b_1$, the price.", False),
        ("Every step multiplies by $\\beta$, the price.", False),
        ("Every step multiplies by b, the price.", False),
        ("Every step multiplies by $b$.", False),
        ("With $b$ at hand\n\n### Next\n\nevery step multiplies the price.", False),
    ],
)
def test_symbol_and_words_stand_in_one_section(source, found):
    listed = {"b": "price that multiplies a step"}
    if found:
        assert symbols.places(text("Other", source), "01", listed) == {"symbol-01-1": 2}
    else:
        with pytest.raises(ValueError, match=r"lesson 01 says nowhere together with \$b\$"):
            symbols.places(text("Other", source), "01", listed)


@pytest.mark.parametrize(
    ("symbol", "letter"),
    [(r"\eta", "eta"), ("W_Q", "W"), (r"\hat w", "w"), (r"\tilde X", "X"), (r"\hat\rho_j", "rho"),
     (r"\mathcal F", "F"), ("w^*", "w"), ("r_{in}", "r")],
)  # fmt: skip
def test_a_symbol_is_sorted_by_its_letter(symbol, letter):
    assert symbols.letter(symbol) == letter
