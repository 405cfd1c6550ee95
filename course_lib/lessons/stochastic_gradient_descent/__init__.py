"""Lesson 03, stochastic_gradient_descent: what its notebook shows."""

from course_lib.lessons.stochastic_gradient_descent.contents import lesson
from course_lib.lessons.stochastic_gradient_descent.exercises import *
from course_lib.lessons.stochastic_gradient_descent.pictures import *
from course_lib.lessons.stochastic_gradient_descent.quiz import *

quiz = lesson.quiz  # the quiz that the page shows, in the place of the module of that name
