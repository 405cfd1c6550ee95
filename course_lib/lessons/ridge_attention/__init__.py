"""Lesson 22, ridge_attention: what its notebook shows."""

from course_lib.lessons.ridge_attention.contents import lesson
from course_lib.lessons.ridge_attention.exercises import *
from course_lib.lessons.ridge_attention.experiment import *
from course_lib.lessons.ridge_attention.pictures import *
from course_lib.lessons.ridge_attention.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
