"""What a learner can show: one local page from the progress file, and the pages run again to check it.

It is a record, not a certificate: the file belongs to the learner, who can write anything into it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from course_lib.editions.grading.progress_table import ABSENT, SURE, Table
from course_lib.editions.plain import plain
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS, Lesson
from course_lib.teaching import Contents
from course_lib.teaching.progress import DEFAULT_NAME, Progress, parsed

TITLE = "What I predicted and solved"
NOTE = (
    "A record, not a certificate: it was made on this machine from the learner's own progress file. "
    "Guesses are the first ones; attempts count until an exercise was solved."
)


def read_record(path: Path) -> dict[str, dict[str, dict]]:
    """Return what a progress file holds; `path` is the file, or the folder in which it has its own name.

    Raises:
        ValueError: there is no such file, it is none of progress, or nothing was done yet.
    """
    file = path / DEFAULT_NAME if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"no progress file lies at {file}; name it, or the folder of the notebooks")
    try:
        state = parsed(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not any(state.values()):
        raise ValueError(f"{file} holds nothing yet: make a prediction or try an exercise first")
    return state


def summary(state: Mapping[str, Mapping[str, dict]]) -> list[str]:
    """Return lines that count: predictions by whether the learner was sure, exercises, sentences of the quiz."""
    made, tried = list(state["predictions"].values()), state["exercises"].values()
    lines = []
    for sure, words in ((True, "Sure"), (False, "Guessed"), (None, "Not asked whether sure")):
        some = [one["right"] for one in made if one.get("sure") == sure]
        lines += (
            [f"{words} in {_counted(len(some), 'prediction')}, right in {sum(some)} of them."] if some else []
        )
    attempted = [one for one in tried if one["attempts"]]
    if attempted:
        named = sum(bool(one["mistakes"]) for one in attempted)
        solved = sum(one["solved"] for one in attempted)
        lines.append(
            f"Solved {solved} of {_counted(len(attempted), 'exercise')} tried; met a named mistake in {named} of them."
        )
    if marked := list(state["sentences"].values()):
        lines.append(
            f"Marked {_counted(len(marked), 'sentence')}, {sum(one['right'] for one in marked)} of them right at once."
        )
    return lines


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def tables(state: Mapping[str, Mapping[str, dict]], checked: Mapping[str, str] | None = None) -> list[Table]:
    """Return the predictions with first guess and outcome, the exercises, and the mistakes met with their sentences.

    `checked` says by the number of an exercise what running its page again found.
    """
    by_number = {lesson.number: lesson for lesson in LESSONS}
    touched = {number.partition(".")[0] for kind in state.values() for number in kind}
    contents = {number: contents_of(by_number[number]) for number in touched if number in by_number}
    predicted, solved, met = [], [], []
    for number, made in sorted(state["predictions"].items()):
        question, outcome = map(plain, _outcome(contents.get(number.partition(".")[0]), number, made))
        right = "yes" if made["right"] else "no"
        predicted.append((number, question, plain(made["guess"]), SURE[made.get("sure")], outcome, right))
    for number, done in sorted(state["exercises"].items(), key=lambda one: (one[0][:2], len(one[0]), one[0])):
        register = contents.get(number.partition(".")[0])
        exercise = register.exercises.get(number) if register else None
        row = (number, plain(exercise.title) if exercise else ABSENT, "yes" if done["solved"] else "no")
        again = () if checked is None else (checked.get(number, ""),)
        solved.append((*row, done["attempts"], done["hints"], *again))
        sentences = {one.name: plain(one.explanation) for one in exercise.mistakes} if exercise else {}
        met += [(number, name, count, sentences.get(name, "")) for name, count in done["mistakes"].items()]
    again = () if checked is None else ("Run again",)
    return [
        Table(
            "Predictions",
            ("Number", "Question", "First guess", "Sure", "What happens", "Right"),
            tuple(predicted),
        ),
        Table("Exercises", ("Number", "Title", "Solved", "Attempts", "Hints", *again), tuple(solved)),
        Table("Mistakes met", ("Exercise", "Mistake", "Times", "What I read"), tuple(met)),
    ]


def _outcome(register: Contents | None, number: str, made: Mapping) -> tuple[str, str]:
    """Return the question of a prediction and its right choice."""
    ask = register.predictions.get(number) if register else None
    if ask is None:
        return ABSENT, made["guess"] if made["right"] else ""
    return ask.question, made["guess"] if made["right"] else ask.example().answer


def pages_to_check(state: Mapping[str, Mapping[str, dict]], notebooks: Path) -> dict[Lesson, list[str]]:
    """Return the lessons whose pages lie in a folder and hold exercises that the record calls solved, with these."""
    solved = [number for number, done in state["exercises"].items() if done["solved"]]
    found = {lesson: [one for one in solved if one.startswith(f"{lesson.number}.")] for lesson in LESSONS}
    return {lesson: numbers for lesson, numbers in found.items() if numbers and lesson.is_open(notebooks)}


def check(lesson: Lesson, notebooks: Path, numbers: Iterable[str]) -> dict[str, str]:
    """Run a learner's page from top to bottom, and return for each exercise whether its stored answer is solved again.

    Neither the page nor the progress file is changed.
    """
    from course_lib.editions.notebooks import read
    from course_lib.editions.teacher.solved import run

    with TemporaryDirectory() as folder:
        file = Path(folder) / "progress.json"
        run(read(notebooks / lesson.notebook), notebooks, progress=file, go_on=True)
        done = Progress(file).read()["exercises"]
    said = {True: "solved", False: "not solved", None: "no answer was checked"}
    return {number: said[done.get(number, {}).get("solved")] for number in numbers}
