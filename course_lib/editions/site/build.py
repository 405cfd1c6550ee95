"""Build the site: gather the facts, write the pages, let Sphinx make HTML of them."""

import json
import pkgutil
import shutil
from pathlib import Path

import course_lib
from course_lib.editions.cache import PACKAGE
from course_lib.editions.html import building, make_accessible, mathjax, sphinx, write
from course_lib.editions.notebooks import read
from course_lib.editions.site import front, sources, symbols
from course_lib.editions.site.facts import gather
from course_lib.editions.site.pages import anchors, has_page, library_page, page
from course_lib.lessons.catalog import LESSONS

TITLE = "Why the rules of deep learning hold"
# Of one processor, from nothing, on the 2-core machine of the README's table.
MINUTES = 4


def plan(out: Path, work: Path) -> list[str]:
    """What is going to be done, how long it takes, and what a later call finds, as lines."""
    drawn = any(work.glob("frames/*/facts.json"))
    takes = "a minute or more, as much as changed" if drawn else f"about {MINUTES} minutes of processor time"
    return [
        f"Builds the pages of {len(LESSONS)} lessons in {out}, {takes}: first the explorers are drawn, a lesson at a time,",
        f"then Sphinx makes the pages. Ctrl+C stops it, and a later call uses what is in {work} again.",
    ]


def build(
    notebooks: Path, out: Path, *, work: Path, readme: Path, repository: str = "", workers: int = 1
) -> int:
    """Build the site of the lessons in the folder `notebooks` into the folder `out`; return the number of warnings.

    `work` keeps what a later build uses again. `readme` is the page with the table of measurements; `docs/setup.md` and
    `docs/sources.md` lie beside it. `repository`, "owner/name" on GitHub, adds links: each lesson on Binder, and the
    form for mistakes.

    Raises:
        FileNotFoundError: a lesson's notebook or a file of the site is not there.
        ValueError: two equations have one number, or `repository` is no "owner/name".
    """
    front.check_repository(repository)
    stored = {lesson.notebook: read(notebooks / lesson.notebook) for lesson in LESSONS}
    facts = gather(work / "frames", workers=workers)
    where = anchors(stored)
    source = work / "source"
    setup, listed, measured = (
        path.read_text(encoding="utf-8")
        for path in (readme.parent / "docs" / "setup.md", readme.parent / "docs" / "sources.md", readme)
    )
    named = sources.index(sources.read_sources(listed))
    texts = {lesson.name: sources.said(stored[lesson.notebook]) for lesson in LESSONS}
    first = front.FIRST
    question = front.first_question(
        stored[first.notebook], facts[first.number], where, pictures=source / "pictures"
    )
    pages = {
        "index.md": front.index(stored, facts, question, repository),
        "lessons.md": front.lessons_page(stored),
        "open.md": front.open_page(setup, repository),
        "correct.md": front.correct_page(repository),
        "measured.md": front.measured_page(measured),
        "sentences.md": front.sentences_page(stored, facts),
        "symbols.md": front.symbols_page(facts),
        "sources.md": sources.sources_page(listed, texts, sources.docstrings(PACKAGE), named),
        **library(),
    }
    for lesson in LESSONS:
        made = page(
            stored[lesson.notebook],
            lesson,
            facts[lesson.number],
            where,
            pictures=source / "lessons" / "pictures",
            introduced=symbols.places(
                stored[lesson.notebook], lesson.number, facts[lesson.number]["symbols"]
            ),
        )
        for cell in made.cells:
            if cell.cell_type == "markdown":
                cell.source = sources.link_sources(cell.source, named, page="../sources.html")
        pages[f"lessons/{lesson.notebook}"] = json.dumps(made, ensure_ascii=False)
    write(source, pages)
    with building(work / "doctrees") as anew:
        more = {"course_named": named, "course_correct": "correct", "course_repository": repository}
        warnings = sphinx(source, out, work / "doctrees", where, title=TITLE, anew=anew, more=more)
        # Frames of an earlier build have other folders.
        shutil.rmtree(out / "_explorers", ignore_errors=True)
        shutil.copytree(work / "frames", out / "_explorers", ignore=shutil.ignore_patterns("*.json", ".*"))
        mathjax(out / "_static" / "mathjax")
        make_accessible(out)
    return warnings


def library() -> dict[str, str]:
    """Return the pages of the library, one a package with a section for each module, and their index."""
    pages: dict[str, list[str]] = {}
    for module in pkgutil.walk_packages(course_lib.__path__, "course_lib."):
        if has_page(module.name):
            name = module.name
            section = (
                f"{name}\n{'-' * len(name)}\n\n.. automodule:: {name}\n   :members:\n   :ignore-module-all:\n"
            )
            pages.setdefault(library_page(name), []).append(section)
    made = {
        f"{page}.rst": "\n".join([f"{Path(page).name}\n{'=' * len(Path(page).name)}\n", *sections])
        for page, sections in sorted(pages.items())
    }
    entries = "\n".join(Path(page).name for page in sorted(pages))
    made["api/index.md"] = (
        "# The library\n\nEvery public function states the shapes of its tensors, units and ranges, the errors that it "
        f"raises and its source.\n\n```{{toctree}}\n:maxdepth: 2\n\n{entries}\n```\n"
    )
    return made
