"""Lesson 32, guests in two rooms and sparse relaxations: what its notebook shows."""

from course_lib.lessons.sparse_socp.contents import lesson
from course_lib.lessons.sparse_socp.exercises import *
from course_lib.lessons.sparse_socp.pictures import *
from course_lib.lessons.sparse_socp.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
