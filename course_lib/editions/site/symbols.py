"""Where the lessons introduce the symbols that their `contents.py` lists.

A letter means one thing in a lesson. Its words are those of the lesson: `places` looks for the passage that holds
both, and a symbol without one is an error.
"""

import re
from collections.abc import Mapping

from nbformat import NotebookNode

from course_lib.editions.notebooks import states

MATH = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$([^$]+?)(?<!\\)\$", re.DOTALL)
SECTIONS = re.compile(r"^(?=#+ )", re.MULTILINE)
ACCENT = re.compile(r"\\(?:hat|tilde|bar|overline|mathcal) ?")
# Words of four letters and more count by their first five: "multiplied" is met by "multiply".
WORD, STEM = re.compile(r"[a-z]{4,}"), 5
SMALL = frozenset({"from", "into", "that", "what", "which", "with"})


def places(notebook: NotebookNode, number: str, symbols: Mapping[str, str]) -> dict[str, int]:
    """Return where lesson `number` introduces its symbols: the cell by the id that the place gets on the page.

    `symbols` holds what each stands for. Its cell is the first with a section that has both symbol and words.

    Raises:
        ValueError: no section has both.
    """
    return {
        anchor_of(number, place): _place(notebook, number, *entry)
        for place, entry in enumerate(symbols.items(), start=1)
    }


def _place(notebook: NotebookNode, number: str, symbol: str, meaning: str) -> int:
    needed = {word[:STEM] for word in set(WORD.findall(meaning.lower())) - SMALL}
    ends = r"(?![A-Za-z_'])" if symbol[-1].isalpha() else ""
    written = re.compile(rf"(?<![A-Za-z\\]){re.escape(symbol)}{ends}")
    for i, cell in enumerate(notebook.cells):
        if i and cell.cell_type == "markdown" and not states(cell):  # the first cell is the title
            for section in SECTIONS.split(cell.source):
                held = any(written.search(a or b) for a, b in MATH.findall(section))
                if held and all(stem in section.lower() for stem in needed):
                    return i
    raise ValueError(f"lesson {number} says nowhere together with ${symbol}$ that it is {meaning!r}")


def anchor_of(number: str, place: int) -> str:
    """Return the id of the place at which lesson `number` introduces the symbol that is at `place` in its list."""
    return f"symbol-{number}-{place}"


def letter(symbol: str) -> str:
    """Return the letter of a symbol, without accents and indices: "sigma" of \\hat\\sigma_1, "W" of W_Q."""
    bare = re.search(r"[A-Za-z]+", ACCENT.sub("", symbol))[0]
    return bare if "\\" in ACCENT.sub("", symbol)[:1] else bare[0]
