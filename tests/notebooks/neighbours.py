"""Plant a claim's nearest wrong neighbour in its experiment: the claim must fail. `python -m tests.notebooks.neighbours 19`

`NEIGHBOURS` of a lesson's learners names, for each claim, a text of the notebook's code and a wrong one in its place. The
notebook is run once; before a cell that holds such a text, a fork runs on from there with the slip, up to the claim. A
lesson of FROM_THE_START is run by each fork from its first cell.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a fork has the calling thread only

import nbformat

from course_lib.lessons.catalog import LESSONS, Lesson
from course_lib.teaching.claims import ClaimError
from tests.lessons.learners import LEARNERS

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
FROM_THE_START = {"32"}  # once the solver CLARABEL has started its threads, it waits for them in every fork
CAUGHT, MISSED, BROKEN = 0, 1, 2
SAID = {CAUGHT: "caught", MISSED: "NOT NOTICED", BROKEN: "does not run"}


def neighbours(lesson: Lesson) -> Mapping[str, tuple[str, str]]:
    """Return the slips of a lesson by the numbers of their claims; none where it has none."""
    return getattr(LEARNERS.get(lesson.slug), "NEIGHBOURS", {})


def code_of(lesson: Lesson) -> list[str]:
    """Return the sources of the code cells of a lesson's notebook."""
    cells = nbformat.read(NOTEBOOKS / lesson.notebook, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def try_all(lesson: Lesson, only: set[str] = frozenset()) -> dict[str, int]:
    """Return what became of each slip: CAUGHT, MISSED or BROKEN, by the claim's number."""
    os.chdir(NOTEBOOKS)
    code, found, scope = code_of(lesson), {}, {"__name__": "__main__"}
    for place, source in enumerate(code):
        for number, (old, new) in neighbours(lesson).items():
            if old in source and (not only or number in only):
                before = code[:place] if lesson.number in FROM_THE_START else []
                slipped = [*before, source.replace(old, new), *code[place + 1 :]]
                found[number] = in_a_fork(slipped, scope, number)
        if set(found) >= (only or set(neighbours(lesson))):
            break
        if lesson.number not in FROM_THE_START:
            execute(source, scope)
    return found


def execute(source: str, scope: dict) -> None:
    exec(compile(source, "<cell>", "exec"), scope)


def in_a_fork(cells: list[str], scope: dict, number: str) -> int:
    """Run cells up to the last that states claim `number`, in a fork; return how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = BROKEN
    try:
        status = outcome(cells, scope, number)
    except BaseException as error:  # whatever the slip breaks: the fork must end here
        print(f"{number}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(status)


def outcome(cells: list[str], scope: dict, number: str) -> int:
    """Return CAUGHT if claim `number` fails in these cells, whatever other claims do, else MISSED."""
    failed, claim = [], None

    def note(stated, *args, **kwargs):
        try:
            claim(stated, *args, **kwargs)
        except ClaimError:
            failed.append(stated)

    last = max(i for i, source in enumerate(cells) if f'claim("{number}"' in "".join(source.split()))
    for source in cells[: last + 1]:
        if scope.get("claim", note) is not note:  # imported by the page
            claim, scope["claim"] = scope["claim"], note
        execute(source, scope)
        if number in failed:
            return CAUGHT
    return MISSED


def main(numbers: list[str]) -> int:
    """Print what became of each slip of the named lessons, or of all; return how many were not noticed."""
    chosen = {}
    for lesson in LESSONS:
        own = {number for number in numbers if number.startswith(f"{lesson.number}.")}
        if neighbours(lesson) and (not numbers or lesson.number in numbers or own):
            chosen[lesson] = own
    if len(chosen) > 1:  # a page may change what torch does by default: each gets a process of its own
        each = [sorted(own) or [lesson.number] for lesson, own in chosen.items()]
        return sum(subprocess.run([sys.executable, "-m", __spec__.name, *own]).returncode for own in each)
    return sum(_lost(lesson, own) for lesson, own in chosen.items())


def _lost(lesson: Lesson, own: set[str]) -> int:
    """Print what became of each slip of a lesson; return how many were not noticed."""
    import matplotlib

    matplotlib.use("Agg")
    # What the pages print is not asked for here.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        found = try_all(lesson, own)
    for number, status in found.items():
        print(f"{number}: {SAID.get(status, 'does not run')}", flush=True)
    return sum(status != CAUGHT for status in found.values())


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
