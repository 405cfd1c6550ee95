"""What a lesson costs its learner: words, claims and minutes of its main line, computed from the notebook.

Minutes are an honest sum: words / 120 for reading with care, the minutes that each exercise names, 1 for each code cell
that is shown, 3 for each prediction and each task of an explorer, 1 for each sentence of the quiz. The appendix is not
part of the main line.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nbformat import NotebookNode

from course_lib.editions.notebooks import PREDICTION, states
from course_lib.teaching import Exercise

APPENDIX = "Appendix"
TASKS = "**Tasks.**"
WORDS_A_MINUTE, CELL, PLAY, SENTENCE = 120, 1, 3, 1
LIMITS = {"words": 2000, "claims": 12, "exercise_minutes": 40, "minutes": 90}
CLAIM = re.compile(r"^\s*claim\(", re.MULTILINE)
DISPLAYED = re.compile(r"\$\$.*?\$\$", re.DOTALL)
INLINE = re.compile(r"(?<!\\)\$[^$]+?(?<!\\)\$")
# A table's rules, a list's bullet, a heading's sign: nothing to read.
MARKUP = re.compile(r"^\s*(\|[-| :]+\||[-*#]+|\d+\.)(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Budget:
    """What the main line of a lesson holds, and the minutes that follow."""

    words: int
    claims: int
    exercise_minutes: int
    cells: int
    plays: int
    sentences: int

    @property
    def spent(self) -> float:
        """Minutes in all."""
        answers = self.words / WORDS_A_MINUTE + self.exercise_minutes
        return answers + CELL * self.cells + PLAY * self.plays + SENTENCE * self.sentences

    @property
    def minutes(self) -> int:
        """Minutes in all, rounded."""
        return round(self.spent)

    def line(self) -> str:
        """Return what the lesson's first cell says of it."""
        return (
            f"**Time.** About {self.minutes} minutes: {self.words:,} words, {self.claims} claims, "
            f"{self.exercise_minutes} minutes of exercises."
        )

    def overdrawn(self) -> list[str]:
        """Return what is over its limit, as text."""
        return [
            f"{name.replace('_', ' ')}: {getattr(self, name):,}, at most {most:,}"
            for name, most in LIMITS.items()
            if getattr(self, name) > most
        ]


def main_line(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """Give the cells before the appendix."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith(f"## {APPENDIX}"):
            return
        yield cell


def words(text: str) -> int:
    """Count the words of Markdown: a formula in a line is one, one that stands alone none."""
    text = MARKUP.sub(" ", INLINE.sub(" formula ", DISPLAYED.sub(" ", text)))
    return sum(bool(re.search(r"\w", word)) for word in text.replace("|", " ").split())


def is_hidden(cell: NotebookNode) -> bool:
    """Whether a cell is stored with its source hidden."""
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def budget(notebook: NotebookNode, exercises: Mapping[str, Exercise], sentences: int) -> Budget:
    """Return the budget of a stored lesson; `sentences` is how many its quiz has."""
    text, code, asked, tasks, answers = [], [], [], 0, 0
    for cell in main_line(notebook):
        if states(cell):
            continue  # its minutes count with its answer cell
        if cell.cell_type == "markdown":
            # The first cell is read, too, but not what it says of time.
            text.append(re.sub(r"^\*\*Time\.\*\*.*$", "", cell.source, flags=re.MULTILINE))
            if cell.source.startswith(TASKS):
                tasks += len(re.findall(r"^(?:- |\d+\. )", cell.source, re.MULTILINE))
        elif "exercise" in cell.metadata:
            answers += exercises[cell.metadata.exercise].minutes
        else:
            code.append(cell)
            shown = [out.get("data", {}).get("text/markdown", "") for out in cell.outputs]
            asked += [one for one in shown if PREDICTION.match(one)]
            text += [one for one in shown if not PREDICTION.match(one)]
    return Budget(
        words=sum(map(words, text)),
        claims=sum(len(CLAIM.findall(cell.source)) for cell in code),
        exercise_minutes=answers,
        cells=sum(not is_hidden(cell) for cell in code),
        plays=len(asked) + tasks,
        sentences=sentences,
    )
