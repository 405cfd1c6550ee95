"""What the notebooks show: figures, explorers, predictions and exercises, one package a lesson."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from course_lib.lessons.catalog import LESSONS, Lesson

if TYPE_CHECKING:
    from course_lib.teaching import Contents, Exercise, Prediction


def lesson_modules() -> Iterator[tuple[Lesson, ModuleType]]:
    """Yield every lesson that is there, with its package."""
    for lesson in LESSONS:
        name = f"{__name__}.{lesson.slug}"
        if find_spec(name) is not None:
            yield lesson, import_module(name)


def contents_of(lesson: Lesson) -> "Contents":
    """Return what a lesson's package holds: its symbols, figures, explorers, predictions and exercises."""
    return import_module(f"{__name__}.{lesson.slug}").lesson


def exercises_of(number: str) -> "Mapping[str, Exercise]":
    """Return the exercises of the lesson of that number, by their ids; none where there is no such lesson."""
    return next((contents_of(lesson).exercises for lesson in LESSONS if lesson.number == number), {})


def predictions_of(number: str) -> "Mapping[str, Callable[..., Prediction]]":
    """Return what asks the predictions of the lesson of that number, by their ids; none where there is no such lesson."""
    return next((contents_of(lesson).predictions for lesson in LESSONS if lesson.number == number), {})


def draw_figures(directory: Path) -> list[Path]:
    """Draw every lesson's figures and explorer strips to `directory`, as NN_name.svg; return their paths."""
    from course_lib.figures import save_svg

    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for lesson, module in lesson_modules():
        for name, draw in module.FIGURES.items():
            paths.append(directory / f"{lesson.number}_{name}.svg")
            save_svg(draw(), paths[-1])
    return paths
