"""Lesson 20, fixed_memory: what its notebook shows."""

from course_lib.lessons.fixed_memory.contents import lesson
from course_lib.lessons.fixed_memory.exercises import *
from course_lib.lessons.fixed_memory.pictures import *
from course_lib.lessons.fixed_memory.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
