"""Lesson 06, steepest_descent: what its notebook shows."""

from course_lib.lessons.steepest_descent.contents import lesson
from course_lib.lessons.steepest_descent.exercises import *
from course_lib.lessons.steepest_descent.pictures import *
from course_lib.lessons.steepest_descent.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
