"""A lesson on one page of A4, from its notebook and its register: question, minute by minute, what to watch for.

Nothing is run but the mistakes of its exercises, to find those that a check by hand misses.
"""

import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import jinja2
from nbconvert.filters import markdown2html
from nbformat import NotebookNode

from course_lib.editions.html import mathjax
from course_lib.editions.notebooks import read
from course_lib.editions.teacher.plan import Part, assign_minutes, rank_mistakes
from course_lib.files import replacing
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import Lesson
from course_lib.teaching import Contents
from course_lib.teaching.exercise import KINDS
from course_lib.teaching.quiz import TRUE, opening, verdict

LINK = re.compile(r"\[([^\[\]]*)\]\([^)\s]*\.ipynb[^)]*\)")
# Of the quiz and of the bank, what one page holds beside the rest.
SENTENCES, MISTAKES = 2, 3


def write_sheets(lessons: Sequence[Lesson], notebooks: Path, out: Path) -> list[Path]:
    """Write a page for each lesson into the folder `out`, and MathJax beside them; return the paths.

    Raises:
        FileNotFoundError: a lesson's notebook is not there.
    """
    stored = {lesson: read(notebooks / lesson.notebook) for lesson in lessons}
    out.mkdir(parents=True, exist_ok=True)
    mathjax(out / "mathjax")
    made = []
    for lesson, notebook in stored.items():
        made.append(out / f"{lesson.name}.html")
        with replacing(made[-1]) as file:
            file.write(page(lesson, notebook, contents_of(lesson)).encode())
    return made


def page(lesson: Lesson, notebook: NotebookNode, register: Contents) -> str:
    """Return the page of a lesson in HTML, which loads MathJax from beside it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = line
    timed = assign_minutes(lesson, notebook, register)
    later = [number for part, _ in timed if part.appendix for number in part.exercises]
    exercises = list(register.exercises.values())
    return environment.get_template("sheet.html.j2").render(
        lesson=lesson,
        about=notebook.metadata.course,
        asked=[ask.example() for ask in register.predictions.values()],
        rows=schedule(timed, register),
        watched=watch_for(register),
        exercises=exercises,
        later=later,
        within=sum(one.minutes for one in exercises if one.id not in later),
        kinds=KINDS,
    )


def schedule(timed: Sequence[tuple[Part, int]], register: Contents) -> list[tuple[str, str, str]]:
    """Return for each section of the main line from and to which minute it goes, its title, and what is done in it."""
    main = [(part, minutes) for part, minutes in timed if not part.appendix]
    ends = list(accumulate(minutes for _, minutes in main))
    rows = []
    for (part, minutes), end in zip(main, ends, strict=True):
        cost = part.cost(register)
        tasks, sentences = cost.plays - len(part.predictions), cost.sentences
        done = [f"ask {', '.join(part.predictions)}"] if part.predictions else []
        done += [f"explorer, {tasks} task{'s' if tasks > 1 else ''}"] if tasks else []
        done += (
            [f"exercise{'s' if part.exercises[1:] else ''} {', '.join(part.exercises)}"]
            if part.exercises
            else []
        )
        done += [f"{sentences} sentences to judge"] if sentences else []
        rows.append((f"{end - minutes}–{end}", part.title, "; ".join(done)))
    return rows


def watch_for(register: Contents) -> list[tuple[str, str]]:
    """Return what is likely to be misunderstood, each with the answer: tempting sentences, then mistakes that hide best."""
    tempting = [one for one in register.sentences.values() if one.right != TRUE][:SENTENCES]
    found = [(f"{one.id} “{one.text}”", f"{opening(verdict(one))}. {one.explanation}") for one in tempting]
    for share, exercise, mistake in rank_mistakes(register)[:MISTAKES]:
        seen = f", right on {share:.0%} of the inputs" if share else ""
        found.append((f"{exercise.id} {mistake.name}{seen}", mistake.explanation))
    return found


def line(markdown: str) -> str:
    """Return one line of Markdown as HTML, formulas untouched and links to lessons as words."""
    made = markdown2html(LINK.sub(r"\1", " ".join(markdown.split()))).strip()
    return made.removeprefix("<p>").removesuffix("</p>")
