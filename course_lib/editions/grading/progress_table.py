"""Learners' progress files side by side: who solved what after how many attempts and hints, and which mistakes were common.

The files are those that learners chose to hand over. They are read, never changed, and nothing is sent anywhere; a
learner is known by the name of the file alone.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median

import jinja2
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from course_lib.lessons import exercises_of, predictions_of
from course_lib.teaching.progress import DEFAULT_NAME, parsed

MISTAKES_SHOWN = 3  # of one exercise, the most common ones
SURE = {True: "sure", False: "a guess", None: ""}
ABSENT = "(not in this edition of the course)"


@dataclass(frozen=True)
class Row:
    """What one learner did in one exercise; `mistakes` counts the attempts by the name of the mistake."""

    learner: str
    exercise: str
    attempts: int
    hints: int
    solved: bool
    mistakes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Guess:
    """What one learner guessed first in one prediction; `sure` is None where nobody asked."""

    learner: str
    prediction: str
    guess: str
    right: bool
    sure: bool | None = None


@dataclass(frozen=True)
class Collected:
    """What all files hold, the learners (one of them may have done nothing yet), and a line for each file not read."""

    learners: tuple[str, ...]
    rows: tuple[Row, ...]
    guesses: tuple[Guess, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A title, the heads of the columns, and rows of texts and numbers."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


def collect(directory: Path) -> Collected:
    """Read every `*.json` below a directory; a file that is no progress file is named, and the others are read.

    Raises:
        ValueError: no progress file is found below the directory.
    """
    learners, rows, guesses, unread = [], [], [], []
    for path in sorted(path for path in directory.rglob("*") if path.suffix.lower() == ".json"):
        try:
            state = parsed(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            unread.append(_plain(f"{path.relative_to(directory)} is not read: {error}"))
            continue
        place = path.relative_to(directory)
        name = _learner(place)
        learners.append(name if name not in learners else _plain(place.as_posix()))
        for number, entry in state["exercises"].items():
            mistakes = {_plain(name): count for name, count in entry["mistakes"].items()}
            rows.append(Row(learners[-1], _plain(number), **(entry | {"mistakes": mistakes})))
        for number, entry in state["predictions"].items():
            guesses.append(Guess(learners[-1], _plain(number), **(entry | {"guess": _plain(entry["guess"])})))
    if not learners:
        raise ValueError(
            "\n".join([f"{directory} holds no progress file (*.json) that can be read", *unread])
        )
    return Collected(
        tuple(learners),
        tuple(sorted(rows, key=lambda row: row.exercise)),
        tuple(sorted(guesses, key=lambda guess: (guess.learner, guess.prediction))),
        tuple(unread),
    )


def _learner(place: Path) -> str:
    """The path below the directory without its suffix, or the folder of a file that still has its first name."""
    named = place.parent if place.name == DEFAULT_NAME and place.parent.name else place.with_suffix("")
    return _plain(named.as_posix())


def _plain(text: str) -> str:
    """Text from a file without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def by_learner(collected: Collected) -> Table:
    """Return one row for each learner: lessons, exercises solved and tried, attempts, hints."""
    rows = []
    for learner in collected.learners:
        done = [row for row in collected.rows if row.learner == learner]
        lessons = " ".join(dict.fromkeys(row.exercise.partition(".")[0] for row in done))
        solved, tried = sum(row.solved for row in done), sum(row.attempts > 0 for row in done)
        rows.append(
            (
                learner,
                lessons,
                solved,
                tried,
                sum(row.attempts for row in done),
                sum(row.hints for row in done),
            )
        )
    return Table("By learner", ("Learner", "Lessons", "Solved", "Tried", "Attempts", "Hints"), tuple(rows))


def by_exercise(collected: Collected) -> Table:
    """Return one row for each exercise: tried and solved by how many, median attempts and hints of those who tried."""
    rows = []
    for number, group in groupby(collected.rows, key=lambda row: row.exercise):
        tried = [row for row in group if row.attempts > 0]
        if tried:
            attempts, hints = median(row.attempts for row in tried), median(row.hints for row in tried)
            rows.append(
                (number, _title(number), len(tried), sum(row.solved for row in tried), attempts, hints)
            )
    heads = ("Exercise", "Title", "Tried by", "Solved by", "Median attempts", "Median hints")
    return Table("By exercise", heads, tuple(rows))


def common_mistakes(collected: Collected) -> Table:
    """Return the most common named mistakes of each exercise: made by how many, with the sentence that explains them."""
    rows = []
    for number, group in groupby(collected.rows, key=lambda row: row.exercise):
        made = Counter(name for row in group for name in row.mistakes)
        sentences = _sentences(number)
        rows += [
            (number, name, count, sentences.get(name, "")) for name, count in made.most_common(MISTAKES_SHOWN)
        ]
    return Table("Common mistakes", ("Exercise", "Mistake", "Made by", "What the learner read"), tuple(rows))


def details(collected: Collected) -> Table:
    """Return one row for each learner and exercise."""
    rows = tuple(
        (
            row.learner,
            row.exercise,
            _title(row.exercise),
            "yes" if row.solved else "no",
            row.attempts,
            row.hints,
            "; ".join(f"{name} ({count})" for name, count in row.mistakes.items()),
        )
        for row in sorted(collected.rows, key=lambda row: row.learner)
    )
    heads = ("Learner", "Exercise", "Title", "Solved", "Attempts", "Hints", "Mistakes")
    return Table("Who solved what", heads, rows)


def predictions(collected: Collected) -> Table:
    """Return one row for each learner and prediction, with the question and the first guess."""
    rows = tuple(
        (
            one.learner,
            one.prediction,
            _question(one.prediction),
            one.guess,
            SURE[one.sure],
            "yes" if one.right else "no",
        )
        for one in collected.guesses
    )
    heads = ("Learner", "Prediction", "Question", "First guess", "Sure", "Right")
    return Table("Who guessed what", heads, rows)


def by_prediction(collected: Collected) -> Table:
    """Return one row for each prediction: guessed first by how many, right how often, and of those who were sure."""
    rows = []
    for number, group in groupby(
        sorted(collected.guesses, key=lambda one: one.prediction), key=lambda one: one.prediction
    ):
        made = list(group)
        sure = [one for one in made if one.sure]
        counts = (len(made), sum(one.right for one in made), len(sure), sum(one.right for one in sure))
        rows.append((number, _question(number), *counts))
    heads = ("Prediction", "Question", "Guessed by", "Right", "Sure", "Sure and right")
    return Table("By prediction", heads, tuple(rows))


def _question(number: str) -> str:
    ask = predictions_of(number.partition(".")[0]).get(number)
    return ask.question if ask else ABSENT


def _exercise(number: str):
    return exercises_of(number.partition(".")[0]).get(number)


def _title(number: str) -> str:
    exercise = _exercise(number)
    return exercise.title if exercise else ABSENT


def _sentences(number: str) -> dict[str, str]:
    exercise = _exercise(number)
    return {mistake.name: mistake.explanation for mistake in exercise.mistakes} if exercise else {}


def print_table(table: Table, console: Console) -> None:
    """Print a table to a terminal; numbers stand at the right."""
    shown = RichTable(title=table.title, title_justify="left")
    for index, head in enumerate(table.heads):
        numeric = bool(table.rows) and all(not isinstance(row[index], str) for row in table.rows)
        shown.add_column(head, justify="right" if numeric else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(_shown(cell)) for cell in row))
    console.print(shown)


def to_csv(table: Table) -> bytes:
    """Return a table as CSV in UTF-8; text that a spreadsheet would take for a formula starts with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.heads)
    for row in table.rows:
        writer.writerow(["'" + cell if str(cell).startswith(("=", "+", "-", "@")) else cell for cell in row])
    return text.getvalue().encode("utf-8")


def to_html(
    tables: Sequence[Table], lines: Iterable[str], *, title: str = "Progress of the learners"
) -> bytes:
    """Return a page of its own with lines of text and tables; every text from a file is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = _shown
    page = environment.get_template("progress.html.j2").render(title=title, tables=tables, lines=list(lines))
    return page.encode("utf-8")


def _shown(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}"
