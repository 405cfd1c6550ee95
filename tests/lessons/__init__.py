"""Everything that the lessons offer, collected, so that one test covers each of today's and tomorrow's."""

from course_lib.lessons import lesson_modules

MODULES = {lesson.number: module for lesson, module in lesson_modules()}
REGISTERS = {number: module.lesson for number, module in MODULES.items()}
EXERCISES = [exercise for register in REGISTERS.values() for exercise in register.exercises.values()]
EXPLORERS = [(number, kind) for number, register in REGISTERS.items() for kind in register.explorers.values()]
PREDICTIONS = [ask for register in REGISTERS.values() for ask in register.predictions.items()]
FIGURES = [(number, name) for number, register in REGISTERS.items() for name in register.figures]
