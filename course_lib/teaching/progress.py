"""What a learner has done, kept in one small file on their own machine.

The file is `.course_progress.json` in the folder that the notebook runs in, or the one that the
environment variable COURSE_PROGRESS names. Git ignores it and nothing is sent anywhere. A teacher to whom learners
hand their files can put them side by side: `python -m course_lib progress DIR`.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path

from course_lib.files import replacing

VARIABLE = "COURSE_PROGRESS"
DEFAULT_NAME = ".course_progress.json"
_FIELDS = {
    "exercises": {"attempts": int, "hints": int, "solved": bool, "mistakes": dict},
    "predictions": {"guess": str, "right": bool},
    "sentences": {"choice": str, "right": bool},
}
# What an entry may have besides: what tells the last answer from another one, and, for a guess that was asked for so,
# whether the learner was sure.
_OPTIONAL = {"exercises": {"answer": str}, "predictions": {"sure": bool}}
# How a page shows an exercise, with its title, and a prediction, with its question.
_SHOWN = (
    re.compile(r"^\*\*(\d\d\.\d+) (.+?)\*\* ", re.MULTILINE),
    re.compile(r"^\*\*Prediction (\d\d\.P\d+)\.\*\* (.+)$", re.MULTILINE),
)
_WRITING = threading.Lock()
# What files from before there were quizzes lack.
_LATER = ("sentences",)


def parsed(text: str) -> dict[str, dict[str, dict]]:
    """Return what the text of a progress file holds, by id: {"exercises": {...}, "predictions": {...}, "sentences": {...}}.

    Raises:
        ValueError: the text is not that of a progress file.
    """
    try:
        state = json.loads(text)
        return {
            kind: {
                name: _entry(fields, _OPTIONAL.get(kind, {}), entry)
                for name, entry in (state.get(kind, {}) if kind in _LATER else state[kind]).items()
            }
            for kind, fields in _FIELDS.items()
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not what a progress file holds ({type(error).__name__}: {error})") from error


def _entry(fields: dict[str, type], optional: dict[str, type], entry: dict) -> dict:
    """Return the fields of an entry; files from before mistakes were kept have none."""
    known = {"mistakes": {}, **entry}
    fields = fields | {field: kind for field, kind in optional.items() if field in entry}
    entry = {field: known[field] for field in fields}
    kinds = [*fields.values(), *(int for _ in known["mistakes"])]
    values = [*entry.values(), *known["mistakes"].values()]
    if any(type(value) is not kind for value, kind in zip(values, kinds, strict=True)):
        raise ValueError(f"an entry holds a value of the wrong kind: {entry}")
    return entry


def _untouched() -> dict:
    return {"attempts": 0, "hints": 0, "solved": False, "mistakes": {}}


class Report:
    """A Markdown table that a notebook renders and a terminal prints."""

    def __init__(self, markdown: str):
        self.markdown = markdown

    def __repr__(self) -> str:
        return self.markdown

    def _repr_markdown_(self) -> str:
        return self.markdown


def _one_at_a_time(record: Callable) -> Callable:
    """Let a method read, change and write the file alone: a guess may be recorded beside a cell that runs."""

    @wraps(record)
    def alone(*args, **kwargs):
        with _WRITING:
            return record(*args, **kwargs)

    return alone


class Progress:
    """Solved exercises, hints taken, predictions made and sentences marked, saved at every change."""

    def __init__(self, path: Path | str | None = None):
        self.path = Path(path or os.environ.get(VARIABLE) or DEFAULT_NAME)

    def read(self) -> dict[str, dict[str, dict]]:
        """Return by id {"exercises": {...}, "predictions": {...}, "sentences": {...}}; empty where nothing was done yet.

        A file that is not readable as progress is kept under another name, never overwritten.
        """
        empty = {kind: {} for kind in _FIELDS}
        if not self.path.exists():
            return empty
        try:
            return parsed(self.path.read_text(encoding="utf-8"))
        except ValueError:
            aside, count = self.path.with_suffix(".damaged.json"), 1
            while aside.exists():
                aside, count = self.path.with_suffix(f".damaged{count}.json"), count + 1
            os.replace(self.path, aside)
            print(f"The progress file {self.path.name} could not be read and was kept as {aside.name}.")
            return empty

    def _write(self, state: dict) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as file:
            file.write(json.dumps(state, indent=1, sort_keys=True).encode())

    @_one_at_a_time
    def record_attempt(
        self, exercise_id: str, *, solved: bool, mistake: str | None = None, answer: str | None = None
    ) -> None:
        """Count an attempt, and the named mistake that it made; an exercise once solved keeps its counts.

        `answer` is a text that tells answers apart, None where nothing does. A page that runs again hands in what it did
        before: the last answer once more is no new attempt.
        """
        state = self.read()
        entry = state["exercises"].setdefault(exercise_id, _untouched())
        if entry["solved"] or (answer is not None and answer == entry.get("answer")):
            return
        entry["attempts"] += 1
        entry["answer"] = answer or ""
        entry["solved"] = solved
        if mistake is not None:
            entry["mistakes"][mistake] = entry["mistakes"].get(mistake, 0) + 1
        self._write(state)

    @_one_at_a_time
    def record_hint(self, exercise_id: str, number: int) -> None:
        """Remember that hint `number` (from 1) was read."""
        state = self.read()
        entry = state["exercises"].setdefault(exercise_id, _untouched())
        entry["hints"] = max(entry["hints"], number)
        self._write(state)

    @_one_at_a_time
    def record_prediction(
        self, prediction_id: str, *, guess: str, right: bool, sure: bool | None = None
    ) -> None:
        """Keep the first guess, and if the learner was `sure` where that is known: a second look is not a prediction."""
        state = self.read()
        known = {} if sure is None else {"sure": sure}
        state["predictions"].setdefault(prediction_id, {"guess": guess, "right": right, **known})
        self._write(state)

    @_one_at_a_time
    def record_sentence(self, sentence_id: str, *, choice: str, right: bool) -> None:
        """Keep how a sentence of a quiz was first marked."""
        state = self.read()
        state["sentences"].setdefault(sentence_id, {"choice": choice, "right": right})
        self._write(state)

    def exercise(self, exercise_id: str) -> dict:
        """Return {"attempts", "hints", "solved", "mistakes"} of one exercise; mistakes are counted by name."""
        entry = self.read()["exercises"].get(exercise_id, _untouched())
        return {field: entry[field] for field in _FIELDS["exercises"]}

    def report(self) -> Report:
        """Return for a notebook how far each lesson is, and below it each exercise and prediction with its title.

        Titles are read from the pages in the working directory; where a page does not show one, the number stands alone.
        """
        state = self.read()
        numbers = sorted({name.split(".")[0] for kind in state.values() for name in kind})
        rows = []
        for number in numbers:
            exercises = [e for name, e in state["exercises"].items() if name.startswith(number + ".")]
            tried = sum(e["attempts"] > 0 for e in exercises)
            guesses = [p for name, p in state["predictions"].items() if name.startswith(number + ".")]
            marked = [s for name, s in state["sentences"].items() if name.startswith(number + ".")]
            rows.append(
                f"| {number} | {sum(e['solved'] for e in exercises)} of {tried} tried "
                f"| {sum(e['hints'] for e in exercises)} | {sum(p['right'] for p in guesses)} of {len(guesses)} "
                f"| {sum(s['right'] for s in marked)} of {len(marked)} |"
            )
        if not rows:
            return Report("Nothing recorded yet: solve an exercise, then run this cell again.")
        header = "| Lesson | Exercises solved | Hints read | Predictions right | Sentences right |\n|---|---|---|---|---|\n"
        titles = _titles(Path.cwd(), numbers)
        lists = [_listed(state, number, titles) for number in numbers]
        return Report("\n\n".join([header + "\n".join(rows), *lists]))

    def reset(self) -> None:
        """Forget everything: remove the file."""
        self.path.unlink(missing_ok=True)


def _titles(pages: Path, numbers: Iterable[str]) -> dict[str, str]:
    """Return the titles of lessons, exercises and predictions by number, as the lessons' notebooks show them."""
    found = {}
    for path in (path for number in numbers for path in sorted(pages.glob(f"{number}_*.ipynb"))):
        try:
            cells = json.loads(path.read_bytes())["cells"]
            texts = ["".join(cell["source"]) for cell in cells]
            found[path.name[:2]] = texts[0].partition("\n")[0].lstrip("# ")
            texts += [
                "".join(output.get("data", {}).get("text/markdown", ""))
                for cell in cells
                for output in cell.get("outputs", [])
            ]
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue  # a learner may have left anything under this name
        found |= {match[1]: match[2] for text in texts for shown in _SHOWN for match in shown.finditer(text)}
    return found


def _listed(state: dict, lesson: str, titles: Mapping[str, str]) -> str:
    """Return what was done in a lesson, a line for each exercise and prediction."""

    def named(number: str) -> str:
        return f"{number} {titles[number]}" if number in titles else number

    lines = [f"**{named(lesson)}**\n"]
    for number, done in sorted(state["exercises"].items(), key=_order):
        if number.startswith(lesson + "."):
            status = "solved" if done["solved"] else "not solved yet"
            lines.append(
                f"- {named(number)} *{status}, attempts: {done['attempts']}, hints: {done['hints']}*"
            )
    for number, made in sorted(state["predictions"].items(), key=_order):
        if number.startswith(lesson + "."):
            lines.append(
                f"- {named(number)} *You guessed “{made['guess']}”: {'right' if made['right'] else 'wrong'}.*"
            )
    return "\n".join(lines)


def _order(entry: tuple[str, dict]) -> tuple[int, str]:
    """Sort by number: the tenth behind the ninth."""
    return len(entry[0]), entry[0]
