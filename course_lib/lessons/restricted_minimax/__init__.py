"""Lesson 30, restricted minimax estimation: what its notebook shows."""

from course_lib.lessons.restricted_minimax.contents import lesson
from course_lib.lessons.restricted_minimax.exercises import *
from course_lib.lessons.restricted_minimax.pictures import *
from course_lib.lessons.restricted_minimax.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
