"""Lesson 34, inside_mbart: what its notebook shows."""

from course_lib.lessons.inside_mbart.contents import lesson
from course_lib.lessons.inside_mbart.exercises import *
from course_lib.lessons.inside_mbart.pictures import *
from course_lib.lessons.inside_mbart.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
