"""One lesson as the edition for teachers sees it: its register and its stored notebook."""

from pathlib import Path

import nbformat
import pytest

from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
BY_NUMBER = {lesson.number: lesson for lesson in LESSONS}


def stored(lesson):
    return nbformat.read(NOTEBOOKS / lesson.notebook, as_version=4)


@pytest.fixture(scope="session")
def lesson():
    return BY_NUMBER["01"]


@pytest.fixture(scope="session")
def register(lesson):
    return contents_of(lesson)


@pytest.fixture(scope="session")
def notebook(lesson):
    return stored(lesson)


@pytest.fixture(scope="session")
def predictions(register):
    return {number: ask.example() for number, ask in register.predictions.items()}
