"""Lesson 39, real_language: what its notebook shows."""

from course_lib.lessons.real_language.contents import lesson
from course_lib.lessons.real_language.exercises import *
from course_lib.lessons.real_language.material import *
from course_lib.lessons.real_language.pictures import *
from course_lib.lessons.real_language.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
