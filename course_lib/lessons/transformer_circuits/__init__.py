"""Lesson 26, transformer circuits: what its notebook shows."""

from course_lib.lessons.transformer_circuits.contents import lesson
from course_lib.lessons.transformer_circuits.exercises import *
from course_lib.lessons.transformer_circuits.pictures import *
from course_lib.lessons.transformer_circuits.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
