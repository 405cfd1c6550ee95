"""Lesson 24, linear purification: what its notebook shows."""

from course_lib.lessons.linear_purification.contents import lesson
from course_lib.lessons.linear_purification.exercises import *
from course_lib.lessons.linear_purification.pictures import *
from course_lib.lessons.linear_purification.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
