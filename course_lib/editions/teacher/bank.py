"""The bank of a lesson as a page: every exercise with its solution, hints and named mistakes, every prediction."""

import ast
import difflib
import html
import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from course_lib.lessons.catalog import Lesson
from course_lib.teaching import Exercise, Mistake, Prediction, Sentence
from course_lib.teaching.exercise import KINDS, Edit, edited_source, source_of
from course_lib.teaching.quiz import folded


def page(
    lesson: Lesson,
    exercises: Sequence[Exercise],
    predictions: Sequence[Prediction],
    sentences: Sequence[Sentence] = (),
) -> str:
    """Return the page, in MyST Markdown, of all exercises, predictions and sentences of the quiz of a lesson."""
    module = f"course_lib.lessons.{lesson.slug}.exercises"
    return "\n\n".join(
        [
            f"# {lesson.number} Bank: {lesson.title}",
            "What the checker of each exercise knows. A wrong answer that behaves like one of the mistakes below is "
            "told its sentence; any other wrong answer is told the property that fails, with the smallest "
            "counterexample found. A mistake in a function is shown as the lines that differ from the solution.",
            *(exercise(one, module) for one in exercises),
            "## Predictions",
            *map(prediction, predictions),
            *(
                ["## Sentences of the quiz", f"<ol>{''.join(map(folded, sentences))}</ol>"]
                if sentences
                else []
            ),
        ]
    )


def exercise(about: Exercise, module: str) -> str:
    """Return the section on one exercise, whose mistakes are written in the module named `module`."""
    parts = [
        f"## {about.id} {about.title}",
        f"*{facts(about)}*",
        about.prompt,
        "**Reference solution**",
        code(solution(about)),
    ]
    if about.needs or about.properties or about.agrees:
        said = [one.sentence for one in (*about.needs, *about.properties)] + [about.agrees] * bool(
            about.agrees
        )
        parts += ["**What else a wrong answer is told**", listed("ul", said)]
    parts += ["**Hints**", listed("ol", about.hints)]
    parts.append(f"**{len(about.mistakes)} mistakes that the checker knows**")
    for one in about.mistakes:
        parts += [
            f'<div class="course-mistake"><p><strong>{html.escape(one.name)}</strong></p>'
            f"<p>{html.escape(one.explanation)}</p></div>",
            show_mistake(about, one, module),
        ]
    return "\n\n".join(parts)


def facts(about: Exercise) -> str:
    """Return kind, difficulty and minutes of an exercise in one line."""
    return f"{KINDS[about.kind].capitalize()}, difficulty {about.difficulty} of 3, about {about.minutes} minutes."


def solution(about: Exercise) -> str:
    """Return the reference solution as code."""
    return source_of(about.reference).rstrip() if callable(about.reference) else repr(about.reference)


def show_mistake(about: Exercise, mistake: Mistake, module: str) -> str:
    """Return what a mistake looks like, as blocks of code: the wrong answer, and the test that recognises it."""
    wrong, test = read_mistakes(module)[mistake.name, mistake.explanation]
    if isinstance(mistake.solution, Edit):
        block = code(diff_from_reference(about, mistake.solution), "diff")
    elif not callable(mistake.solution):
        block = code(repr(mistake.solution))
    else:
        block = code(
            source_of(mistake.solution).rstrip() if isinstance(wrong, ast.Name) else ast.unparse(wrong)
        )
    if test is None:
        return block
    return f"{block}\n\nAn answer is taken for it when this holds:\n\n{code(ast.unparse(test))}"


def diff_from_reference(about: Exercise, change: Edit) -> str:
    """Return the lines by which a mistake differs from the reference."""
    right, wrong = source_of(about.reference), edited_source(about.reference, change)
    lines = difflib.unified_diff(right.splitlines(), wrong.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


@cache
def read_mistakes(module: str) -> Mapping[tuple[str, str], tuple[ast.expr, ast.expr | None]]:
    """Return how the mistakes of a module are written: solution and test, by their name and sentence."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.Tuple) and len(node.elts) in (3, 4):
            name, wrong, sentence, *test = node.elts
            if isinstance(name, ast.Constant) and isinstance(sentence, ast.Constant):
                found[name.value, sentence.value] = (wrong, test[0] if test else None)
    return found


def prediction(about: Prediction) -> str:
    """Return the section on one prediction: every choice with the sentence that explains it, the right one marked."""
    rows = [
        f"<dt>{html.escape(choice)}</dt>"
        f"<dd><strong>{'Right' if choice == about.answer else 'Not what happens'}.</strong> {html.escape(why)}</dd>"
        for choice, why in about.choices.items()
    ]
    return f"### {about.id}\n\n{about.question}\n\n<dl>{''.join(rows)}</dl>"


def code(text: str, language: str = "python") -> str:
    """Return a block of code in Markdown."""
    return f"```{language}\n{text}\n```"


def listed(kind: str, lines: Iterable[str]) -> str:
    """Return a list, "ul" or "ol", of lines of plain text."""
    return f"<{kind}>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</{kind}>"
