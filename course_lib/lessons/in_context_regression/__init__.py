"""Lesson 28, in-context regression: what its notebook shows."""

from course_lib.lessons.in_context_regression.contents import lesson
from course_lib.lessons.in_context_regression.exercises import *
from course_lib.lessons.in_context_regression.measurements import *
from course_lib.lessons.in_context_regression.pictures import *
from course_lib.lessons.in_context_regression.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
