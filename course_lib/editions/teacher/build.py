"""Build the edition for teachers: make what belongs to each lesson, and join it to linked pages."""

import json
import re
import shutil
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import nbformat
import sphinx_revealjs
from nbformat import NotebookNode

from course_lib.editions.cache import find_made, fingerprint, folder_of, make_missing, sources
from course_lib.editions.html import STATIC, building, make_accessible, mathjax, sphinx, toctree, write
from course_lib.editions.notebooks import read
from course_lib.editions.site.pages import anchors, link_equations
from course_lib.editions.site.pages import page as notebook_page
from course_lib.editions.teacher import bank, plan, slides
from course_lib.editions.teacher.solved import find_unsolved, run, solved
from course_lib.files import new_directory
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS, PARTS, Lesson, part_title
from course_lib.teaching import Contents

HERE = Path(__file__).parent
TITLE = "Why the rules of deep learning hold: for teachers"
# What a run, and what is made of it, depend on besides what `course_lib.editions.cache.fingerprint` knows.
RUN = ("editions/teacher/solved.py", "pipeline", "interpret/browser")
MADE = ("editions",)
# A link to a page of a lesson, in Markdown and in HTML.
LINK = re.compile(r"\[([^\[\]]*)\]\((?:\.\./\w+/)?(\d\d)_\w+\.(?:ipynb|md)[^)\s]*\)")
ANCHOR = re.compile(r"<a href=\"\.\./lessons/(\d\d)_[^\"]*\">(.*?)</a>")
TO_LESSON = re.compile(r"\]\((\d\d_\w+\.ipynb)")


def build(notebooks: Path, out: Path, *, work: Path, numbers: Sequence[str] = (), workers: int = 1) -> int:
    """Build the edition into the folder `out`; return the number of Sphinx's warnings.

    `numbers` are those of the lessons to make, all of them if it is empty; lessons that were made before stay.
    `work` keeps what a later build uses again, and `workers` is the number of processes.

    Raises:
        ValueError: there is no lesson of such a number, `workers` is below 1, or a reference does not solve its exercise.
        FileNotFoundError: a lesson's notebook is not there.
    """
    if unknown := set(numbers) - {lesson.number for lesson in LESSONS}:
        raise ValueError(f"numbers must be those of lessons, got {sorted(unknown)}")
    chosen = [lesson for lesson in LESSONS if not numbers or lesson.number in numbers]
    make_all(chosen, notebooks, work, workers=workers)
    made = {lesson: folder for lesson in LESSONS for folder in find_made(work / "made", lesson)}
    numbers = {lesson.number for lesson in made}
    where = anchors({lesson.notebook: read(notebooks / lesson.notebook) for lesson in made})
    source = work / "source"
    write(source, pages(made, where, source))
    with building(work / "doctrees") as anew:
        warnings = sphinx(source, out, work / "doctrees", where, title=TITLE, anew=anew)
        for lesson, folder in made.items():
            for kind in ("notebooks", "slides"):
                (out / kind).mkdir(exist_ok=True)
            shutil.copy(folder / "notebook.ipynb", out / "notebooks" / lesson.notebook)
            deck = (folder / "slides.html").read_text(encoding="utf-8")
            (out / "slides" / f"{lesson.name}.html").write_text(
                unlink_missing(deck, numbers), encoding="utf-8"
            )
        copy_slide_files(out)
        make_accessible(out)
    return warnings


# One lesson


def make_all(lessons: Sequence[Lesson], notebooks: Path, work: Path, *, workers: int) -> None:
    """Run lessons and make their texts, each in a folder of `work` that its sources name; what is there is kept."""
    runs, made = {}, {}
    for lesson in lessons:
        ran = sources(RUN, fingerprint(lesson).encode(), (notebooks / lesson.notebook).read_bytes())
        runs[lesson] = folder_of(work / "runs", lesson, ran)
        made[lesson] = folder_of(work / "made", lesson, sources(MADE, ran.encode()))
    make_missing(run_solved, {lesson: (lesson, notebooks) for lesson in lessons}, runs, workers=workers)
    make_missing(write_parts, {lesson: (lesson, runs[lesson]) for lesson in lessons}, made, workers=workers)


def run_solved(lesson: Lesson, notebooks: Path, folder: Path) -> None:
    """Run a lesson's notebook with its solutions; write it into `folder`, and how many seconds it took.

    Raises:
        ValueError: a reference does not solve its exercise in the notebook.
    """
    notebook = solved(read(notebooks / lesson.notebook), contents_of(lesson).exercises)
    start = time.perf_counter()
    run(notebook, notebooks)
    seconds = time.perf_counter() - start
    if wrong := find_unsolved(notebook):
        raise ValueError(f"{lesson.notebook}: the references of {wrong} do not solve their exercises")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_directory(folder) as made:
        nbformat.write(notebook, made / "notebook.ipynb")
        (made / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")


def write_parts(lesson: Lesson, ran: Path, folder: Path) -> None:
    """Write what is made of a lesson into `folder`, from the folder in which `run_solved` left its notebook."""
    import torch

    torch.set_num_threads(1)
    notebook = nbformat.read(ran / "notebook.ipynb", as_version=4)
    seconds = json.loads((ran / "seconds.json").read_text(encoding="utf-8"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_directory(folder) as made:
        shutil.copy(ran / "notebook.ipynb", made)
        for name, text in parts(lesson, notebook, contents_of(lesson), seconds).items():
            (made / name).write_text(text, encoding="utf-8")


def parts(lesson: Lesson, notebook: NotebookNode, register: Contents, seconds: float) -> dict[str, str]:
    """Return a lesson's bank, plan, slides and predictions by file name, from its notebook as it was run."""
    predictions = {number: ask.example() for number, ask in register.predictions.items()}
    asked = list(predictions.values())
    answers = {one.id: {"choices": list(one.choices.items()), "answer": one.answer} for one in asked}
    return {
        "banks.md": bank.page(
            lesson, list(register.exercises.values()), asked, list(register.sentences.values())
        ),
        "plans.md": plan.page(lesson, notebook, register, asked, seconds),
        "slides.html": slides.page(lesson, notebook, register, predictions),
        "predictions.json": json.dumps(answers, ensure_ascii=False),
    }


# The pages


def pages(made: dict[Lesson, Path], where: dict[str, str], source: Path) -> dict[str, str]:
    """Return the pages that Sphinx reads, by their path, of the lessons that were made; figures go to `source`."""
    numbers = {lesson.number for lesson in made}
    found = {"index.md": index(made)}
    for lesson, folder in made.items():
        for kind in ("plans", "banks"):
            text = (folder / f"{kind}.md").read_text(encoding="utf-8")
            text = TO_LESSON.sub(r"](../lessons/\1", text)
            found[f"{kind}/{lesson.name}.md"] = link_equations(
                unlink_missing(text, numbers), where, prefix="../lessons/"
            )
        # For the list of pages at the side; `build` puts the slides themselves in its place.
        found[f"slides/{lesson.name}.md"] = f"# {lesson.number} Slides: {lesson.title}"
        notebook = nbformat.read(folder / "notebook.ipynb", as_version=4)
        predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
        facts = {"predictions": predictions, "hints": {}, "explorers": {}, "folder": ""}
        pictures = source / "lessons" / "pictures"
        shown = notebook_page(notebook, lesson, facts, where, pictures=pictures, library=False, guess=False)
        for cell in shown.cells:
            if cell.cell_type == "markdown":
                cell.source = unlink_missing(cell.source, numbers)
        found[f"lessons/{lesson.notebook}"] = json.dumps(shown, ensure_ascii=False)
    return found


def unlink_missing(text: str, numbers: Collection[str]) -> str:
    """Return Markdown or HTML whose links to lessons that are not among `numbers` are plain text."""
    text = LINK.sub(lambda found: found[0] if found[2] in numbers else found[1], text)
    return ANCHOR.sub(lambda found: found[0] if found[1] in numbers else found[2], text)


def index(made: Collection[Lesson]) -> str:
    """Return the first page: what there is of each lesson, and where."""
    blocks = [
        f"# {TITLE}",
        "For each lesson: a plan for teaching it, the notebook with its solutions, the bank of its exercises and "
        "predictions with every mistake that the checker knows, and slides. Slides have the code below the slide "
        "that it belongs to: go to the right to follow the lesson, and down where somebody asks.",
        "These pages hold all answers. Keep them from pages that students read.",
    ]
    trees = []
    for part in PARTS:
        lessons = [lesson for lesson in made if lesson.part == part]
        if lessons:
            rows = [
                f"- {one.number} {one.title}, {one.minutes} minutes: [plan](plans/{one.name}.md), "
                f"[solutions](lessons/{one.notebook}), [bank](banks/{one.name}.md), "
                f'<a href="slides/{one.name}.html">slides</a>'
                for one in lessons
            ]
            blocks += [f"## {part_title(part)}", "\n".join(rows)]
            trees.append(toctree(part_title(part), [f"plans/{one.name}" for one in lessons]))
    return "\n\n".join([*blocks, *trees])


def copy_slide_files(out: Path) -> None:
    """Put reveal.js, which a package brings along, MathJax and the slides' own files beside the slides."""
    mathjax(out / "_static" / "mathjax")
    shutil.copy(STATIC / "icon.svg", out / "_static")
    reveal = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
    (out / "slides" / "reveal").mkdir(parents=True, exist_ok=True)
    for path in (reveal / "dist" / "reveal.js", reveal / "dist" / "reveal.css", reveal / "LICENSE"):
        shutil.copy(path, out / "slides" / "reveal")
    for path in (HERE / "static").iterdir():
        shutil.copy(path, out / "slides")
