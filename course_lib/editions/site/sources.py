"""The sources that lessons and library name: one page of them, links to it from where they are named, and links back.

The list is `docs/sources.md`, an entry a line: `- **Gu et al. 2020.** Title. [arXiv:2008.07669](...)`. A mention names
an entry by its arXiv number, or by its first author and its year.
"""

import ast
import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

from course_lib.editions.site.pages import NO_TEXT, has_page, library_page

ENTRY = re.compile(r"^- \*\*(.+?)\.\*\* (.+)$", re.MULTILINE)
NUMBER = r"arXiv:((?:math/)?\d{4}\.?\d{3,5})"
# "Gu et al. (2020), arXiv:2008.07669", "Gu and Dao 2023", "Fisher, 1936": first author, year, number; or a number alone.
MENTION = re.compile(
    r"(?<![\w.])(?:([A-ZÀ-Ý][\w-]+)(?:\s+et\s+al\.|(?:,\s+[A-ZÀ-Ý][\w-]+)*,?\s+and\s+(?:[A-ZÀ-Ý][\w-]+|others))?,?"
    rf"\s+\(?((?:19|20)\d\d)([ab]?)\b\)?(?:,?\s+\(?{NUMBER})?|{NUMBER})"
)
# What a page holds besides text that may get a link.
NO_PROSE = re.compile(
    rf"{NO_TEXT.pattern}|<(form|script|a)\b.*?</\2>|<[a-z/][^>]*>|https?://\S+", re.DOTALL | re.MULTILINE
)


class Source(NamedTuple):
    """An entry of the list: how it is named, the rest of its line, and the place of the entry on its page."""

    name: str
    text: str
    anchor: str


def read_sources(markdown: str) -> list[Source]:
    """Return the entries of `docs/sources.md`.

    Raises:
        ValueError: it has none, or two have one name.
    """
    sources = [
        Source(name, text, "source-" + re.sub(r"\W+", "-", name).lower())
        for name, text in ENTRY.findall(markdown)
    ]
    if not sources:
        raise ValueError("sources must have lines of the form '- **Name 2020.** Title', and none was found")
    names = [source.anchor for source in sources]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"sources must have one entry of each name, and have several of {min(twice)}")
    return sources


def index(sources: Iterable[Source]) -> dict[str, str]:
    """Return the anchor of each entry by what names it: "2008.07669", and "Gu 2020" where one entry alone has it."""
    found: dict[str, str] = {}
    for source in sources:
        for number in re.findall(NUMBER, source.text):
            found[number] = source.anchor
        # Two papers of an author and year have letters in their names, and are told apart by their numbers alone.
        if (named := MENTION.match(source.name)) and named[1] and not named[3]:
            found[f"{named[1]} {named[2]}"] = source.anchor
    return found


def entry_of(mention: re.Match[str], where: Mapping[str, str]) -> str | None:
    """Return the anchor that a mention means, None where it is none of an entry; `where` is what `index` returns."""
    return where.get(mention[4] or mention[5]) or where.get(f"{mention[1]} {mention[2]}")


def trim(mention: str) -> tuple[str, str]:
    """Return a mention, and apart from it the bracket that closes one opened before it."""
    cut = len(mention) - (mention.endswith(")") and "(" not in mention)
    return mention[:cut], mention[cut:]


def link_sources(text: str, where: Mapping[str, str], *, page: str) -> str:
    """Return Markdown whose mentions are links to their entries on `page`."""

    def link(found: re.Match[str]) -> str:
        anchor = entry_of(found, where)
        named, rest = trim(found[0])
        return f'<a class="source" href="{page}#{anchor}">{named}</a>{rest}' if anchor else found[0]

    parts, end = [], 0
    for kept in NO_PROSE.finditer(text):
        parts += [MENTION.sub(link, text[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*parts, MENTION.sub(link, text[end:])])


def named_in(text: str, where: Mapping[str, str]) -> set[str]:
    """Return the anchors of the entries that a text names, in links too."""
    numbers = re.findall(r"arxiv\.org/abs/((?:math/)?[\d.]+\d)", text)
    found = {entry_of(mention, where) for mention in MENTION.finditer(text)} | {
        where.get(one) for one in numbers
    }
    return found - {None}


def said(notebook: NotebookNode) -> str:
    """Return the text of a lesson's page: its Markdown and what its cells show as Markdown."""
    shown = [
        out.get("data", {}).get("text/markdown", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for out in cell.outputs
    ]
    return "\n\n".join([*(cell.source for cell in notebook.cells if cell.cell_type == "markdown"), *shown])


def docstrings(package: Path) -> dict[str, str]:
    """Return the docstrings of each module that has a page, by the name of the module."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if has_page(module):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            found[module] = "\n\n".join(
                ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds)
            )
    return found


def sources_page(
    markdown: str, lessons: Mapping[str, str], modules: Mapping[str, str], where: Mapping[str, str]
) -> str:
    """Return the page of the sources: each entry with its place, and with links to the pages that name it.

    `lessons` and `modules` hold texts: of lessons by the name of their page, and of modules by their name.
    """
    used = {f"lessons/{name}.html": (name[:2], named_in(text, where)) for name, text in lessons.items()}
    places: dict[str, tuple[str, set[str]]] = {}
    for module, text in modules.items():
        page = f"{library_page(module)}.html"
        _, before = places.get(page, ("", set()))
        places[page] = (Path(library_page(module)).name, before | named_in(text, where))

    def entry(found: re.Match[str]) -> str:
        source = read_sources(found[0])[0]
        links = [
            f'<a href="{page}">{html.escape(name)}</a>'
            for page, (name, anchors) in {**used, **places}.items()
            if source.anchor in anchors
        ]
        back = f' <span class="course-note">Named in {", ".join(links)}.</span>' if links else ""
        return f'- <span class="course-anchor" id="{source.anchor}"></span>**{source.name}.** {source.text}{back}'

    return ENTRY.sub(entry, markdown)
