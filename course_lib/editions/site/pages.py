"""A stored notebook as the page of its lesson: what needs a kernel becomes something that does not.

Sphinx reads the result with MyST-NB. Text, code and outputs stay as they are stored. Equations get anchors and their
mentions links, across lessons; explorers become rows of frames, predictions forms, hints unfold; figures get their
text alternative.
"""

import ast
import base64
import hashlib
import html
import importlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, v4

from course_lib.editions.notebooks import (
    EXPLORER,
    FOLDED_QUIZ,
    PREDICTION,
    STRIP,
    WIDGET,
    answers,
    statement,
    states,
    third_edition,
)
from course_lib.lessons.catalog import PARTS, Lesson

TAG = re.compile(r"\\tag\{(\d\d\.\w+)\}")
MENTION = re.compile(r"\((\d\d\.[a-z]?\d+)\)")
CLAIM = re.compile(r"\bclaim\(\s*\"(\d\d\.\w+)\"")
# What Markdown does not read as text: blocks and spans of code, mathematics, headings, links.
NO_TEXT = re.compile(
    r"```.*?```|(`+)(?!`).+?(?<!`)\1(?!`)|\$\$.+?\$\$|(?<!\\)\$[^$]+?(?<!\\)\$|^#+ .*?$|\[[^\]\n]*\]\([^)\s]*\)",
    re.DOTALL | re.MULTILINE,
)
HEADING = re.compile(r"^##+ ", re.MULTILINE)
HEADING_LINE = re.compile(r"(^##+ .*$)", re.MULTILINE)


def anchors(notebooks: Mapping[str, NotebookNode]) -> dict[str, str]:
    """Return where each number is stated, "01.4" -> "01_slug.html#eq-01.4", from the notebooks by their file names.

    That is its equation, or the cell that measures it where it has no equation.

    Raises:
        ValueError: two equations have the same number.
    """
    equations, claims = {}, {}
    for name, notebook in notebooks.items():
        page = Path(name).with_suffix(".html").name
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                for number in TAG.findall(cell.source):
                    if number in equations:
                        raise ValueError(f"equation ({number}) of {name} is also in {equations[number]}")
                    equations[number] = f"{page}#eq-{number}"
            elif cell.cell_type == "code":
                for number in CLAIM.findall(cell.source):
                    claims.setdefault(number, f"{page}#eq-{number}")
    return claims | equations


def link_equations(text: str, where: Mapping[str, str], *, prefix: str = "") -> str:
    """Return Markdown whose mentions `(01.4)` are links, and whose numbered equations are anchors.

    `where` is what `anchors` returns; a number that it lacks stays text. `prefix` leads to the lessons' folder.
    """

    def mention(found: re.Match) -> str:
        place = where.get(found[1])
        return f'<a class="equation" href="{prefix}{place}">({found[1]})</a>' if place else found[0]

    parts, end = [], 0
    for found in NO_TEXT.finditer(text):
        before = text[end : found.start()]
        parts.append(MENTION.sub(mention, before))
        numbers = TAG.findall(found[0]) if found[0].startswith("$$") else ()
        if numbers:
            # A block of its own, which needs an empty line and, in a list, the indent of the equation.
            indent = before.rpartition("\n")[2]
            parts.append(f"{''.join(map(anchor, numbers))}\n\n{indent if not indent.strip() else ''}")
        parts.append(found[0])
        end = found.end()
    return "".join([*parts, MENTION.sub(mention, text[end:])])


def anchor(number: str) -> str:
    """Return the place that a mention of equation or claim `number` leads to."""
    return target(f"eq-{number}")


def target(name: str) -> str:
    """Return a place that a link leads to, with the id `name`."""
    return f'<div class="course-anchor" id="{name}"></div>'


def page(
    notebook: NotebookNode,
    lesson: Lesson,
    facts: Mapping[str, Any],
    where: Mapping[str, str],
    *,
    pictures: Path,
    introduced: Mapping[str, int] | None = None,
    library: bool = True,
    guess: bool = True,
) -> NotebookNode:
    """Return the page of a lesson, as a notebook that Sphinx reads; its figures are written into `pictures`.

    `facts` is what `facts.gather` returns for the lesson. `introduced` holds the cells that introduce
    symbols, by the ids that they get. `library` links to the library's pages. With `guess`, what answers a
    prediction waits for the reader's guess: the cells that say so, or, on pages of the second edition, what stands
    between it and the next heading or exercise. The stored notebook is not changed.
    """
    cells, placed, asked = [], set(), False
    by_cell = third_edition(notebook)
    for i, cell in enumerate(notebook.cells):
        ids = [name for name, at in (introduced or {}).items() if at == i]
        made = [v4.new_markdown_cell("".join(map(target, ids)))] if ids else []
        if by_cell:
            asked = guess and answers(cell) is not None
        if number := states(cell):
            asked = asked and by_cell
            text = link_equations(statement(cell), where)
            if number in facts["hints"]:
                text += "\n\n" + hints(number, facts["hints"][number], lesson)
            made.append(v4.new_markdown_cell(text))
            cells += hidden_until_guessed(made) if asked else made
        elif cell.cell_type == "markdown":
            heading = HEADING.search(cell.source) if asked and not by_cell else None
            before = cell.source[: heading.start()] if heading else cell.source
            if before:
                made.append(v4.new_markdown_cell(link_equations(before, where)))
            cells += hidden_until_guessed(made) if asked else made
            if heading:
                cells.append(v4.new_markdown_cell(link_equations(cell.source[heading.start() :], where)))
                asked = False
        elif cell.cell_type == "code":
            numbers = dict.fromkeys(n for n in CLAIM.findall(cell.source) if n not in placed)
            # Only those that have no equation to lead to.
            own = [n for n in numbers if where.get(n, "").endswith(f"#eq-{n}") and not _equation(notebook, n)]
            placed |= set(own)
            if own:
                made.append(v4.new_markdown_cell("".join(map(anchor, own))))
            made += _code(cell, lesson, facts, where, pictures)
            if by_cell:
                cells += hidden_until_guessed(made) if asked else made
                continue
            texts = [output.get("data", {}).get("text/markdown", "") for output in cell.outputs]
            asks = any(map(PREDICTION.match, texts))
            asked = asked and not asks
            cells += hidden_until_guessed(made) if asked else made
            asked = guess and (asked or asks)
    _number(cells[0], lesson)
    if library:
        cells[0].source += "\n\n" + library_links(notebook)
    kept = {
        name: notebook.metadata[name] for name in ("kernelspec", "language_info") if name in notebook.metadata
    }
    for cell in cells:
        cell.pop("id", None)  # two builds of the same notebook are the same
    return v4.new_notebook(cells=cells, metadata=kept, nbformat_minor=4)


def _equation(notebook: NotebookNode, number: str) -> bool:
    return any(
        cell.cell_type == "markdown" and f"\\tag{{{number}}}" in cell.source for cell in notebook.cells
    )


def _number(cell: NotebookNode, lesson: Lesson) -> None:
    """Put number and part of the lesson to its title."""
    part = f"Part {lesson.part}, {PARTS[lesson.part]}" if lesson.part else PARTS[lesson.part]
    first, _, rest = cell.source.partition("\n")
    title = first.removeprefix("# ")
    cell.source = f'# {lesson.number} {title}\n\n<p class="course-part">{part}</p>\n{rest}'


def _code(
    cell: NotebookNode,
    lesson: Lesson,
    facts: Mapping[str, Any],
    where: Mapping[str, str],
    pictures: Path,
) -> Iterator[NotebookNode]:
    """A code cell and its outputs in their order: those that are text become Markdown, the others stay outputs."""
    source, shown, hidden = cell.source, [], bool(cell.metadata.get("jupyter", {}).get("source_hidden"))
    for output in cell.outputs:
        made = _text(output, cell.source, lesson, facts, where, pictures)
        if made is None:
            shown.append(output)
            continue
        if made and (source is not None or shown):
            yield _piece(source, shown, made, hidden)
            source, shown = None, []
        if made:
            yield v4.new_markdown_cell(made)
    if source is not None or shown:
        yield _piece(source, shown, "", hidden)


def _piece(source: str | None, outputs: Sequence[NotebookNode], follows: str, hidden: bool) -> NotebookNode:
    tags = []
    if source is None:
        tags = ["remove-input"]
    elif hidden or 'class="course-' in follows or PREDICTION.match(follows):
        tags = ["hide-input"]
    return v4.new_code_cell(source or "", outputs=list(outputs), metadata={"tags": tags})


def _text(
    output: NotebookNode,
    source: str,
    lesson: Lesson,
    facts: Mapping[str, Any],
    where: Mapping[str, str],
    pictures: Path,
) -> str | None:
    """The Markdown that stands for an output, empty where nothing does; None where the output stays what it is."""
    data = output.get("data", {})
    if WIDGET in data:
        return ""  # what a page can show of it comes with the text before or the strip after it
    if "image/png" in data:
        return _figure(data, output.metadata.get("image/png", {}), lesson, pictures)
    if "text/markdown" in data:
        text = link_equations(data["text/markdown"], where)
        if number := PREDICTION.match(text):
            text += "\n\n" + prediction(number[1], facts["predictions"][number[1]])
        return text
    if data.get("text/html", "").startswith(FOLDED_QUIZ) and facts.get("sentences"):
        return quiz(facts["sentences"])
    if data.get("text/html", "").startswith(STRIP):
        names = [name for name in EXPLORER.findall(source) if name in facts["explorers"]]
        frames = f"../_explorers/{facts['folder']}"
        moved = [explorer(facts["explorers"][name], f"{frames}/{name}") for name in names[:1]]
        return "\n\n".join(
            [*moved, data["text/html"].replace("<details>", '<details class="course-strip">', 1)]
        )
    return None


def _figure(data: Mapping[str, str], metadata: Mapping[str, Any], lesson: Lesson, pictures: Path) -> str:
    png = base64.b64decode(data["image/png"])
    name = f"{lesson.number}-{hashlib.sha256(png).hexdigest()[:12]}.png"
    pictures.mkdir(parents=True, exist_ok=True)
    (pictures / name).write_bytes(png)
    lines = [f"```{{image}} {pictures.name}/{name}", f":alt: {metadata.get('alt', 'Figure')}"]
    if "width" in metadata:
        lines.append(f":width: {metadata['width']}px")
    return "\n".join([*lines, "```"])


# What the reader answers


def hidden_until_guessed(cells: Iterable[NotebookNode]) -> list[NotebookNode]:
    """Mark cells of a page as what answers a prediction: the page's script hides them until the guess is made.

    Headings are shown at once, each in a cell of its own: Sphinx makes a section of each, which no element inside the
    page may hold open.
    """
    found = []
    for cell in cells:
        if cell.cell_type == "code":
            cell.metadata.tags = [*cell.metadata.tags, "course-answer"]
            found.append(cell)
            continue
        for part in filter(str.strip, HEADING_LINE.split(cell.source)):
            shown = HEADING_LINE.fullmatch(part)
            text = part if shown else f'<div class="course-answer">\n\n{part.strip()}\n\n</div>'
            found.append(v4.new_markdown_cell(text))
    return found


def prediction(number: str, about: Mapping[str, Any]) -> str:
    """Return a form that asks prediction `number`; without scripts, the answers are there to be unfolded.

    `about` holds `choices`, pairs of a choice and the sentence that explains it, and `answer`, the right choice.
    """
    said = [(choice, choice == about["answer"], why) for choice, why in about["choices"]]
    return form(
        number,
        f"Your prediction {number}",
        "Record my guess",
        said,
        ("As you predicted.", "Not what happens."),
    )


def form(
    number: str, legend: str, button: str, said: Sequence[tuple[str, bool, str]], openings: tuple[str, str]
) -> str:
    """Return a form with a choice of answers: for each its text, whether it is right, and why.

    `openings` are said before why, to who is right and to who is not.
    """
    options = "".join(
        f'<label><input type="radio" name="{number}" value="{i}"> <span>{html.escape(choice)}</span></label>'
        for i, (choice, _, _) in enumerate(said)
    )
    found = "".join(
        f'<dt>{html.escape(choice)}</dt><dd data-right="{str(right).lower()}">'
        f"<strong>{'Right.' if right else openings[1]}</strong> "
        f"{html.escape(why)}</dd>"
        for choice, right, why in said
    )
    return (
        f'<form class="course-prediction" id="prediction-{number}" data-right="{openings[0]}" data-wrong="{openings[1]}">'
        f"<fieldset><legend>{legend}</legend>{options}"
        f'<button type="submit" disabled>{button}</button></fieldset><p role="status" aria-live="polite"></p>'
        f"<details><summary>All answers to {number}</summary><dl>{found}</dl></details></form>"
    )


def quiz(sentences: Sequence[Mapping[str, Any]]) -> str:
    """Return the sentences of a quiz, each with a form and, hidden until it is answered, what was measured.

    Each holds `id`, `text`, `options`, `right`, `verdict`, `why`, `measured` and `picture` (HTML, or empty).
    """
    parts = []
    for one in sentences:
        said = [
            (
                option,
                option == one["right"],
                one["why"] if option == one["right"] else f"{one['verdict']}. {one['why']}",
            )
            for option in one["options"]
        ]
        measured = html.escape(one["measured"]).replace("\n", "<br/>")
        parts += [
            f"<p><strong>{one['id']}</strong> {html.escape(one['text'])}</p>",
            form(one["id"], f"Your answer to {one['id']}", "Check", said, ("Right.", "No.")),
            f'<div class="course-answer"><p>Measured: {measured}</p>{one["picture"]}</div>',
        ]
    return "\n\n".join(parts)


def hints(number: str, said: Sequence[str], lesson: Lesson) -> str:
    """Return the hints of an exercise, each folded into the one before, and where the exercise is answered."""
    folded = ""
    for i, hint in reversed(list(enumerate(said, start=1))):
        folded = (
            f"<details><summary>Hint {i} of {len(said)}<span class='visually-hidden'> for {number}</span></summary>"
            f"<p>{html.escape(hint)}</p>{folded}</details>"
        )
    return (
        f'<div class="course-hints">{folded}<p>Your answer is checked in JupyterLab: '
        f'<a href="../open.html#lesson-{lesson.number}">open this lesson there</a>.</p></div>'
    )


# Explorers


def explorer(about: Mapping[str, Any], folder: str, *, most: int | None = None) -> str:
    """Return an explorer as a picture and its words, which the page's script gives controls to.

    `about` is what `course_lib.editions.site.facts.rows` returns, and `folder` is where its frames lie, seen from the page.
    With `most` there are no more controls than that, the first ones.
    """
    controls = about["controls"][:most]
    grid = about["grid"]
    if grid and max(grid["controls"]) >= len(controls):
        grid = None
    first = controls[0]
    words = first["words"][first["default"]]
    width, height = about["size"]
    said = f"{about['title']}. {about['summary']}"
    data = json.dumps(
        {"folder": folder, "about": said, "controls": controls, "grid": grid}, ensure_ascii=False
    )
    data = data.replace("<", "\\u003c")
    picture = (
        f'src="{folder}/{first["files"][first["default"]]}" width="{width}" height="{height}" loading="lazy"'
    )
    return (
        f'<div class="course-explorer" role="group" aria-label="{html.escape(about["title"])}">'
        f'<div class="course-controls"></div><p class="course-words" role="status">{html.escape(words)}</p>'
        f'<div class="course-frame"><img {picture} alt="{html.escape(said)} {html.escape(words)}"></div>'
        f'<script type="application/json">{data}</script></div>'
    )


# The library


def library_links(notebook: NotebookNode) -> str:
    """Return a line of links to the pages of all that the notebook imports from the library."""
    links = {}
    for cell in notebook.cells:
        if cell.cell_type != "code" or "course_lib" not in cell.source:
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("course_lib"):
                for alias in node.names:
                    if place := find_place(node.module, alias.name):
                        links[alias.name] = place
    if not links:
        return ""
    items = ", ".join(
        f'<a href="../{place}"><code>{name}</code></a>' for name, place in sorted(links.items())
    )
    return (
        f'<details class="course-library"><summary>From the library: {len(links)} functions and classes</summary>'
        f"<p>{items}</p></details>"
    )


def find_place(module: str, name: str) -> str | None:
    """Return the place in the library's pages of what `from module import name` gives, None where it has none."""
    thing = getattr(importlib.import_module(module), name, None)
    home = getattr(thing, "__module__", None) or ""
    if (
        not has_page(home)
        or not hasattr(thing, "__qualname__")
        or vars(importlib.import_module(home)).get(name) is not thing
    ):
        return None
    return f"{library_page(home)}.html#{home}.{name}"


def library_page(module: str) -> str:
    """Return the page that a module of the package is on: that of its package, or one for all single modules."""
    parts = module.split(".")
    package = importlib.util.find_spec(".".join(parts[:2])).submodule_search_locations is not None
    return "api/" + (".".join(parts[:2]) if package else "course_lib")


def has_page(module: str) -> bool:
    """Whether a module of the package has a page of its own: lessons and commands have none."""
    parts = module.split(".")
    return (
        parts[0] == "course_lib"
        and parts[1:2] not in (["lessons"], ["editions"], ["commands"])
        and parts[1:3] != ["interpret", "browser"]
        and not any(part.startswith("_") for part in parts)
    )


def jupyter_slug(title: str) -> str:
    """Return the anchor that JupyterLab gives a heading, which links in the notebooks name."""
    return title.strip().replace(" ", "-")
