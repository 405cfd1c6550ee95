"""Lesson 02, momentum: what its notebook shows."""

from course_lib.lessons.momentum.contents import lesson
from course_lib.lessons.momentum.exercises import *
from course_lib.lessons.momentum.pictures import *
from course_lib.lessons.momentum.quiz import *

quiz = lesson.quiz
