"""Lesson 07, maximal_update_parametrization: what its notebook shows."""

from course_lib.lessons.maximal_update_parametrization.contents import lesson
from course_lib.lessons.maximal_update_parametrization.exercises import *
from course_lib.lessons.maximal_update_parametrization.networks import *
from course_lib.lessons.maximal_update_parametrization.pictures import *
from course_lib.lessons.maximal_update_parametrization.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
