"""Lesson 01, gradient_descent_stability: what its notebook shows."""

from course_lib.lessons.gradient_descent_stability.exercises import *
from course_lib.lessons.gradient_descent_stability.pictures import *
