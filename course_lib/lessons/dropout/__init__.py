"""Lesson 12, dropout: what its notebook shows."""

from course_lib.lessons.dropout.coins import *
from course_lib.lessons.dropout.contents import lesson
from course_lib.lessons.dropout.exercises import *
from course_lib.lessons.dropout.pictures import *
from course_lib.lessons.dropout.quiz import *

quiz = lesson.quiz
