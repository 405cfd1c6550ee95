"""Everything that the lessons offer, collected, so that one test covers each of today's and tomorrow's."""

import inspect

from course_lib.lessons import lesson_modules
from course_lib.teaching.explorer import Explorer

MODULES = {lesson.number: module for lesson, module in lesson_modules()}
EXERCISES = [exercise for module in MODULES.values() for exercise in module.EXERCISES.values()]
EXPLORERS = [
    value
    for module in MODULES.values()
    for value in vars(module).values()
    if inspect.isclass(value) and issubclass(value, Explorer) and value.__module__.startswith(module.__name__)
]
PREDICTIONS = [
    value
    for module in MODULES.values()
    for name, value in vars(module).items()
    if name.endswith("_prediction") and inspect.isfunction(value)
]
FIGURES = [(number, name) for number, module in MODULES.items() for name in module.FIGURES]
