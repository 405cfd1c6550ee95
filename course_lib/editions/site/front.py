"""The pages around the lessons: the front page, the list of lessons, how to open and to correct them, the symbols."""

import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from nbformat import NotebookNode, v4

from course_lib.editions.html import toctree
from course_lib.editions.notebooks import answers, printed, third_edition
from course_lib.editions.site.pages import explorer, page
from course_lib.editions.site.symbols import anchor_of, letter
from course_lib.lessons.catalog import LESSONS, PARTS, PATH_AIMS, PATHS, Lesson, lessons_for, part_title
from course_lib.teaching.quiz import TRUE

MEASURED = re.compile(r"^\(\d\d\.\w+\) ", re.MULTILINE)
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
# The lesson that the front page takes its question and its explorer from.
FIRST = LESSONS[1]


def index(
    notebooks: Mapping[str, NotebookNode],
    facts: Mapping[str, Mapping[str, Any]],
    question: str,
    repository: str = "",
) -> str:
    """Return the front page, in MyST Markdown, from the notebooks by file name and the facts of the lessons.

    `question` is what `first_question` returns. `repository`, "owner/name" on GitHub, is what is cloned.
    """
    claims = sum(len(MEASURED.findall(printed(*notebook.cells))) for notebook in notebooks.values())
    own = facts[FIRST.number]
    name, about = next(iter(own["explorers"].items()))
    return "\n\n".join(
        [
            "# Why the rules of deep learning hold",
            "Why does training crawl at the largest step size that does not explode? Why is attention divided by a "
            "square root? What has one number inside a translation model found? "
            f"Each of {len(LESSONS)} lessons takes one rule of modern deep learning. You guess, derive the rule in a few "
            f"lines, move the picture, and see every numbered statement measured, {claims:,} in all. The last part reads "
            "named features out of a real model.",
            "**For whom.** You train networks or study them, know some Python, derivatives and products of matrices, and "
            "want to know why a rule holds, and where it stops.",
            "**What is needed.** For these pages, a browser. To change the code and have your answers checked: Python 3.11, "
            "3.12 or 3.13, no GPU, and one command ([what it does, and how it works on your system](open.md)):",
            f"```\n{_clone(repository)}make lab\n```",
            paths(),
            "## Guess first",
            "Ten measurements of each of 442 patients are used to predict how far a disease has progressed a year later, "
            "and gradient descent fits the weights. Of 60 step sizes, up to just below the one at which it explodes, the "
            "best is drawn as a solid line:",
            question,
            "## Now move it",
            "One step size has to suit all directions. Here are two: the steep one sets the border, and the flat one has "
            "to wait. Raise the step size until the path explodes; then make σ₁ larger, and do it again.",
            explorer(about, f"_explorers/{own['folder']}/{name}", most=2),
            f"[Lesson {FIRST.number}](lessons/{FIRST.notebook}) derives the border, and asks how much of it holds "
            f"in a network. [Lesson {LESSONS[0].number}](lessons/{LESSONS[0].notebook}) shows how a lesson works.",
            "## What else is here",
            "- [All lessons](lessons.md), each with its question, and the three paths.\n"
            "- [What was measured](measured.md), and [sentences that tempt](sentences.md).\n"
            "- [Symbols](symbols.md), [sources](sources.md), and [the library](api/index.md) behind the lessons.",
            *_trees(),
        ]
    )


def _trees() -> list[str]:
    trees = []
    for part in PARTS:
        entries = [f"lessons/{lesson.name}" for lesson in LESSONS if lesson.part == part]
        trees.append(toctree(part_title(part), entries if part else ["lessons", *entries]))
    around = ["open", "measured", "sentences", "symbols", "sources", "correct", "api/index"]
    return [*trees, toctree("Around the lessons", around)]


def first_question(
    notebook: NotebookNode, facts: Mapping[str, Any], where: Mapping[str, str], *, pictures: Path
) -> str:
    """Return the first prediction of lesson 01 in Markdown, with the figure before it and what answers it.

    Figures are written into `pictures`, a folder beside the page.
    """
    number = f"{FIRST.number}.P1"

    def shows(cell: NotebookNode, kind: str, begin: str = "") -> bool:
        return any(out.get("data", {}).get(kind, "").startswith(begin) for out in cell.get("outputs", ()))

    def has_figure(cell: NotebookNode) -> bool:
        return any("image/png" in out.get("data", {}) for out in cell.get("outputs", ()))

    asks = next(
        i
        for i, cell in enumerate(notebook.cells)
        if shows(cell, "text/markdown", f"**Prediction {number}.**")
    )
    figure = max(i for i in range(asks) if has_figure(notebook.cells[i]))
    answered = [
        cell
        for cell in notebook.cells
        if answers(cell) == number and (cell.cell_type == "markdown" or has_figure(cell))
    ]
    cells = [notebook.cells[i] for i in (0, figure, asks)] + answered
    made = page(
        v4.new_notebook(cells=cells, metadata=notebook.metadata),
        FIRST,
        facts,
        where,
        pictures=pictures,
        library=False,
    )
    # The first is the lesson's title; code is the lesson's, too.
    return "\n\n".join(cell.source for cell in made.cells[1:] if cell.cell_type == "markdown")


def paths() -> str:
    """Return the paths of the catalog as cards: what each is for, how many lessons and hours it has."""
    cards = []
    for name, goals in PATHS.items():
        taken = lessons_for(*goals)
        cards.append(
            f'<section class="course-card"><h2><a href="lessons.html#{name}">{name}</a></h2><p>{PATH_AIMS[name]}</p>'
            f"<p><strong>{len(taken)} lessons, about {hours(taken)} hours</strong></p></section>"
        )
    return f'<div class="course-cards">{"".join(cards)}</div>'


def hours(lessons: Iterable[Lesson]) -> int:
    """Return the hours that lessons take, rounded."""
    return round(sum(lesson.minutes for lesson in lessons) / 60)


def lessons_page(notebooks: Mapping[str, NotebookNode]) -> str:
    """Return the page of all lessons, with each one's question, and of the paths through them."""
    blocks = [
        "# All lessons",
        f"{len(LESSONS)} lessons, about {hours(LESSONS)} hours. A path is a selection; in it each lesson comes after what "
        "it needs. Or read what you like: the last column says what a lesson builds on.",
    ]
    for name, goals in PATHS.items():
        taken = lessons_for(*goals)
        steps = " · ".join(
            f'<a href="lessons/{one.name}.html" title="{html.escape(one.title)}">{one.number}</a>'
            for one in taken
        )
        blocks += [
            f"## {name}",
            f"{PATH_AIMS[name]} {len(taken)} lessons, about {hours(taken)} hours:",
            f'<p class="course-numbers">{steps}</p>',
        ]
    for part in PARTS:
        rows = ["| Lesson | Its question | Minutes | After |", "|---|---|---|---|"]
        for lesson in LESSONS:
            if lesson.part == part:
                question = _cell(notebooks[lesson.notebook].metadata.course.question)
                needs = ", ".join(lesson.needs.split()) or "nothing"
                link = f"[{lesson.number} {_cell(lesson.title)}](lessons/{lesson.notebook})"
                rows.append(f"| {link} | {question} | {lesson.minutes} | {needs} |")
        blocks += [f"## {part_title(part)}", "\n".join(rows)]
    return "\n\n".join(blocks)


def measured_page(readme: str) -> str:
    """Return the page with the table of measurements of README.

    Raises:
        ValueError: README has none.
    """
    return "\n\n".join(
        [
            "# What was measured",
            "On one machine with two cores, unless stated otherwise; ratios are CPU time of one thread.",
            f'<div class="course-measured">\n\n{read_measurements(readme)}\n\n</div>',
        ]
    )


def sentences_page(notebooks: Mapping[str, NotebookNode], facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of the statements that the lessons show to be wrong or to need a condition."""
    wrong = {
        lesson: [
            *notebooks[lesson.notebook].metadata.course.mistakes,
            *(one["text"] for one in facts[lesson.number].get("sentences", ()) if one["right"] != TRUE),
        ]
        for lesson in LESSONS
    }
    return "\n\n".join(
        [
            "# Sentences that tempt",
            f"The course grew out of five collections of notes. The lessons put {sum(map(len, wrong.values()))} "
            "statements to the test that are wrong or need a condition; the code beside each shows what is right.",
            _mistakes(wrong, notebooks),
        ]
    )


def read_measurements(readme: str) -> str:
    """Return the table of the section "Measured" of README, as it stands there.

    Raises:
        ValueError: there is none.
    """
    found = re.search(r"^## Measured\n.*?((?:^\|[^\n]*\n)+)", readme, re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError("README must have a table in its section '## Measured', and none was found")
    return found[1].strip()


def _mistakes(wrong: Mapping[Lesson, list[str]], notebooks: Mapping[str, NotebookNode]) -> str:
    rows = []
    for lesson, titles in wrong.items():
        if titles:
            quiz = third_edition(notebooks[lesson.notebook])
            section = "Which-of-these-sentences-are-true?" if quiz else "What-the-notes-say-wrongly"
            target = f"lessons/{lesson.notebook}#{section}"
            rows.append(
                f"- [{lesson.number} {lesson.title}]({target}): "
                + "; ".join(t.rstrip(".") for t in titles)
                + "."
            )
    return "\n".join(rows)


# Opening a lesson


def check_repository(repository: str) -> str:
    """Return `repository`, or raise ValueError where it is neither empty nor of the form "owner/name"."""
    if repository and not REPOSITORY.fullmatch(repository):
        raise ValueError(f"repository must be 'owner/name' on GitHub, got {repository!r}")
    return repository


def _clone(repository: str) -> str:
    return (
        f"git clone --depth 1 https://github.com/{repository}.git course && cd course\n" if repository else ""
    )


def open_page(setup: str, repository: str = "") -> str:
    """Return the page on how a lesson is opened with a kernel, with links to Binder where `repository` is known.

    `setup` is the text of `docs/setup.md`.
    """
    where = "" if repository else " Call it in the folder of the course."
    rows = []
    for lesson in LESSONS:
        links = f"`notebooks/{lesson.notebook}`"
        if repository:
            links += f", [on Binder]({binder(repository, lesson)})"
        rows.append(
            f'<div class="course-anchor" id="lesson-{lesson.number}"></div>\n\n**{lesson.number} {lesson.title}**: {links}'
        )
    _, _, systems = setup.partition("\n")
    return "\n\n".join(
        [
            "# Open the course in JupyterLab",
            "On these pages you read, predict and move explorers. In JupyterLab you also change the code, and answers to "
            "exercises are checked: you are told which mistake you made.",
            f"```\n{_clone(repository)}make lab\n```",
            "The command says what it is going to download, sets everything up at its first call and opens lesson 00."
            f"{where} Open another lesson from the list of files at the left.",
            systems.strip().replace("../CONTRIBUTING.md#report-a-mistake", "correct.md"),
            "## The file of each lesson",
            *rows,
        ]
    )


def correct_page(repository: str = "") -> str:
    """Return the page on how a page is corrected, with a link to the form where `repository` is known."""
    form = (
        f"[Fill in the form]({issue(repository)})"
        if repository
        else "Write to the people who gave you the course"
    )
    return "\n\n".join(
        [
            "# Correct a page",
            "A number that is wrong, a sentence that misleads, a picture that cannot be read, a command that fails: all of "
            "them are worth a line.",
            "## Say so",
            f"{form}: the page, what it says, and what is right and how you know. A few lines of code that decide it are "
            "best.",
            "## Mend it",
            "| What is wrong | Where it stands |\n|---|---|\n"
            "| text or code of a lesson | its notebook, `notebooks/NUMBER_NAME.ipynb`, the only copy of its text |\n"
            "| its pictures, explorers, predictions | `course_lib/lessons/NAME/pictures.py` |\n"
            "| its exercises, hints, sentences | `exercises.py` and `quiz.py` beside it |\n"
            "| a page of the library | the docstring in `course_lib` |\n"
            "| a source, a system's commands, a measurement | `docs/sources.md`, `docs/setup.md`, `README.md` |\n"
            "| all other pages | `course_lib/editions/site/front.py` |",
            "After a change of lesson 19, run it anew, and check what changed:",
            "```\nmake store LESSONS=19\nmake quick\n```",
            "`CONTRIBUTING.md` says what a page holds and what is checked.",
        ]
    )


def issue(repository: str, page: str = "") -> str:
    """Return the address of the form for mistakes, filled in with the page where one is given."""
    asked = urlencode({"template": "mistake.yml", **({"page": page} if page else {})})
    return f"https://github.com/{repository}/issues/new?{asked}"


def binder(repository: str, lesson: Lesson) -> str:
    """Return the address that opens a lesson on Binder."""
    path = quote(f"notebooks/{lesson.notebook}", safe="")
    return f"https://mybinder.org/v2/gh/{repository}/HEAD?labpath={path}"


# Symbols


def symbols_page(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of symbols: those that the lessons' text introduces, and those that an explorer can move."""
    return "\n\n".join(
        [
            "# Symbols",
            "A letter means one thing in a lesson, and may mean another in the next. Each link leads to the place "
            "where the lesson introduces the symbol.",
            "## Greek letters",
            list_symbols(facts, greek=True),
            "## Latin letters",
            list_symbols(facts, greek=False),
            "## What the explorers move",
            list_controls(facts),
        ]
    )


def list_symbols(facts: Mapping[str, Mapping[str, Any]], *, greek: bool) -> str:
    """Return the table of symbols in the lessons' text with Greek or Latin letters, what each stands for, and where."""
    found: dict[tuple[str, str], list[str]] = {}
    for lesson in LESSONS:
        for place, (symbol, meaning) in enumerate(facts[lesson.number]["symbols"].items(), start=1):
            if (len(letter(symbol)) > 1) == greek:
                page = f"lessons/{lesson.name}.html#{anchor_of(lesson.number, place)}"
                link = f'<a href="{page}">{lesson.number}</a>'
                found.setdefault((symbol, meaning), []).append(link)
    rows = ["| Symbol | Stands for | Introduced in |", "|---|---|---|"]
    for symbol, meaning in sorted(found, key=lambda one: (letter(one[0]).lower(), one[0], one[1])):
        rows.append(f"| ${symbol}$ | {_cell(meaning)} | {', '.join(found[symbol, meaning])} |")
    return "\n".join(rows)


def list_controls(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the symbols that an explorer can move, what each stands for, and in which lessons."""
    found: dict[str, dict[str, list[Lesson]]] = {}
    for lesson in LESSONS:
        for about in facts[lesson.number]["explorers"].values():
            for control in about["controls"]:
                if control["symbol"]:
                    name = control["label"].replace(f" {control['symbol']}", "", 1)
                    lessons = found.setdefault(control["symbol"], {}).setdefault(name, [])
                    if lesson not in lessons:
                        lessons.append(lesson)
    rows = ["| Symbol | Stands for | Lessons |", "|---|---|---|"]
    for symbol, meanings in sorted(found.items(), key=lambda item: item[0].lower()):
        for name, lessons in meanings.items():
            links = ", ".join(f"[{one.number}](lessons/{one.notebook})" for one in lessons)
            rows.append(f"| {_cell(symbol)} | {_cell(name)} | {links} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """Take the meaning from the characters that a table in Markdown would read as markup."""
    return "".join(f"\\{c}" if c in "\\`*_<>|$[]" else c for c in text)
