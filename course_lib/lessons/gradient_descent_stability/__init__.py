"""Lesson 01, gradient_descent_stability: what its notebook shows."""

from course_lib.lessons.gradient_descent_stability.contents import lesson
from course_lib.lessons.gradient_descent_stability.exercises import *
from course_lib.lessons.gradient_descent_stability.pictures import *
from course_lib.lessons.gradient_descent_stability.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
