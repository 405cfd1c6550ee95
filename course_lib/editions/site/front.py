"""The pages around the lessons: the front page, how to open a lesson with a kernel, the symbols."""

import html
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from nbformat import NotebookNode

from course_lib.editions.html import toctree
from course_lib.editions.notebooks import printed, third_edition
from course_lib.editions.site.pages import explorer
from course_lib.editions.site.symbols import anchor_of, letter
from course_lib.lessons.catalog import LESSONS, PARTS, PATH_AIMS, PATHS, Lesson, lessons_for, part_title
from course_lib.teaching.quiz import TRUE

MEASURED = re.compile(r"^\(\d\d\.\w+\) ", re.MULTILINE)
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def index(notebooks: Mapping[str, NotebookNode], facts: Mapping[str, Mapping[str, Any]], readme: str) -> str:
    """Return the front page, in MyST Markdown, from the notebooks by file name, the facts of the lessons and README.

    Raises:
        ValueError: README has no table of measurements.
    """
    claims = sum(len(MEASURED.findall(printed(*notebook.cells))) for notebook in notebooks.values())
    wrong = {
        lesson: [
            *notebooks[lesson.notebook].metadata.course.mistakes,
            *(one["text"] for one in facts[lesson.number].get("sentences", ()) if one["right"] != TRUE),
        ]
        for lesson in LESSONS
    }
    trees = [
        toctree(part_title(part), [f"lessons/{lesson.name}" for lesson in LESSONS if lesson.part == part])
        for part in PARTS
    ]
    trees.append(toctree("Around the lessons", ["open", "symbols", "api/index"]))
    hours = sum(lesson.minutes for lesson in LESSONS) / 60
    return "\n\n".join(
        [
            "# Why the rules of deep learning hold",
            f"{len(LESSONS)} lessons take one rule of modern deep learning each, derive it in a few lines, and measure "
            f"every numbered statement: {claims:,} measurements stand on these pages, each below the equation that it "
            "tests. The last part takes everything into one real system, from text through an mBART model to named "
            f"features. All lessons together take about {hours:.0f} hours.",
            "Move a slider below, or start with [lesson 00](lessons/00_start_here.ipynb). "
            "[In JupyterLab](open.md) the exercises tell you which mistake you made.",
            "## Three paths",
            paths(),
            "## The question of each lesson",
            *(_part(part, notebooks, facts) for part in PARTS),
            "## What was measured",
            "On one machine with two cores, unless stated otherwise; ratios are CPU time of one thread.",
            f'<div class="course-measured">\n\n{read_measurements(readme)}\n\n</div>',
            "## Sentences that tempt",
            f"The course grew out of five collections of notes. The lessons put {sum(map(len, wrong.values()))} "
            "statements to the test that are wrong or need a condition; the code beside each shows what is right.",
            _mistakes(wrong, notebooks),
            *trees,
        ]
    )


def paths() -> str:
    """Return the paths of the catalog as cards: what each is for, its lessons in order, its hours."""
    cards = []
    for name, goals in PATHS.items():
        taken = lessons_for(*goals)
        links = " ".join(
            f'<a href="lessons/{one.name}.html" title="{html.escape(one.title)}">{one.number}</a>'
            for one in taken
        )
        hours = sum(one.minutes for one in taken) / 60
        cards.append(
            f'<section class="course-card"><h3>{name}</h3><p>{PATH_AIMS[name]}</p>'
            f"<p><strong>{len(taken)} lessons, about {hours:.0f} hours.</strong> Each comes after what it needs: "
            f'<span class="course-numbers">{links}</span></p></section>'
        )
    return f'<div class="course-cards">{"".join(cards)}</div>'


def _part(part: str, notebooks: Mapping[str, NotebookNode], facts: Mapping[str, Mapping[str, Any]]) -> str:
    blocks = [f"### {part_title(part)}"]
    for lesson in LESSONS:
        if lesson.part != part:
            continue
        own = facts[lesson.number]
        name, about = list(own["explorers"].items())[-1]
        needs = ", ".join(lesson.needs.split()) or "nothing"
        blocks += [
            f"#### [{lesson.number} {lesson.title}](lessons/{lesson.notebook})",
            notebooks[lesson.notebook].metadata.course.question,
            explorer(about, f"_explorers/{own['folder']}/{name}", first_only=True),
            f'<p class="course-needs">{lesson.minutes} minutes, after: {needs}</p>',
        ]
    return "\n\n".join(blocks)


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


def open_page(repository: str = "") -> str:
    """Return the page on how a lesson is opened with a kernel, with links to Binder where `repository` is known.

    Raises:
        ValueError: `repository` is not of the form "owner/name".
    """
    if repository and not REPOSITORY.fullmatch(repository):
        raise ValueError(f"repository must be 'owner/name' on GitHub, got {repository!r}")
    source = f"git clone https://github.com/{repository}.git course && cd course\n" if repository else ""
    where = "" if repository else " Call it in the folder of the course."
    rows = []
    for lesson in LESSONS:
        links = f"`notebooks/{lesson.notebook}`"
        if repository:
            links += f", [on Binder]({binder(repository, lesson)})"
        rows.append(
            f'<div class="course-anchor" id="lesson-{lesson.number}"></div>\n\n**{lesson.number} {lesson.title}**: {links}'
        )
    return "\n\n".join(
        [
            "# Open the course in JupyterLab",
            "On these pages you read, predict and move explorers. In JupyterLab you also change the code, and answers to "
            "exercises are checked: you are told which mistake you made. You need Python 3.11 or 3.12 and make.",
            f"```\n{source}make lab\n```",
            f"The command sets everything up at its first call and opens lesson 00.{where} "
            "Open another lesson from the list of files at the left:",
            *rows,
        ]
    )


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
