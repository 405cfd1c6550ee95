"""Lesson 02, stochastic_gradient_descent: what its notebook shows."""

from course_lib.lessons.stochastic_gradient_descent.exercises import *
from course_lib.lessons.stochastic_gradient_descent.pictures import *
