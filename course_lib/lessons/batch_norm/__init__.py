"""Lesson 11, batch norm: what its notebook shows."""

from course_lib.lessons.batch_norm.contents import lesson
from course_lib.lessons.batch_norm.exercises import *
from course_lib.lessons.batch_norm.experiment import *
from course_lib.lessons.batch_norm.pictures import *
from course_lib.lessons.batch_norm.quiz import *

quiz = lesson.quiz
