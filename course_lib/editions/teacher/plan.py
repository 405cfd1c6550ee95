"""A lesson plan, taken from the lesson itself: minutes, what to prepare, to show and to ask, what goes wrong."""

import ast
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course_lib.editions.budget import APPENDIX, CELL, PLAY, SENTENCE, TASKS, WORDS_A_MINUTE, Budget, budget
from course_lib.editions.notebooks import EXPLORER, FOLDED_QUIZ, PREDICTION, section, states
from course_lib.lessons.catalog import LESSONS, Lesson
from course_lib.teaching import Exercise, Explorer, Mistake, Prediction
from course_lib.teaching.exercise import N_CASES
from course_lib.teaching.quiz import TRUE, opening, verdict
from course_lib.teaching.register import Contents

HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)
MARKUP = re.compile(r"[|$*_`\[\]\\]")


@dataclass
class Part:
    """A section of a lesson: its title, its cells, and the numbers of its exercises and predictions."""

    title: str
    cells: list[NotebookNode] = field(default_factory=list)
    exercises: list[str] = field(default_factory=list)
    predictions: list[str] = field(default_factory=list)
    appendix: bool = False  # for which a lesson's minutes leave no room

    @property
    def optional(self) -> bool:
        """Whether its title says that it may be left out."""
        return self.title.startswith("Optional") or self.appendix

    def cost(self, register: Contents) -> Budget:
        """Return what the section costs, as `budget` counts it for a whole lesson."""
        shown = [output.get("data", {}) for cell in self.cells for output in cell.get("outputs", ())]
        asked = any(one.get("text/html", "").startswith(FOLDED_QUIZ) for one in shown)
        sentences = len(register.sentences) if asked else 0
        return budget(NotebookNode(cells=self.cells), register.exercises, sentences)


def parts(notebook: NotebookNode) -> list[Part]:
    """Return the sections of a lesson in order, those without anything of their own left out."""
    found = [Part("Opening")]
    for cell in notebook.cells:
        if number := states(cell):
            found[-1].cells.append(cell)
            found[-1].exercises.append(number)
            continue
        if cell.cell_type == "markdown":
            before, *rest = HEADING.split(cell.source)
            texts = [before, *rest[1::2]]
            # The appendix is the last section: what follows its heading belongs to it.
            for title in rest[::2]:
                found.append(Part(title, appendix=found[-1].appendix or title == APPENDIX))
            for one, text in zip(found[-len(texts) :], texts, strict=True):
                one.cells += [new_markdown_cell(text.strip())] if text.strip() else []
            continue
        found[-1].cells.append(cell)
        shown = [output.get("data", {}).get("text/markdown", "") for output in cell.outputs]
        found[-1].predictions += [one[1] for text in shown if (one := PREDICTION.match(text))]
    return [one for one in found[1:] if one.cells]


def assign_minutes(lesson: Lesson, notebook: NotebookNode, register: Contents) -> list[tuple[Part, int]]:
    """Return the sections with their minutes, whole numbers that add up to those of the lesson.

    An exercise takes the minutes that it names. The rest of the lesson's time is spread over the sections by what their
    text, code, predictions, tasks and sentences take. Optional sections share the time that the lesson gives them on
    top, or, where it gives none, take what they cost.
    """
    found, extra = parts(notebook), notebook.metadata.course.optional_minutes
    apart = [one for one in found if one.appendix or (one.optional and extra)]
    within = [one for one in found if one not in apart]
    minutes = {}
    for group, total in ((within, lesson.minutes), (apart, extra)):
        costs = [one.cost(register) for one in group]
        own = [cost.exercise_minutes for cost in costs]
        spent = [cost.spent - cost.exercise_minutes for cost in costs]
        rest = max(total - sum(own), 0) if group is within or extra else round(sum(spent))
        shared = split_in_proportion(spent, rest)
        minutes |= {id(one): a + b for one, a, b in zip(group, own, shared, strict=True)}
    return [(one, minutes[id(one)]) for one in found]


def split_in_proportion(weights: Sequence[float], total: int) -> list[int]:
    """Split a whole number in proportion to weights, into whole numbers that add up to it."""
    exact = [total * weight / max(sum(weights), 1) for weight in weights]
    made = [int(value) for value in exact]
    by_loss = sorted(range(len(made)), key=lambda i: made[i] - exact[i])
    for i in by_loss[: total - sum(made)] if made else ():
        made[i] += 1
    return made


# The page


def page(
    lesson: Lesson,
    notebook: NotebookNode,
    register: Contents,
    predictions: Sequence[Prediction],
    seconds: float,
) -> str:
    """Return the plan of a lesson in MyST Markdown; `seconds` is what its notebook took to run."""
    place = lesson.name
    code = "\n".join(one.source for one in notebook.cells if one.cell_type == "code")
    first = next((name for name in EXPLORER.findall(code) if name in register.explorers), None)
    blocks = [
        f"# {lesson.number} Plan: {lesson.title}",
        notebook.metadata.course.goal,
        f"[Notebook with solutions](../lessons/{place}.ipynb), [bank](../banks/{place}.md), "
        f'<a href="../slides/{place}.html">slides</a>, <a href="../notebooks/{place}.ipynb" download>notebook file</a>',
        "## Prepare",
        prepare(lesson, notebook, register, seconds),
        "## Minutes",
        minutes(lesson, notebook, register),
        "## Ask",
        "Ask before the figure, the claim or the sentence that answers it; each choice has an answer in the "
        f"[bank](../banks/{place}.md#Predictions).",
        *(write_question(one) for one in predictions),
        "## Show",
        *(write_explorer(kind, notebook, first=name == first) for name, kind in register.explorers.items()),
        "## Likely misunderstandings",
        misunderstandings(lesson, notebook, register),
        f"```{{toctree}}\n:hidden:\n\n../lessons/{place}\n../banks/{place}\n../slides/{place}\n```",
    ]
    return "\n\n".join(blocks)


def prepare(lesson: Lesson, notebook: NotebookNode, register: Contents, seconds: float) -> str:
    """Return what a teacher does before the lesson, as a list."""
    needed = lesson.needs.split()
    plans = ", ".join(
        f"[{one.number} {one.title}](../plans/{one.name}.md)" for one in LESSONS if one.number in needed
    )
    asked = ", ".join(register.predictions)
    total = sum(one.minutes for one in register.exercises.values())
    rows = [
        f"What the students need: {notebook.metadata.course.background}",
        *([f"Lessons before this one: {plans}."] if plans else []),
        "Run the notebook once on the machine that you will show it on. Here it took "
        f"{seconds:.0f} seconds, solutions included.",
        f"Make the guesses of {asked} yourself before the lesson: they are asked before anything gives them away.",
        f"Choose exercises for the lesson and for later: all {len(register.exercises)} take {total} minutes.",
    ]
    return "\n".join(f"- {row}" for row in rows)


def minutes(lesson: Lesson, notebook: NotebookNode, register: Contents) -> str:
    """Return the table of sections with their minutes, and how these come about."""
    rows = ["| Section | Minutes | Predictions and exercises |", "|---|---|---|"]
    extra = notebook.metadata.course.optional_minutes
    for part, taken in assign_minutes(lesson, notebook, register):
        held = [*part.predictions, *(f"{n} ({register.exercises[n].minutes})" for n in part.exercises)]
        on_top = part.appendix or (part.optional and extra)
        share = f"{taken or 'under 1'}{' (on top)' if on_top else ''}"
        rows.append(f"| {part.title} | {share} | {', '.join(held)} |")
    more = f", and {extra} more with its optional sections" if extra else ""
    return (
        f"The lesson takes {lesson.minutes} minutes{more}. Each exercise takes the minutes in brackets; the rest "
        f"is spread over the sections: a minute for {WORDS_A_MINUTE} words, {CELL} for a cell of code that is shown, "
        f"{PLAY} for each prediction and each task of an explorer, {SENTENCE} for a sentence of the quiz.\n\n"
        + "\n".join(rows)
    )


def write_question(about: Prediction) -> str:
    """Return a prediction as it is asked, without its answer."""
    choices = "".join(f"<li>{html.escape(choice)}</li>" for choice in about.choices)
    return f"**{about.id}.** {about.question}\n\n<ul>{choices}</ul>"


def write_explorer(kind: type[Explorer], notebook: NotebookNode, *, first: bool) -> str:
    """Return an explorer's settings with what each shows in words, and for the first what its notebook says to try."""
    rows = ["| Setting | What it shows |", "|---|---|"]
    for setting, words in settings(kind, notebook):
        rows.append(f"| {escape_cell(setting)} | {escape_cell(words)} |")
    tried = [line for line in tasks(notebook).splitlines() if line.startswith("- ")]
    todo = ["Things to try, from the notebook:", "\n".join(tried)] if tried and first else []
    return "\n\n".join([f"### {kind.title}", f"<p>{html.escape(kind.summary)}</p>", *todo, "\n".join(rows)])


def tasks(notebook: NotebookNode) -> str:
    """Return the Markdown with what a notebook asks to try in its explorers."""
    cells = [
        one.source for one in notebook.cells if one.cell_type == "markdown" and one.source.startswith(TASKS)
    ]
    return "\n\n".join(cells) or section(notebook, "Explorer")


def settings(kind: type[Explorer], notebook: NotebookNode) -> list[tuple[str, str]]:
    """Return settings of an explorer with its words: at the start, each control at its ends, and those of the notebook."""
    explorer = kind()
    start = dict(explorer.settings)
    said = lambda changed: ", ".join(explorer.controls[n].say(v) for n, v in changed.items())  # noqa: E731
    changes = [{}, *read_settings(notebook, kind.__name__)]
    for name, control in explorer.controls.items():
        changes += [{name: value} for value in dict.fromkeys(control.values()) if value != start[name]]
    return [
        (
            said(one) or f"At the start: {said(start)}",
            explorer.words(explorer.compute(**explorer.checked({**start, **one}))),
        )
        for one in changes
    ]


def read_settings(notebook: NotebookNode, name: str) -> list[dict[str, Any]]:
    """Return the settings that a notebook gives, by literal values, to the explorer of a class of this name."""
    held, found = set(), []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Assign) and f"lesson.{name}(" in ast.unparse(node.value):
                held |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in {f"{one}.set" for one in held}:
                values = {one.arg: one.value for one in node.keywords}
                if all(isinstance(value, ast.Constant) for value in values.values()):
                    found.append({key: value.value for key, value in values.items()})
    return found


def misunderstandings(lesson: Lesson, notebook: NotebookNode, register: Contents) -> str:
    """Return the likely misunderstandings of a lesson, the most telling first.

    First come tempting sentences, those of the quiz or what the sources of the lesson have wrong. Then come mistakes
    from the banks, those first that give right outputs on the largest share of fresh inputs: a check by hand is the
    least likely to find them.
    """
    blocks = []
    if tempting := [one for one in register.sentences.values() if one.right != TRUE]:
        rows = [
            f"<li>{html.escape(one.text)} <strong>{html.escape(opening(verdict(one)))}.</strong> "
            f"{html.escape(one.explanation)}</li>"
            for one in tempting
        ]
        blocks += [
            "Sentences of the quiz that tempt, "
            f"[each with what decides](../lessons/{lesson.notebook}#Which-of-these-sentences-are-true?):",
            f"<ul>{''.join(rows)}</ul>",
        ]
    if wrong := notebook.metadata.course.mistakes:
        blocks += [
            "What the notes that the lesson grew out of have wrong, "
            f"[each with a counterexample](../lessons/{lesson.notebook}#What-the-notes-say-wrongly):",
            "\n".join(f"- {title}" for title in wrong),
        ]
    rows = [
        f"<li><strong>{exercise.id}, {html.escape(mistake.name)}</strong>"
        f"{f', right on {share:.0%} of the inputs' if share else ''}. {html.escape(mistake.explanation)}</li>"
        for share, exercise, mistake in rank_mistakes(register)
    ]
    blocks += [
        "From the bank, at most two of an exercise, those first that a check by hand is least likely to find: they are "
        f"right on the largest share of {N_CASES} random inputs. [All mistakes](../banks/{lesson.name}.md) are in the bank.",
        f"<ol>{''.join(rows)}</ol>",
    ]
    return "\n\n".join(blocks)


def rank_mistakes(register: Contents) -> list[tuple[float, Exercise, Mistake]]:
    """Return two mistakes of each exercise with the share of inputs on which they are right, the largest first."""
    found = []
    for exercise in register.exercises.values():
        rated = [(share_right(exercise, mistake), exercise, mistake) for mistake in exercise.mistakes]
        found += sorted(rated, key=lambda one: -one[0])[:2]
    return sorted(found, key=lambda one: -one[0])


def share_right(exercise: Exercise, mistake: Mistake) -> float:
    """Return the share of random inputs on which a mistake gives a right output; 0 where there are no inputs."""
    if exercise.kind != "function":
        return 0.0
    same = torch.Generator().manual_seed(0)
    right, total = exercise.count_right(exercise.wrong_answer(mistake), generator=same)
    return right / total


def escape_cell(text: str) -> str:
    """Return plain text as a cell of a table in Markdown."""
    return MARKUP.sub(lambda found: f"&#{ord(found[0])};", html.escape(" ".join(text.split())))
