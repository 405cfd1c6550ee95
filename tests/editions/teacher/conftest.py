"""One lesson as the edition for teachers sees it: its register and its stored notebook."""

import importlib
from pathlib import Path

import nbformat
import pytest

from course_lib.lessons.catalog import LESSONS
from course_lib.teaching import contents

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
BY_NUMBER = {lesson.number: lesson for lesson in LESSONS}


def register_of(lesson):
    importlib.import_module(f"course_lib.lessons.{lesson.slug}")
    return contents(f"course_lib.lessons.{lesson.slug}.pictures")


def stored(lesson):
    return nbformat.read(NOTEBOOKS / lesson.notebook, as_version=4)


@pytest.fixture(scope="session")
def lesson():
    return BY_NUMBER["01"]


@pytest.fixture(scope="session")
def register(lesson):
    return register_of(lesson)


@pytest.fixture(scope="session")
def notebook(lesson):
    return stored(lesson)


@pytest.fixture(scope="session")
def predictions(register):
    return {number: ask.example() for number, ask in register.predictions.items()}
